//! A server and the guard or the fence of its network as one: either ends with the other. What a guard carries goes to
//! where it is decided on, and nothing of it before the server is proven. Knows no MCP and no rule.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::compartment::{Fence, Guard};
use crate::egress::Egress;
use crate::egress::passage::Limits;
use crate::egress::tunnel::{Tunnel, over};
use crate::error::Fault;

use super::link::{Ending, Link, Output, Process};
use super::tail::Tail;

/// How long a guard may take to end by itself once its input is closed.
const GRACE: Duration = Duration::from_secs(1);

/// What an instance has for a way out.
#[derive(Clone)]
pub enum Way {
    /// What the gateway connects to on its behalf.
    Guarded {
        /// The guard, with its own proof.
        guard: Guard,
        /// What it may, and what it has used.
        egress: Arc<Egress>,
        /// What closes it.
        shut: Arc<Shut>,
    },
    /// What its network reaches.
    Fenced(Fence),
}

/// How a way out is closed while its server goes on.
#[derive(Default)]
pub struct Shut {
    asked: CancellationToken,
    done: CancellationToken,
}

/// How often it is looked whether the last connection has ended.
const LOOK: Duration = Duration::from_millis(5);

impl Way {
    /// Closes it for good, if it can be without an end of its server: every connection under way is cut, and no other is
    /// made. The server goes on for as long as somebody uses it. Returns when nothing is carried any more, and whether that
    /// is so.
    pub async fn shut(&self) -> bool {
        let Way::Guarded { egress, shut, .. } = self else { return false };
        egress.close("the configuration was changed");
        shut.asked.cancel();
        shut.done.cancelled().await;
        // Each is a task of its own, which ends at its next step.
        while egress.usage().open > 0 {
            tokio::time::sleep(LOOK).await;
        }
        true
    }
}

/// Serves what comes from a guard until that ends.
type Serve = Box<dyn FnOnce(Arc<Egress>) -> BoxFuture<'static, Result<(), Fault>> + Send>;

/// A guard that listens, and is not listened to yet.
pub struct Met {
    tunnel: Serve,
    life: Life,
}

/// How a guard is ended, and its last words.
struct Life {
    process: Box<dyn Process>,
    tail: Arc<Mutex<Tail>>,
}

impl Life {
    async fn end(self, grace: Duration) -> String {
        let ending = self.process.end(grace).await;
        match self.tail.lock().unwrap_or_else(PoisonError::into_inner).text() {
            Some(words) => format!("{ending}; last lines of its stderr: {words}"),
            None => ending.to_string(),
        }
    }
}

/// Waits until a guard has said that it listens. One that does not is ended.
pub async fn meet(guard: Link, limits: Limits, until: Instant) -> Result<Met, Fault> {
    let Link { input, output, process } = guard;
    let tail: Arc<Mutex<Tail>> = Arc::default();
    let heard = tail.clone();
    let bytes = output.filter_map(move |piece| {
        ready(match piece {
            Ok(Output::Stdout(bytes)) => Some(Ok(bytes)),
            Ok(Output::Stderr(words)) => {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(&words);
                None
            }
            Err(error) => Some(Err(error)),
        })
    });
    let life = Life { process, tail };
    match Tunnel::meet(over(bytes.boxed(), input), limits, until.saturating_duration_since(Instant::now())).await {
        Ok(tunnel) => Ok(Met { tunnel: Box::new(|egress| tunnel.serve(egress).boxed()), life }),
        Err(fault) => {
            let ending = life.end(Duration::ZERO).await;
            let inward = format!("{}: {ending}", fault.inward);
            Err(fault.with_inward(inward))
        }
    }
}

impl Met {
    /// Ends it, since there is no server for it after all.
    pub async fn end(self) {
        drop(self.tunnel);
        self.life.end(GRACE).await;
    }

    /// Listens to it from now on, for a server that is proven to have no other way.
    pub fn serve(self, guard: Guard, egress: Arc<Egress>, server: Link) -> (Link, Way) {
        let Met { tunnel, life } = self;
        let shut: Arc<Shut> = Arc::default();
        let way = Way::Guarded { guard, egress: egress.clone(), shut: shut.clone() };
        // However this ends, and if it never begins: whoever waits for that finds it done.
        let done = shut.done.clone().drop_guard();
        let served = async move {
            let _done = done;
            tokio::select! {
                served = tunnel(egress) => {
                    if let Err(fault) = served {
                        tracing::debug!("{fault}");
                    }
                    return;
                }
                () = shut.asked.cancelled() => {}
            }
            // The tunnel is gone with all that was under way in it, and the guard ends by that; its server need not.
            shut.done.cancel();
            std::future::pending().await
        };
        (as_one("guard", served, life, server), way)
    }
}

/// A fence that holds a network, for as long as its input is open.
pub struct Held {
    input: Pin<Box<dyn AsyncWrite + Send>>,
    output: Pin<Box<dyn Stream<Item = io::Result<Output>> + Send>>,
    life: Life,
}

impl Held {
    /// Takes over what was started.
    pub fn new(fence: Link) -> Self {
        let Link { input, output, process } = fence;
        Held { input, output, life: Life { process, tail: Arc::default() } }
    }

    /// Ends it, since there is no server for it after all.
    pub async fn end(self) {
        drop(self.input);
        self.life.end(GRACE).await;
    }

    /// Stays with it from now on, for a server that is proven to be within it.
    pub fn stay(self, server: Link) -> Link {
        let Held { input, mut output, life } = self;
        let tail = life.tail.clone();
        let stood = async move {
            let _held = input;
            while let Some(Ok(piece)) = output.next().await {
                if let Output::Stderr(words) = piece {
                    tail.lock().unwrap_or_else(PoisonError::into_inner).push(&words);
                }
            }
        };
        as_one("fence", stood, life, server)
    }
}

/// A server whose network is another container's, as one with that: `keeping` ends when the other one has.
fn as_one(what: &'static str, keeping: impl Future<Output = ()> + Send + 'static, life: Life, server: Link) -> Link {
    let (stop, fallen) = (CancellationToken::new(), CancellationToken::new());
    let (stopped, falls) = (stop.clone(), fallen.clone());
    // Also where nobody ends this: it goes on by itself until nothing is left of the other one.
    let keeper = tokio::spawn(async move {
        let ours = tokio::select! {
            () = keeping => false,
            () = stopped.cancelled() => true,
        };
        if !ours {
            falls.cancel();
        }
        life.end(GRACE).await
    });
    // A server without the keeper of its network would only hang in what it asks for.
    let output = server.output.take_until(fallen.clone().cancelled_owned()).boxed();
    let keeper = Mutex::new(Some(keeper));
    let process = Kept { what, server: server.process, fallen, _dropped: stop.clone().drop_guard(), stop, keeper };
    Link { input: server.input, output, process: Box::new(process) }
}

/// A server whose end is that of its network's keeper, too.
struct Kept {
    what: &'static str,
    server: Box<dyn Process>,
    fallen: CancellationToken,
    stop: CancellationToken,
    /// Whoever drops this without an end stops the keeper.
    _dropped: DropGuard,
    keeper: Mutex<Option<JoinHandle<String>>>,
}

impl Process for Kept {
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending> {
        async move {
            let fallen = self.fallen.is_cancelled();
            let ending = self.server.end(if fallen { Duration::ZERO } else { grace }).await;
            self.stop.cancel();
            let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
            let told = match keeper {
                Some(keeper) => keeper.await.ok(),
                None => None,
            };
            let (cause, what) = (told.filter(|_| fallen && !ending.lost), self.what);
            Ending { cause: cause.map(|how| format!("the {what} of its network has ended: {how}")), ..ending }
        }
        .boxed()
    }
}
