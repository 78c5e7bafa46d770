//! A container's end: waited for, brought about, and looked at before it is removed. Knows no MCP.

use std::future::Future;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{RemoveContainerOptions, StopContainerOptions};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};

use super::link::{Ending, Process};

/// Deadline of each call to the engine here.
const CALL: Duration = Duration::from_secs(5);
/// How often a removal is tried.
const TRIES: usize = 3;

/// A container we are attached to.
pub struct Attached {
    docker: Docker,
    id: String,
}

impl Attached {
    /// The container of that id.
    pub fn new(docker: Docker, id: String) -> Self {
        Attached { docker, id }
    }

    async fn state(&self) -> Option<ContainerState> {
        within(self.docker.inspect_container(&self.id, None)).await?.state
    }

    async fn ended_within(&self, grace: Duration) -> bool {
        let wait = async { self.docker.wait_container(&self.id, None).next().await };
        tokio::time::timeout(grace, wait).await.is_ok()
    }

    /// Removes the container and looks whether it is gone. It is removed by force: it may be in any state.
    async fn remove(&self) {
        for _ in 0..TRIES {
            let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
            let _ = within(self.docker.remove_container(&self.id, Some(options))).await;
            match tokio::time::timeout(CALL, self.docker.inspect_container(&self.id, None)).await {
                Ok(Err(Error::DockerResponseServerError { status_code: 404, .. })) => return,
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        tracing::warn!(container = %self.id, "could not be removed; `bulkhead reap` will try again");
    }
}

impl Process for Attached {
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending> {
        async move {
            let mut killed = false;
            let by_itself = self.ended_within(grace).await;
            let running = |state: &Option<ContainerState>| state.as_ref().and_then(|s| s.running).unwrap_or(false);
            let mut state = self.state().await;
            if !by_itself && running(&state) {
                killed = true;
                // One second between SIGTERM and SIGKILL; the engine's init passes the first on.
                let options = StopContainerOptions { t: Some(1), ..Default::default() };
                let _ = within(self.docker.stop_container(&self.id, Some(options))).await;
                state = self.state().await;
            }
            self.remove().await;
            let state = state.unwrap_or_default();
            Ending { code: state.exit_code, oom: state.oom_killed.unwrap_or(false), killed }
        }
        .boxed()
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Option<T> {
    tokio::time::timeout(CALL, call).await.ok()?.ok()
}
