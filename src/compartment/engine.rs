//! The engine behind its API: found, checked, and never waited for without a deadline. Knows no server.

use std::future::Future;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::Mutex;

use crate::error::{Class, Fault};

/// How long an engine may take to say that it is there.
const HELLO: Duration = Duration::from_secs(2);
/// Deadline of an ordinary call.
pub(super) const CALL: Duration = Duration::from_secs(15);
/// The client's own limit, in seconds; ours is always shorter, except for builds.
const CLIENT: u64 = 900;
/// The oldest API that has all that a compartment asks for.
const FLOOR: (u32, u32) = (1, 41);

/// The engine, reached when it is first needed and again after it was away.
pub struct Engine {
    candidates: Vec<String>,
    /// Why there is no address to try.
    nowhere: String,
    current: Mutex<Option<Docker>>,
    pub(super) probe: Mutex<Option<String>>,
}

/// What the engine says of itself.
#[derive(Debug)]
pub struct Description {
    /// Where it answers.
    pub version: SystemVersion,
    /// What it can do.
    pub info: SystemInfo,
}

impl Engine {
    /// Addresses to try in their order: `unix://…`, `tcp://…`, `http://…`, `npipe://…`.
    /// Where it cannot be said where the engine is, the reason is kept for whoever needs it.
    pub fn new(candidates: Result<Vec<String>, impl std::fmt::Display>) -> Self {
        let (candidates, nowhere) = match candidates {
            Ok(candidates) => (candidates, "no address to try".to_owned()),
            Err(why) => (Vec::new(), why.to_string()),
        };
        Engine { candidates, nowhere, current: Mutex::new(None), probe: Mutex::new(None) }
    }

    /// The engine that answers, and is new enough.
    pub async fn docker(&self) -> Result<Docker, Fault> {
        let mut current = self.current.lock().await;
        if let Some(docker) = current.as_ref() {
            return Ok(docker.clone());
        }
        let mut tried = Vec::new();
        for address in &self.candidates {
            match greet(address).await {
                Ok(docker) => {
                    *current = Some(docker.clone());
                    return Ok(docker);
                }
                Err(Refusal::Old(fault)) => return Err(fault),
                Err(Refusal::Silent(why)) => tried.push(format!("{address}: {why}")),
            }
        }
        let tried = if tried.is_empty() { self.nowhere.clone() } else { tried.join("; ") };
        Err(Fault::new(Class::Engine, "the container engine does not answer")
            .with_inward(format!("the container engine does not answer ({tried}); start it, or set DOCKER_HOST")))
    }

    /// Carries out one call within the deadline; `what` says what it is for.
    pub(super) async fn call<T>(
        &self,
        what: &str,
        within: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(within, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if !matches!(error, Error::DockerResponseServerError { .. }) {
                    // The connection is no good any more; the next call looks for the engine anew.
                    *self.current.lock().await = None;
                }
                Err(Fault::new(Class::Engine, format!("the container engine failed to {what}"))
                    .with_inward(format!("the container engine failed to {what}: {error}")))
            }
            Err(_) => {
                *self.current.lock().await = None;
                let text = format!("the container engine did not {what} within {within:?}");
                Err(Fault::new(Class::Engine, text))
            }
        }
    }

    /// What the engine says of itself.
    pub async fn describe(&self) -> Result<Description, Fault> {
        let docker = self.docker().await?;
        let version = self.call("tell its version", CALL, docker.version()).await?;
        let info = self.call("describe itself", CALL, docker.info()).await?;
        Ok(Description { version, info })
    }
}

enum Refusal {
    Silent(String),
    Old(Fault),
}

async fn greet(address: &str) -> Result<Docker, Refusal> {
    let silent = |why: String| Refusal::Silent(why);
    let docker = connect(address).map_err(|error| silent(error.to_string()))?;
    let version = match tokio::time::timeout(HELLO, docker.version()).await {
        Ok(Ok(version)) => version,
        Ok(Err(error)) => return Err(silent(error.to_string())),
        Err(_) => return Err(silent(format!("no answer within {HELLO:?}"))),
    };
    let api = version.api_version.unwrap_or_default();
    if parse(&api) < Some(FLOOR) {
        let text =
            format!("the container engine at {address} speaks API {api:?}; at least {}.{} is needed", FLOOR.0, FLOOR.1);
        return Err(Refusal::Old(Fault::new(Class::Engine, text)));
    }
    Ok(docker)
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

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_named_with_every_address() {
        let engine =
            Engine::new(Ok::<_, String>(vec!["unix:///nonexistent/a.sock".into(), "tcp://127.0.0.1:9".into()]));
        let fault = engine.docker().await.unwrap_err();
        assert_eq!(fault.class, Class::Engine);
        assert!(fault.inward.contains("a.sock") && fault.inward.contains("127.0.0.1:9"), "{}", fault.inward);
    }
}
