//! The engine behind its API: found, checked, and never waited for without a deadline. Knows no server.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::Mutex;

use crate::error::{Class, Fault};

use super::lease::Terms;
use super::seat::Seats;
use super::volume::Prepared;

/// How long an engine may take to say that it is there.
const HELLO: Duration = Duration::from_secs(2);
/// Deadline of an ordinary call.
pub(super) const CALL: Duration = Duration::from_secs(15);
/// A call that may take its time is not waited for once the engine has not answered a ping for that long…
const PATIENCE: Duration = Duration::from_secs(3);
/// …and this is how often it is pinged.
const PAUSE: Duration = Duration::from_secs(2);
/// The client's own limit, in seconds; ours is always shorter, except for builds.
const CLIENT: u64 = 900;
/// The oldest API that has all that a compartment asks for.
const FLOOR: (u32, u32) = (1, 41);

/// The engine, reached when it is first needed and again after it was away.
pub struct Engine {
    candidates: Vec<String>,
    /// Why there is no address to try.
    nowhere: String,
    current: Mutex<Option<Connection>>,
    terms: Terms,
    pub(super) prepared: Prepared,
    pub(super) seats: Seats,
}

struct Connection {
    docker: Docker,
    address: String,
    /// Whether it is reached by a socket of this machine.
    near: bool,
    defaults: Option<Arc<Defaults>>,
}

/// What the engine does to every container by itself, where nothing else is asked of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The runtime that starts containers.
    pub runtime: String,
    /// The name of its seccomp profile; `None` where it filters no system calls.
    pub seccomp: Option<String>,
    /// Whether it confines with AppArmor.
    pub apparmor: bool,
    /// Whether it is Docker Desktop, whose virtual machine has the host's paths behind a prefix of its own.
    pub desktop: bool,
    /// How many processors it can keep a container to; none where it cannot keep it to any.
    pub processors: Option<usize>,
    /// What its machine is called.
    pub host: String,
    /// The release of that machine's kernel.
    pub kernel: String,
    /// Whether it is reached by a socket of this machine.
    pub near: bool,
}

impl Defaults {
    /// As the engine tells them.
    pub fn of(info: &SystemInfo) -> Self {
        let options = info.security_options.clone().unwrap_or_default();
        // `name=seccomp,profile=default`
        let find = |name: &str| {
            let mut parts = options.iter().map(|option| option.split(',').collect::<Vec<_>>());
            parts.find(|parts| parts.iter().any(|part| part.strip_prefix("name=") == Some(name)))
        };
        let profile = |parts: Vec<&str>| parts.iter().find_map(|part| part.strip_prefix("profile=")).map(str::to_owned);
        Defaults {
            runtime: info.default_runtime.clone().unwrap_or_default(),
            seccomp: find("seccomp").map(|parts| profile(parts).unwrap_or_default()),
            apparmor: find("apparmor").is_some(),
            desktop: info.operating_system.as_deref() == Some("Docker Desktop"),
            processors: info
                .ncpu
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| *count > 0 && info.cpu_set == Some(true)),
            host: info.name.clone().unwrap_or_default(),
            kernel: info.kernel_version.clone().unwrap_or_default(),
            near: false,
        }
    }
}

/// The engine's answer to a call that it does not carry out.
#[derive(Debug)]
pub(super) struct Refused {
    pub status: u16,
    pub message: String,
}

/// What the engine says of itself.
#[derive(Debug)]
pub struct Description {
    /// Where it answers.
    pub version: SystemVersion,
    /// What it can do.
    pub info: SystemInfo,
}

/// How the engine at an address answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should.
    Answers,
    /// There is none: no socket, or nobody who listens.
    Absent(String),
    /// This user may not use it.
    Denied,
    /// It takes connections and says nothing.
    Hung,
    /// It speaks an older API than is needed; which.
    Old(String),
    /// It answers something that is no answer.
    Failed(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Answers => f.write_str("it answers"),
            State::Absent(why) | State::Failed(why) => f.write_str(why),
            State::Denied => f.write_str(
                "permission denied: this user may not use it; on Linux, add the user to the group that owns the socket \
                 (mostly \"docker\") and log in again",
            ),
            State::Hung => write!(f, "no answer within {HELLO:?}"),
            State::Old(api) => write!(f, "it speaks API {api:?}; at least {}.{} is needed", FLOOR.0, FLOOR.1),
        }
    }
}

impl Engine {
    /// Addresses to try in their order: `unix://…`, `tcp://…`, `http://…`, `npipe://…`.
    /// Where it cannot be said where the engine is, the reason is kept for whoever needs it.
    pub fn new(candidates: Result<Vec<String>, impl std::fmt::Display>) -> Self {
        let (candidates, nowhere) = match candidates {
            Ok(candidates) => (candidates, "no address to try".to_owned()),
            Err(why) => (Vec::new(), why.to_string()),
        };
        let terms = Terms::default();
        Engine {
            candidates,
            nowhere,
            current: Mutex::new(None),
            terms,
            prepared: Prepared::default(),
            seats: Seats::default(),
        }
    }

    /// With leases of another length.
    pub fn with_terms(self, terms: Terms) -> Self {
        Engine { terms, ..self }
    }

    /// How long leases are here.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// The engine that answers, and is new enough.
    pub async fn docker(&self) -> Result<Docker, Fault> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref() {
            return Ok(connection.docker.clone());
        }
        let mut tried = Vec::new();
        for address in &self.candidates {
            match greet(address).await {
                Ok(docker) => {
                    let near = address.starts_with("unix://");
                    let address = address.clone();
                    *current = Some(Connection { docker: docker.clone(), address, near, defaults: None });
                    return Ok(docker);
                }
                Err(State::Old(api)) => {
                    let text = format!("the container engine at {address} is too old: {}", State::Old(api));
                    return Err(Fault::new(Class::Engine, text));
                }
                Err(state) => tried.push(format!("{address}: {state}")),
            }
        }
        let tried = if tried.is_empty() { self.nowhere.clone() } else { tried.join("; ") };
        Err(Fault::new(Class::Engine, "the container engine does not answer")
            .with_inward(format!("the container engine does not answer ({tried}); start it, or set DOCKER_HOST")))
    }

    /// Where the engine is that answered last.
    pub(super) async fn address(&self) -> Option<String> {
        self.current.lock().await.as_ref().map(|connection| connection.address.clone())
    }

    /// Carries out one call within the deadline; `what` says what it is for.
    pub(super) async fn call<T>(
        &self,
        what: &str,
        within: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Fault> {
        self.ask(what, within, call).await?.map_err(|refused| {
            Fault::new(Class::Engine, format!("the container engine failed to {what}"))
                .with_inward(format!("the container engine failed to {what}: {}", refused.message))
        })
    }

    /// The same, for a caller to whom the engine's refusal means something.
    pub(super) async fn ask<T>(
        &self,
        what: &str,
        within: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Refused>, Fault> {
        let late = async {
            tokio::time::sleep(within).await;
            format!("the container engine did not {what} within {within:?}")
        };
        self.race(what, call, late).await
    }

    /// The same for a call that takes its time on a busy engine: it is waited for as long as the engine answers pings.
    pub(super) async fn wait<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Refused>, Fault> {
        self.race(what, call, std::future::pending()).await
    }

    async fn race<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, Error>>,
        late: impl Future<Output = String>,
    ) -> Result<Result<T, Refused>, Fault> {
        // Whoever looks for the engine just now would hold us up, and sees by itself whether it answers.
        let current = self.current.try_lock().ok().and_then(|c| c.as_ref().map(|connection| connection.docker.clone()));
        let silent = async {
            match &current {
                Some(docker) => silence(docker).await,
                None => std::future::pending().await,
            }
            format!("the container engine has stopped answering when it was to {what}")
        };
        let why = tokio::select! {
            answer = call => return self.judge(what, answer).await,
            why = late => why,
            why = silent => why,
        };
        self.forget().await;
        Err(Fault::new(Class::Engine, why))
    }

    async fn judge<T>(&self, what: &str, answer: Result<T, Error>) -> Result<Result<T, Refused>, Fault> {
        match answer {
            Ok(value) => Ok(Ok(value)),
            Err(Error::DockerResponseServerError { status_code, message }) => {
                Ok(Err(Refused { status: status_code, message }))
            }
            Err(error) => {
                self.forget().await;
                Err(Fault::new(Class::Engine, format!("the container engine failed to {what}"))
                    .with_inward(format!("the container engine failed to {what}: {error}")))
            }
        }
    }

    /// The connection is no good any more; the next call looks for the engine anew.
    async fn forget(&self) {
        *self.current.lock().await = None;
    }

    /// What the engine does by itself; asked once a connection.
    pub(super) async fn defaults(&self) -> Result<Arc<Defaults>, Fault> {
        let known = |current: &Option<Connection>| current.as_ref().and_then(|c| c.defaults.clone());
        if let Some(defaults) = known(&*self.current.lock().await) {
            return Ok(defaults);
        }
        let docker = self.docker().await?;
        let info = self.call("describe itself", CALL, docker.info()).await?;
        let mut current = self.current.lock().await;
        let near = current.as_ref().is_some_and(|connection| connection.near);
        let defaults = Arc::new(Defaults { near, ..Defaults::of(&info) });
        if let Some(connection) = current.as_mut() {
            connection.defaults = Some(defaults.clone());
        }
        Ok(defaults)
    }

    /// How each address answers now; or why there is none to ask.
    pub async fn states(&self) -> Result<Vec<(String, State)>, String> {
        let mut states = Vec::new();
        for address in &self.candidates {
            states.push((address.clone(), greet(address).await.err().unwrap_or(State::Answers)));
        }
        if states.is_empty() { Err(self.nowhere.clone()) } else { Ok(states) }
    }

    /// What the engine says of itself.
    pub async fn describe(&self) -> Result<Description, Fault> {
        let docker = self.docker().await?;
        let version = self.call("tell its version", CALL, docker.version()).await?;
        let info = self.call("describe itself", CALL, docker.info()).await?;
        Ok(Description { version, info })
    }
}

/// Resolves when the engine has stopped answering.
async fn silence(docker: &Docker) {
    loop {
        tokio::time::sleep(PAUSE).await;
        if !matches!(tokio::time::timeout(PATIENCE, docker.ping()).await, Ok(Ok(_))) {
            return;
        }
    }
}

async fn greet(address: &str) -> Result<Docker, State> {
    let docker = connect(address).map_err(|error| silent(&error))?;
    let version = match tokio::time::timeout(HELLO, docker.version()).await {
        Ok(Ok(version)) => version,
        Ok(Err(error)) => return Err(silent(&error)),
        Err(_) => return Err(State::Hung),
    };
    let api = version.api_version.unwrap_or_default();
    if parse(&api) < Some(FLOOR) { Err(State::Old(api)) } else { Ok(docker) }
}

/// What the system said, below the words of the libraries above it.
fn silent(error: &Error) -> State {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        match at.downcast_ref::<std::io::Error>() {
            Some(io) if io.kind() == PermissionDenied => return State::Denied,
            Some(io) if matches!(io.kind(), NotFound | ConnectionRefused) => return State::Absent(io.to_string()),
            Some(io) => return State::Failed(io.to_string()),
            None => cause = at.source(),
        }
    }
    match error {
        // The client looks for the socket before it connects.
        Error::SocketNotFoundError(_) => State::Absent("there is no such socket".to_owned()),
        _ => State::Failed(error.to_string()),
    }
}

fn connect(address: &str) -> Result<Docker, Error> {
    if address.starts_with("unix://") {
        Docker::connect_with_unix(address, CLIENT, API_DEFAULT_VERSION)
    } else if address.starts_with("npipe://") {
        Docker::connect_with_host(address)
    } else {
        Docker::connect_with_http(address, CLIENT, API_DEFAULT_VERSION)
    }
}

fn parse(api: &str) -> Option<(u32, u32)> {
    let (major, minor) = api.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether the engine answered that there is no such thing.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_compare_as_numbers() {
        assert!(parse("1.41") >= Some(FLOOR) && parse("1.100") > Some(FLOOR) && parse("2.0") > Some(FLOOR));
        assert!(parse("1.40") < Some(FLOOR) && parse("1.9") < Some(FLOOR) && parse("") < Some(FLOOR));
    }

    #[test]
    fn what_the_engine_does_by_itself_is_read_from_its_words() {
        let of = |options: &[&str]| {
            let options = options.iter().map(|o| (*o).to_owned()).collect();
            let info = SystemInfo {
                security_options: Some(options),
                default_runtime: Some("runc".into()),
                ..Default::default()
            };
            Defaults::of(&info)
        };
        let plain = of(&["name=seccomp,profile=default"]);
        assert_eq!(
            (plain.runtime.as_str(), plain.seccomp.as_deref(), plain.apparmor),
            ("runc", Some("default"), false)
        );
        let more = of(&["name=apparmor", "name=seccomp,profile=/etc/loose.json", "name=cgroupns"]);
        assert_eq!((more.seccomp.as_deref(), more.apparmor), (Some("/etc/loose.json"), true));
        assert_eq!(of(&["name=cgroupns"]).seccomp, None);
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_named_with_every_address() {
        let engine =
            Engine::new(Ok::<_, String>(vec!["unix:///nonexistent/a.sock".into(), "tcp://127.0.0.1:9".into()]));
        let fault = engine.docker().await.unwrap_err();
        assert_eq!(fault.class, Class::Engine);
        assert!(fault.inward.contains("a.sock") && fault.inward.contains("127.0.0.1:9"), "{}", fault.inward);
    }
}
