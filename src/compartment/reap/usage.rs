//! How many bytes images and volumes take, as far as the engine tells: `/system/df`. Decides nothing.
//!
//! Asked for here and not through the client, which reads the answer only of the newest engines: the members were renamed.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::super::Engine;

/// The engine walks through all that it has.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer answers are not read.
const LARGEST: u64 = 64 << 20;
/// In the old version of the protocol, an answer is one piece that ends with the connection.
const REQUEST: &[u8] = b"GET /system/df?verbose=1 HTTP/1.0\r\nHost: engine\r\n\r\n";

/// Bytes of what is at the engine.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Of each image, those that no other image has: its share of the others' layers is not freed with it.
    pub images: HashMap<String, u64>,
    /// Of each volume.
    pub volumes: HashMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    images: Option<Vec<Image>>,
    volumes: Option<Vec<Volume>>,
    image_usage: Option<Items<Image>>,
    volume_usage: Option<Items<Volume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Items<T> {
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    id: String,
    size: Option<i64>,
    shared_size: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volume {
    name: String,
    usage_data: Option<VolumeUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeUsage {
    size: Option<i64>,
}

/// What the engine tells; nothing where it does not, for sizes decide nothing.
pub(super) async fn usage(engine: &Engine) -> Usage {
    if let Err(fault) = engine.docker().await {
        return untold(&fault.inward);
    }
    let Some(address) = engine.address().await else { return Usage::default() };
    match tokio::time::timeout(PATIENCE, ask(&address)).await {
        Ok(Ok(usage)) => usage,
        Ok(Err(why)) => untold(&why),
        Err(_) => untold("it took too long"),
    }
}

fn untold(why: &str) -> Usage {
    tracing::debug!("the engine did not tell sizes: {why}");
    Usage::default()
}

async fn ask(address: &str) -> Result<Usage, String> {
    let broken = |error: std::io::Error| error.to_string();
    #[cfg(unix)]
    if let Some(path) = address.strip_prefix("unix://") {
        return read(tokio::net::UnixStream::connect(path).await.map_err(broken)?).await;
    }
    let tcp = ["tcp://", "http://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let Some(place) = tcp.map(|place| place.trim_end_matches('/')) else {
        return Err(format!("{address} is not asked for sizes"));
    };
    read(tokio::net::TcpStream::connect(place).await.map_err(broken)?).await
}

async fn read(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Usage, String> {
    let broken = |error: std::io::Error| error.to_string();
    stream.write_all(REQUEST).await.map_err(broken)?;
    let mut answer = Vec::new();
    stream.take(LARGEST).read_to_end(&mut answer).await.map_err(broken)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<Usage, String> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(answer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("the answer was cut off".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if head.code != Some(200) {
        return Err(format!("it answered {}", head.code.unwrap_or_default()));
    }
    let answer: Answer = serde_json::from_slice(&answer[length..]).map_err(|error| error.to_string())?;
    let images = answer.images.or(answer.image_usage.and_then(|usage| usage.items)).unwrap_or_default();
    let volumes = answer.volumes.or(answer.volume_usage.and_then(|usage| usage.items)).unwrap_or_default();
    Ok(Usage {
        images: images.into_iter().filter_map(|image| Some((own(&image)?, image.id)).map(|(n, id)| (id, n))).collect(),
        volumes: volumes.into_iter().filter_map(|volume| Some((volume.name, told(volume.usage_data?.size)?))).collect(),
    })
}

/// A share that is not told, -1, makes the rest unknown.
fn own(image: &Image) -> Option<u64> {
    Some(told(image.size)?.saturating_sub(told(image.shared_size)?))
}

fn told(bytes: Option<i64>) -> Option<u64> {
    bytes.and_then(|bytes| u64::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Vec<u8> {
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}").into_bytes()
    }

    #[test]
    fn old_and_new_answers_tell_the_same() {
        let images = r#"[{"Id":"sha256:1","Size":10,"SharedSize":4},{"Id":"sha256:2","Size":10,"SharedSize":-1}]"#;
        let volumes = r#"[{"Name":"v","UsageData":{"Size":7,"RefCount":0}},{"Name":"w","UsageData":{"Size":-1}}]"#;
        let old = format!(r#"{{"LayersSize":1,"Images":{images},"Volumes":{volumes}}}"#);
        let new = format!(r#"{{"ImageUsage":{{"Items":{images}}},"VolumeUsage":{{"Items":{volumes}}}}}"#);
        for body in [old, new] {
            let usage = parse(&answer(&body)).unwrap();
            assert_eq!(usage.images, HashMap::from([("sha256:1".to_owned(), 6)]), "{body}");
            assert_eq!(usage.volumes, HashMap::from([("v".to_owned(), 7)]), "{body}");
        }
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        for bad in ["", "HTTP/1.0 500 no\r\n\r\n{}", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n{\"Images\":1}"]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse(&answer("{}")).unwrap().images.is_empty());
    }
}
