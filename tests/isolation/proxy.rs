//! An engine that does not do as it is told: a socket before the real one that changes requests to create a container,
//! answers inspections with what was asked for, or fails where a test wants it to.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::support::socket;

type Rewrite = fn(&State, Vec<u8>) -> Vec<u8>;
type Change = Box<dyn Fn(&mut Value) + Send + Sync>;

/// One of the calls that a start is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    Create,
    Attach,
    Start,
    Inspect,
    Wait,
    Remove,
    Volume,
    Archive,
    GuardImage,
    FenceImage,
    Network,
}

impl Call {
    fn of(method: &str, path: &str) -> Option<Self> {
        let ends = |end: &str| path.contains("/containers/") && path.ends_with(end);
        match method {
            "POST" if ends("/create") => Some(Call::Create),
            "POST" if ends("/attach") => Some(Call::Attach),
            "POST" if ends("/start") => Some(Call::Start),
            "GET" if ends("/json") => Some(Call::Inspect),
            "POST" if ends("/wait") => Some(Call::Wait),
            "DELETE" if path.contains("/containers/") => Some(Call::Remove),
            "GET" if path.contains("/images/") && path.contains("guard/json") => Some(Call::GuardImage),
            "GET" if path.contains("/images/") && path.contains("fence/json") => Some(Call::FenceImage),
            "POST" if path.ends_with("/networks/create") => Some(Call::Network),
            "GET" if path.contains("/volumes/") => Some(Call::Volume),
            "PUT" if ends("/archive") => Some(Call::Archive),
            _ => None,
        }
    }
}

/// What it does to a request instead of passing it on.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// Answers with a status and a message.
    Answer(u16),
    /// Passes it on, and breaks off instead of giving the answer.
    CutAfter,
    /// Passes it on, and never gives the answer.
    HangAfter,
    /// Never answers, and does not pass it on.
    Hang,
    /// Passes it on after a while.
    Delay(Duration),
}

#[derive(Default)]
struct Rules {
    /// Changes the request for a server's container.
    create: Option<Change>,
    /// Changes the request for a fence's container.
    fence: Option<Change>,
    /// Changes the request for a network.
    network: Option<Change>,
    /// The report of a container that is as it was asked for, which every inspection is answered with.
    lie: Option<Value>,
    /// Which request fails, and how.
    failure: Option<(Call, Failure)>,
    /// What the engine is made to warn of.
    warning: Option<&'static str>,
    /// Changes answers, each by a part of the path that is asked.
    answers: Vec<(&'static str, Change)>,
    /// Once it hangs, nothing at all is answered any more.
    all_hang: bool,
}

/// The socket, for as long as this lives.
pub struct Proxy {
    dir: tempfile::TempDir,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    rules: Rules,
    hung: AtomicBool,
    broken: AtomicBool,
    connections: Mutex<JoinSet<()>>,
    /// Every call that came.
    seen: Mutex<Vec<Call>>,
    /// The request for a server's container, as it came.
    asked: Mutex<Option<Value>>,
    /// What was reported of it last.
    reported: Mutex<Option<Value>>,
}

impl Proxy {
    /// Passes everything on as it is.
    pub fn new() -> Self {
        Proxy::with(Rules::default())
    }

    /// Changes the request for a server's container.
    pub fn changing(create: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Proxy::with(Rules { create: Some(Box::new(create)), ..Rules::default() })
    }

    /// The same, and tells of the container as if it were as asked for.
    pub fn lying(truth: Value, create: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Proxy::with(Rules { create: Some(Box::new(create)), lie: Some(truth), ..Rules::default() })
    }

    /// Changes the request for a fence's container.
    pub fn fencing(fence: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Proxy::with(Rules { fence: Some(Box::new(fence)), ..Rules::default() })
    }

    /// Changes the request for a network.
    pub fn networking(network: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Proxy::with(Rules { network: Some(Box::new(network)), ..Rules::default() })
    }

    /// Fails for one of the calls.
    pub fn failing(call: Call, failure: Failure) -> Self {
        Proxy::with(Rules { failure: Some((call, failure)), ..Rules::default() })
    }

    /// Answers nothing from such a call on.
    pub fn hanging_from(call: Call) -> Self {
        Proxy::with(Rules { failure: Some((call, Failure::Hang)), all_hang: true, ..Rules::default() })
    }

    /// Warns when a server's container is created.
    pub fn warning(warning: &'static str) -> Self {
        Proxy::with(Rules { warning: Some(warning), ..Rules::default() })
    }

    /// Changes what is answered to whoever asks for a path with this in it.
    pub fn answering(path: &'static str, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Proxy::with(Rules { answers: vec![(path, Box::new(change))], ..Rules::default() })
    }

    fn with(rules: Rules) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let state = Arc::new(State {
            rules,
            hung: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            connections: Mutex::default(),
            seen: Mutex::default(),
            asked: Mutex::default(),
            reported: Mutex::default(),
        });
        let shared = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = shared.clone();
                if !shared.broken.load(Relaxed) {
                    shared.connections.lock().unwrap().spawn(async move {
                        // A side that goes away in the middle is part of what is tested.
                        let _ = serve(&state, client).await;
                    });
                }
            }
        });
        Proxy { dir, state, task }
    }

    pub fn addresses(&self) -> Vec<String> {
        vec![format!("unix://{}", self.dir.path().join("s").display())]
    }

    /// Breaks off every connection, and takes none until it is mended.
    pub fn breaks(&self) {
        self.state.broken.store(true, Relaxed);
        self.state.connections.lock().unwrap().abort_all();
    }

    pub fn mends(&self) {
        self.state.broken.store(false, Relaxed);
    }

    /// The last report of a server's container that went through.
    pub fn reported(&self) -> Value {
        self.state.reported.lock().unwrap().clone().expect("a report")
    }

    /// How often a call came.
    pub fn count(&self, call: Call) -> usize {
        self.state.seen.lock().unwrap().iter().filter(|seen| **seen == call).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.breaks();
    }
}

/// One request or answer, up to its body.
struct Head {
    first: String,
    fields: Vec<String>,
}

impl Head {
    async fn read(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).await? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let first = lines.remove(0);
        Ok(Some(Head { first, fields: lines }))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let named = |line: &&String| line.split_once(':').is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        self.fields.iter().find(named).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|e| e.eq_ignore_ascii_case("chunked"))
    }

    fn length(&self) -> Option<usize> {
        self.field("content-length")?.parse().ok()
    }

    /// Its bytes; with a new length where the body is another.
    fn bytes(&self, length: Option<usize>) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first);
        for field in &self.fields {
            let name = field.split(':').next().unwrap_or_default();
            let of_body = ["content-length", "transfer-encoding"].iter().any(|n| n.eq_ignore_ascii_case(name));
            if length.is_none() || !of_body {
                text += &format!("{field}\r\n");
            }
        }
        if let Some(length) = length {
            text += &format!("Content-Length: {length}\r\n");
        }
        (text + "\r\n").into_bytes()
    }

    /// The whole body.
    async fn body(&self, from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if !self.is_chunked() {
            from.take(self.length().unwrap_or(0) as u64).read_to_end(&mut body).await?;
            return Ok(body);
        }
        while let Some(chunk) = chunk(from).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

async fn chunk(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut size = String::new();
    from.read_line(&mut size).await?;
    let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
    let mut chunk = vec![0; size + 2];
    from.read_exact(&mut chunk).await?;
    chunk.truncate(size);
    Ok((size > 0).then_some(chunk))
}

async fn serve(state: &State, client: UnixStream) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut engine = BufReader::new(UnixStream::connect(socket()).await?);
    while let Some(request) = Head::read(&mut client).await? {
        let mut words = request.first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = path.split('?').next().unwrap_or_default().to_owned();
        let call = Call::of(method, &path);
        state.seen.lock().unwrap().extend(call);
        let body = request.body(&mut client).await?;
        let failure = state.rules.failure.filter(|(failing, _)| call == Some(*failing)).map(|(_, failure)| failure);
        if state.rules.all_hang && failure.is_some() {
            state.hung.store(true, Relaxed);
        }
        match failure {
            _ if state.hung.load(Relaxed) => std::future::pending().await,
            Some(Failure::Hang) => std::future::pending().await,
            Some(Failure::Delay(time)) => tokio::time::sleep(time).await,
            Some(Failure::Answer(status)) => {
                let text = r#"{"message":"as the test wants it"}"#;
                let length = text.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
                client.write_all(format!("{head}\r\n{text}").as_bytes()).await?;
                continue;
            }
            _ => {}
        }
        let (body, is_server) = match (call, &state.rules.network) {
            (Some(Call::Create), _) => create(state, body),
            (Some(Call::Network), Some(change)) => (changed(&body, change), false),
            _ => (body, false),
        };
        let has_body = request.is_chunked() || request.length().is_some();
        engine.write_all(&request.bytes(has_body.then_some(body.len()))).await?;
        engine.write_all(&body).await?;
        let Some(answer) = Head::read(&mut engine).await? else { return Ok(()) };
        match failure {
            Some(Failure::CutAfter) => return Ok(()),
            Some(Failure::HangAfter) => std::future::pending().await,
            _ => {}
        }
        let status = answer.first.split(' ').nth(1).unwrap_or_default();
        if status == "101" {
            client.write_all(&answer.bytes(None)).await?;
            tokio::io::copy_bidirectional(&mut client, &mut engine).await?;
            return Ok(());
        }
        let told = state.rules.answers.iter().find(|(part, _)| method == "GET" && path.contains(part));
        if let (Some((_, change)), "200") = (told, status) {
            let mut told: Value = serde_json::from_slice(&answer.body(&mut engine).await?)?;
            change(&mut told);
            let body = serde_json::to_vec(&told)?;
            client.write_all(&answer.bytes(Some(body.len()))).await?;
            client.write_all(&body).await?;
            continue;
        }
        let rewritten: Option<Rewrite> = match (call, status) {
            (Some(Call::Inspect), "200") => Some(report),
            (Some(Call::Create), "201") if is_server => Some(made),
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            let body = rewritten(state, answer.body(&mut engine).await?);
            client.write_all(&answer.bytes(Some(body.len()))).await?;
            client.write_all(&body).await?;
            continue;
        }
        client.write_all(&answer.bytes(None)).await?;
        if matches!(status, "204" | "304") || method == "HEAD" {
            continue;
        }
        if !answer.is_chunked() {
            let body = answer.body(&mut engine).await?;
            client.write_all(&body).await?;
            continue;
        }
        // Chunk by chunk: some answers take as long as a container lives.
        loop {
            client.flush().await?;
            let chunk = chunk(&mut engine).await?;
            let bytes = chunk.clone().unwrap_or_default();
            client.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
            client.write_all(&bytes).await?;
            client.write_all(b"\r\n").await?;
            if chunk.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn changed(body: &[u8], change: &Change) -> Vec<u8> {
    let mut request: Value = serde_json::from_slice(body).unwrap();
    change(&mut request);
    serde_json::to_vec(&request).unwrap()
}

/// The request for a container as the engine is to get it, and whether it is a server's; helpers are left alone.
fn create(state: &State, body: Vec<u8>) -> (Vec<u8>, bool) {
    let mut request: Value = serde_json::from_slice(&body).unwrap();
    if let ("fence", Some(change)) = (request["Labels"]["org.bulkhead.role"].as_str().unwrap_or(""), &state.rules.fence)
    {
        return (changed(&body, change), false);
    }
    if request["Labels"]["org.bulkhead.role"] != "server" {
        return (body, false);
    }
    *state.asked.lock().unwrap() = Some(request.clone());
    if let Some(change) = &state.rules.create {
        change(&mut request);
    }
    (serde_json::to_vec(&request).unwrap(), true)
}

/// The answer to that request as the gateway is to get it.
fn made(state: &State, body: Vec<u8>) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(&body).unwrap();
    if let Some(warning) = state.rules.warning {
        answer["Warnings"] = serde_json::json!([warning]);
    }
    serde_json::to_vec(&answer).unwrap()
}

/// The report of a container as the gateway is to get it.
fn report(state: &State, body: Vec<u8>) -> Vec<u8> {
    let mut report: Value = serde_json::from_slice(&body).unwrap();
    let asked = state.asked.lock().unwrap().clone();
    let (Some(asked), true) = (asked, report["HostConfig"].is_object()) else { return body };
    if let Some(truth) = &state.rules.lie {
        for part in ["HostConfig", "Config", "Mounts", "NetworkSettings", "AppArmorProfile", "Image"] {
            report[part] = truth[part].clone();
        }
        // Where the probe is, whose network it is to have, and its processors differ from one start to the next.
        let place = |report: &Value| {
            report["Entrypoint"][0].as_str().and_then(|at| at.strip_suffix("/probe")).map(str::to_owned)
        };
        if let (Some(before), Some(now)) = (place(&report["Config"]), place(&asked)) {
            report = serde_json::from_str(&report.to_string().replace(&before, &now)).unwrap();
        }
        for part in ["NetworkMode", "CpusetCpus"] {
            report["HostConfig"][part] = asked["HostConfig"][part].clone();
        }
        for part in ["Entrypoint", "Env", "Labels"] {
            report["Config"][part] = asked[part].clone();
        }
    }
    *state.reported.lock().unwrap() = Some(report.clone());
    serde_json::to_vec(&report).unwrap()
}
