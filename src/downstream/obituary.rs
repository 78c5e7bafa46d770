//! How a container ended, heard from the engine's events as it happens: the engine removes an ended container by itself,
//! also when the gateway is gone, and then nobody could look at it any more. Knows no MCP.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What was heard of a container's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Whether it ran out of memory.
    pub oom: bool,
    /// Its exit code, once it has ended.
    pub code: Option<i64>,
    /// Whether the engine has broken off in the middle of telling; it is asked again.
    pub broken_off: bool,
}

/// Pause before an engine is asked again that has broken off.
const PAUSE: Duration = Duration::from_millis(200);

/// The exit code of what was killed, by the kernel or by somebody.
pub(super) const KILLED: i64 = 137;
/// How long it is listened on after such an end.
const LATE: Duration = Duration::from_millis(300);

/// Listens for the end of one container until it is dropped.
pub(super) struct Obituary {
    heard: watch::Receiver<Heard>,
    task: JoinHandle<()>,
}

impl Drop for Obituary {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Obituary {
    /// Listens to what the engine says of a container, from the beginning of its memory, so that nothing is missed
    /// however late the engine begins to tell.
    pub fn listen(docker: Docker, id: String) -> Option<Self> {
        let (tell, heard) = watch::channel(Heard::default());
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let task = runtime.spawn(async move {
            let filters = [("container", vec![id]), ("event", vec!["oom".to_owned(), "die".to_owned()])];
            let filters: HashMap<String, Vec<String>> = filters.map(|(k, v)| (k.to_owned(), v)).into();
            let options = EventsOptions { since: Some("1".to_owned()), filters: Some(filters), ..Default::default() };
            while !listen(&docker, options.clone(), &tell).await {
                tell.send_modify(|heard| heard.broken_off = true);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Some(Obituary { heard, task })
    }

    /// What was heard by now.
    pub fn heard(&self) -> Heard {
        *self.heard.borrow()
    }

    /// Waits until the end was heard, or is not to be heard any more, but not longer than that.
    pub async fn wait(&self, within: Duration) -> Heard {
        let mut heard = self.heard.clone();
        let _ = tokio::time::timeout(within, heard.wait_for(|h| h.code.is_some())).await;
        self.heard()
    }
}

/// Passes on what the engine tells; whether that was all to the end.
async fn listen(docker: &Docker, options: EventsOptions, tell: &watch::Sender<Heard>) -> bool {
    let mut events = std::pin::pin!(docker.events(Some(options)));
    while let Some(Ok(event)) = events.next().await {
        match event.action.as_deref() {
            Some("oom") => tell.send_modify(|heard| heard.oom = true),
            Some("die" | "died") => {
                let attributes = event.actor.and_then(|a| a.attributes).unwrap_or_default();
                let code = attributes.get("exitCode").and_then(|code| code.parse().ok());
                // The kernel's word of memory that ran out takes a way of its own, and may come later than the end.
                if code == Some(KILLED) && !tell.borrow().oom {
                    let next = tokio::time::timeout(LATE, events.next()).await;
                    let oom = matches!(next, Ok(Some(Ok(event))) if event.action.as_deref() == Some("oom"));
                    tell.send_modify(|heard| heard.oom = oom);
                }
                tell.send_modify(|heard| heard.code = code);
                return true;
            }
            _ => {}
        }
    }
    false
}
