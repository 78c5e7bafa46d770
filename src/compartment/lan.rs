//! A network at the engine for one instance alone: made, read back, and gone again whatever becomes of who asked for it.
//! Knows no server beyond its name.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{NetworkCreateRequest, NetworkCreateResponse, NetworkInspect};
use tokio::task::JoinHandle;

use crate::downstream::attached;
use crate::egress::subnet::Subnet;
use crate::error::{Class, Fault};

use super::Engine;
use super::engine::{CALL, Refused, is_missing};

/// The driver of such a network.
pub(super) const DRIVER: &str = "bridge";
/// Its options: the containers in it, of which there is one, do not reach each other.
pub(super) const OPTIONS: [(&str, &str); 1] = [("com.docker.network.bridge.enable_icc", "false")];

/// How long an answer is waited for that nobody needs any more.
const LATE: Duration = Duration::from_secs(60);
/// How often a network is asked to go while somebody waits, how often after that, and the pauses between.
const TRIES: usize = 10;
const LATER: usize = 60;
const PAUSE: Duration = Duration::from_millis(200);
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// What engines say when they have given away all the addresses that they have for networks.
const EXHAUSTED: [&str; 2] = ["non-overlapping", "fully subnetted"];

/// A network that was made, or is being made. Dropped, it is removed by a task of its own.
pub(super) struct Lan {
    docker: Docker,
    name: String,
    asked: Option<JoinHandle<Result<NetworkCreateResponse, Error>>>,
    cared_for: bool,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The engine's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub subnet: Subnet,
    /// The host's address in it.
    pub gateway: Ipv4Addr,
    /// What says whose it is.
    pub labels: HashMap<String, String>,
}

impl Lan {
    /// Makes a network of that name, and says what it has become.
    pub async fn make(engine: &Engine, name: String, labels: HashMap<String, String>) -> Result<(Lan, Place), Fault> {
        let docker = engine.docker().await?;
        let mut lan = Lan::ask(&docker, request(name, labels.clone()));
        let made = match engine.wait("create a network", lan.answer()).await? {
            Ok(made) => made,
            Err(why) => return Err(refused(why)),
        };
        // A warning goes with what an engine does not do as asked.
        if !made.warning.is_empty() {
            return Err(Fault::new(Class::Isolation, format!("the engine warns of its network: {}", made.warning)));
        }
        let seen = engine.call("look at a network", CALL, docker.inspect_network(&made.id, None)).await?;
        let place = place(&lan.name, made.id, labels, &seen).ok_or_else(|| {
            Fault::new(Class::Isolation, "the engine does not tell the addresses of its network")
                .with_inward(format!("the engine does not tell the addresses of its network: {:?}", seen.ipam))
        })?;
        Ok((lan, place))
    }

    /// The request is a task of its own, for the engine carries it out whether we stay to hear its answer or not.
    fn ask(docker: &Docker, request: NetworkCreateRequest) -> Self {
        let (asking, name) = (docker.clone(), request.name.clone());
        let asked = tokio::spawn(async move { asking.create_network(request).await });
        Lan { docker: docker.clone(), name, asked: Some(asked), cared_for: false }
    }

    async fn answer(&mut self) -> Result<NetworkCreateResponse, Error> {
        let lost = |why: String| Error::IOError { err: std::io::Error::other(why) };
        let Some(asked) = self.asked.as_mut() else { return Err(lost("the answer was taken before".to_owned())) };
        let answer = asked.await.unwrap_or_else(|error| Err(lost(error.to_string())));
        self.asked = None;
        // Refused: there is nothing to remove.
        self.cared_for = matches!(answer, Err(Error::DockerResponseServerError { .. }));
        answer
    }

    /// Removes it, and looks whether it is gone. Its container must have ended. What takes too long goes on by itself.
    pub async fn remove(mut self) {
        for _ in 0..TRIES {
            if gone(&self.docker, &self.name).await {
                self.cared_for = true;
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        tracing::warn!(network = %self.name, "could not be removed yet; it will be tried again");
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        if self.cared_for {
            return;
        }
        let (docker, name, asked) = (self.docker.clone(), std::mem::take(&mut self.name), self.asked.take());
        attached::afterwards(async move {
            if let Some(asked) = asked {
                let _ = tokio::time::timeout(LATE, asked).await;
            }
            for n in 0..TRIES + LATER {
                if gone(&docker, &name).await {
                    return;
                }
                attached::pause(if n < TRIES { PAUSE } else { LONG_PAUSE }).await;
            }
            tracing::warn!(network = %name, "could not be removed; `bulkhead reap` will, once this gateway has ended");
        });
    }
}

/// Asks for its removal, and looks.
async fn gone(docker: &Docker, name: &str) -> bool {
    let removal = async {
        let _ = docker.remove_network(name).await;
        docker.inspect_network(name, None).await
    };
    matches!(tokio::time::timeout(CALL, removal).await, Ok(Err(error)) if is_missing(&error))
}

fn request(name: String, labels: HashMap<String, String>) -> NetworkCreateRequest {
    NetworkCreateRequest {
        name,
        driver: Some(DRIVER.to_owned()),
        internal: Some(false),
        attachable: Some(false),
        enable_ipv6: Some(false),
        options: Some(OPTIONS.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        labels: Some(labels),
        ..NetworkCreateRequest::default()
    }
}

fn refused(why: Refused) -> Fault {
    let inward = format!("{} ({})", why.message, why.status);
    if EXHAUSTED.iter().any(|words| why.message.contains(words)) {
        let text = "the engine has no addresses left for another network: end servers with network = \"bridge\", or give \
                    the engine more (default-address-pools)";
        return Fault::new(Class::Engine, text).with_inward(format!("{text}: {inward}"));
    }
    let text = "the engine refuses to make its network";
    Fault::new(Class::Isolation, text).with_inward(format!("{text}: {inward}"))
}

fn place(name: &str, id: String, labels: HashMap<String, String>, seen: &NetworkInspect) -> Option<Place> {
    let [config] = seen.ipam.as_ref()?.config.as_deref()? else { return None };
    let subnet = Subnet::parse(config.subnet.as_deref()?)?;
    let gateway = match config.gateway.as_deref() {
        Some(gateway) => gateway.parse().ok()?,
        // Some do not tell what they take where nothing else is asked for.
        None => subnet.example(),
    };
    Some(Place { id, name: name.to_owned(), subnet, gateway, labels })
}

#[cfg(test)]
mod tests {
    use bollard::models::{Ipam, IpamConfig};

    use super::*;

    #[test]
    fn a_network_is_asked_for_as_it_is_proven_later() {
        let body = serde_json::to_value(request("n".into(), HashMap::from([("a".into(), "b".into())]))).unwrap();
        let expected = serde_json::json!({
            "Name": "n", "Driver": "bridge", "Internal": false, "Attachable": false, "EnableIPv6": false,
            "Options": { "com.docker.network.bridge.enable_icc": "false" }, "Labels": { "a": "b" },
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn an_engine_without_addresses_is_told_from_one_that_refuses() {
        let of = |message: &str| refused(Refused { status: 404, message: message.to_owned() });
        for words in [
            "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
            "all predefined address pools have been fully subnetted",
        ] {
            let fault = of(words);
            assert!(fault.class == Class::Engine && fault.outward.contains("default-address-pools"), "{fault}");
            assert!(fault.inward.contains(words), "{}", fault.inward);
        }
        assert_eq!(of("plugin not found").class, Class::Isolation);
    }

    #[test]
    fn addresses_are_what_the_engine_says_or_it_is_no_place() {
        let seen = |all: &[(&str, Option<&str>)]| {
            let config = all.iter().map(|(subnet, gateway)| IpamConfig {
                subnet: Some((*subnet).to_owned()),
                gateway: gateway.map(str::to_owned),
                ..IpamConfig::default()
            });
            let ipam = Ipam { config: Some(config.collect()), ..Ipam::default() };
            place("n", "i".into(), HashMap::new(), &NetworkInspect { ipam: Some(ipam), ..NetworkInspect::default() })
        };
        let gateway = |place: Option<Place>| place.map(|place| place.gateway.to_string());
        assert_eq!(gateway(seen(&[("172.18.0.0/16", Some("172.18.0.254"))])).as_deref(), Some("172.18.0.254"));
        assert_eq!(gateway(seen(&[("172.18.0.0/16", None)])).as_deref(), Some("172.18.0.1"));
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[("172.18.0.0/16", Some("x"))]), None);
        assert_eq!(seen(&[("fd00::/64", None)]), None);
        assert_eq!(seen(&[("172.18.0.0/16", None), ("fd00::/64", None)]), None);
    }
}
