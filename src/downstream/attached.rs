//! A container's end: waited for, brought about, and looked at before it is removed. Knows no MCP.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{RemoveContainerOptions, StopContainerOptions};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};

use super::link::{Ending, Process};
use super::obituary::{Heard, Obituary};

/// Deadline of each call to the engine here.
const CALL: Duration = Duration::from_secs(5);
/// How long the engine may take to tell of an end that has come.
const TELL: Duration = Duration::from_millis(500);
/// How often a removal is tried while somebody waits for it.
const TRIES: usize = 3;
/// How often it is tried after that: an engine that is away comes back, and would still have the container.
const LATER: usize = 60;
/// Longest pause between two such tries.
const PAUSE: Duration = Duration::from_secs(30);

/// A container that is ours to end. Dropped without an end, it is killed and removed by a task of its own.
pub struct Attached {
    container: Container,
    obituary: Option<Obituary>,
    cared_for: AtomicBool,
}

/// A container at its engine. Owns nothing: dropping it does nothing.
#[derive(Clone)]
struct Container {
    docker: Docker,
    id: String,
}

impl Attached {
    /// The container of that id. Its end is listened for from now on, so it must not have been started yet.
    pub fn new(docker: Docker, id: String) -> Self {
        let obituary = Obituary::listen(docker.clone(), id.clone());
        Attached { container: Container { docker, id }, obituary, cared_for: AtomicBool::new(false) }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.container.id
    }

    /// Kills and removes it at once.
    pub async fn discard(&self) {
        self.remove().await;
    }

    /// How it ended: as the engine told it when it happened, else as the engine shows it where it still does.
    async fn ending(&self, state: Option<ContainerState>, killed: bool) -> Ending {
        let heard = match &self.obituary {
            Some(obituary) => obituary.wait(TELL).await,
            None => Heard::default(),
        };
        let state = state.unwrap_or_default();
        // While it runs the engine shows an exit code of 0, which is none.
        let shown = state.exit_code.filter(|_| !state.running.unwrap_or(false) && state.finished_at.is_some());
        Ending { code: heard.code.or(shown), oom: heard.oom || state.oom_killed.unwrap_or(false), killed }
    }

    async fn remove(&self) {
        if !self.container.remove().await {
            tracing::warn!(container = %self.container.id, "could not be removed yet; it will be tried again");
            tokio::spawn(self.container.clone().remove_later());
        }
        self.cared_for.store(true, Relaxed);
    }
}

impl Container {
    async fn state(&self) -> Option<ContainerState> {
        within(self.docker.inspect_container(&self.id, None)).await?.state
    }

    async fn ended_within(&self, grace: Duration) -> bool {
        let wait = async { self.docker.wait_container(&self.id, None).next().await };
        tokio::time::timeout(grace, wait).await.is_ok()
    }

    /// Removes it, by force since it may be in any state, and looks whether it is gone.
    async fn remove(&self) -> bool {
        for _ in 0..TRIES {
            if self.remove_once().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        false
    }

    async fn remove_once(&self) -> bool {
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        let _ = within(self.docker.remove_container(&self.id, Some(options))).await;
        let look = tokio::time::timeout(CALL, self.docker.inspect_container(&self.id, None)).await;
        matches!(look, Ok(Err(Error::DockerResponseServerError { status_code: 404, .. })))
    }

    async fn remove_later(self) {
        for n in 0..LATER {
            tokio::time::sleep(PAUSE.min(Duration::from_secs(1) * (n as u32 + 1))).await;
            if self.remove_once().await {
                return;
            }
        }
        tracing::warn!(container = %self.id, "could not be removed; `bulkhead reap` will, once this gateway has ended");
    }
}

impl Process for Attached {
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending> {
        async move {
            let container = &self.container;
            let mut killed = false;
            let by_itself = container.ended_within(grace).await;
            let mut state = container.state().await;
            if !by_itself && state.as_ref().and_then(|s| s.running).unwrap_or(false) {
                killed = true;
                // One second between SIGTERM and SIGKILL; the engine's init passes the first on.
                let options = StopContainerOptions { t: Some(1), ..Default::default() };
                let _ = within(container.docker.stop_container(&container.id, Some(options))).await;
                state = container.state().await;
            }
            self.remove().await;
            self.ending(state, killed).await
        }
        .boxed()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.cared_for.load(Relaxed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let container = self.container.clone();
        runtime.spawn(async move {
            if !container.remove().await {
                container.remove_later().await;
            }
        });
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Option<T> {
    tokio::time::timeout(CALL, call).await.ok()?.ok()
}
