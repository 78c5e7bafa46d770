//! A container's end: waited for, brought about, and looked at before it is removed. Knows no MCP.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{RemoveContainerOptions, StopContainerOptions};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::compartment::seat::Seat;

use super::link::{Ending, Process};
use super::obituary::{Heard, KILLED, Obituary};

/// Deadline of each call to the engine here.
const CALL: Duration = Duration::from_secs(5);
/// Pause before an end is waited for again that the engine did not tell of.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the engine may take to tell of an end that has come.
const TELL: Duration = Duration::from_millis(500);
/// How often a removal is tried while somebody waits for it.
const TRIES: usize = 3;
/// How often it is tried after that: an engine that is away comes back, and would still have the container.
const LATER: usize = 60;
/// Longest pause between two such tries.
const PAUSE: Duration = Duration::from_secs(30);

/// The removals of this process that go on when nobody waits for them any more.
static REMOVALS: LazyLock<Removals> = LazyLock::new(Removals::default);

#[derive(Default)]
struct Removals {
    tasks: TaskTracker,
    hurry: CancellationToken,
}

/// Goes on with a removal when nobody waits for it any more.
pub fn afterwards(removal: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        REMOVALS.tasks.spawn_on(removal, &runtime);
    }
}

/// A pause in such a removal: short where this process is about to end.
pub async fn pause(longest: Duration) {
    if tokio::time::timeout(longest, REMOVALS.hurry.cancelled()).await.is_ok() {
        tokio::time::sleep(AGAIN).await;
    }
}

/// Waits, at most so long, until everything is removed that could not be removed at once. From now on it is tried
/// without long pauses: who calls this is about to end.
pub async fn cleared(within: Duration) {
    REMOVALS.hurry.cancel();
    REMOVALS.tasks.close();
    if tokio::time::timeout(within, REMOVALS.tasks.wait()).await.is_err() {
        tracing::warn!(
            "{} containers or networks could not be removed; the next gateway or `bulkhead reap` will",
            REMOVALS.tasks.len()
        );
    }
}

/// A container that is ours to end. Dropped without an end, it is killed and removed by a task of its own.
pub struct Attached {
    container: Container,
    obituary: Option<Obituary>,
    cared_for: AtomicBool,
    /// Given back when it has ended.
    _seat: Option<Arc<Seat>>,
}

/// What a look at a container shows.
enum Look {
    /// How it is.
    Shown(ContainerState),
    /// There is no such container any more.
    Gone,
    /// The engine tells nothing.
    Silent,
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
        Attached { container: Container { docker, id }, obituary, cared_for: AtomicBool::new(false), _seat: None }
    }

    /// The same, and it has these processors until it has ended.
    pub fn seated(mut self, seat: Option<Arc<Seat>>) -> Self {
        self._seat = seat;
        self
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
    async fn ending(&self, look: Look, killed: bool) -> Ending {
        let heard = match &self.obituary {
            Some(obituary) => obituary.wait(TELL).await,
            None => Heard::default(),
        };
        let silent = matches!(look, Look::Silent);
        let state = match look {
            Look::Shown(state) => state,
            Look::Gone | Look::Silent => ContainerState::default(),
        };
        // While it runs the engine shows an exit code of 0, which is none.
        let shown = state.exit_code.filter(|_| !state.running.unwrap_or(false) && state.finished_at.is_some());
        let code = heard.code.or(shown);
        let lost = code.is_none() && (silent || heard.broken_off);
        // A process of it may have run out of memory long before, and it went on.
        let oom = (heard.oom || state.oom_killed.unwrap_or(false)) && code.is_none_or(|code| code == KILLED);
        Ending { code, oom, killed, lost, cause: None }
    }

    async fn remove(&self) {
        if !self.container.remove().await {
            tracing::warn!(container = %self.container.id, "could not be removed yet; it will be tried again");
            REMOVALS.tasks.spawn(self.container.clone().remove_later());
        }
        self.cared_for.store(true, Relaxed);
    }
}

impl Look {
    fn is_running(&self) -> bool {
        matches!(self, Look::Shown(state) if state.running.unwrap_or(false))
    }
}

impl Container {
    async fn look(&self) -> Look {
        match tokio::time::timeout(CALL, self.docker.inspect_container(&self.id, None)).await {
            Ok(Ok(container)) => Look::Shown(container.state.unwrap_or_default()),
            Ok(Err(error)) if is_missing(&error) => Look::Gone,
            Ok(Err(_)) | Err(_) => Look::Silent,
        }
    }

    /// Waits for its end, but not longer than that. Whether it has ended is for a look to say: an engine that fails to
    /// wait tells nothing of the container.
    async fn wait(&self, grace: Duration) {
        let ended = async {
            loop {
                match self.docker.wait_container(&self.id, None).next().await {
                    Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => return,
                    Some(Err(error)) if is_missing(&error) => return,
                    Some(Err(_)) | None if self.look().await.is_running() => tokio::time::sleep(AGAIN).await,
                    Some(Err(_)) | None => return,
                }
            }
        };
        let _ = tokio::time::timeout(grace, ended).await;
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
        matches!(self.look().await, Look::Gone)
    }

    async fn remove_later(self) {
        for n in 0..LATER {
            pause(PAUSE.min(Duration::from_secs(1) * (n as u32 + 1))).await;
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
            container.wait(grace).await;
            let mut look = container.look().await;
            if look.is_running() {
                killed = true;
                // One second between SIGTERM and SIGKILL; the engine's init passes the first on.
                let options = StopContainerOptions { t: Some(1), ..Default::default() };
                let _ = within(container.docker.stop_container(&container.id, Some(options))).await;
                look = container.look().await;
            }
            self.remove().await;
            self.ending(look, killed).await
        }
        .boxed()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.cared_for.load(Relaxed) {
            return;
        }
        let container = self.container.clone();
        afterwards(async move {
            if !container.remove().await {
                container.remove_later().await;
            }
        });
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Option<T> {
    tokio::time::timeout(CALL, call).await.ok()?.ok()
}
