//! Our client half towards one running server: requests with their answers, progress, and what became of the server.
//! Knows no tool, no role, no engine: only a [`Link`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::audit::Redactor;
use crate::error::{Class, Fault};
use crate::name::ServerName;
use crate::protocol::Era;
use crate::wire::{Id, reply};

use super::link::{Ending, Link};
use super::tail::Tail;

mod reader;
mod run;

/// How many lines may wait for a server that does not read.
const QUEUE: usize = 256;
/// How many progress notices of a call may wait to be passed on.
const NOTICES: usize = 256;

/// What came back for a request.
#[derive(Debug)]
pub enum Answer {
    /// Its result, as JSON.
    Result(String),
    /// Its own error, as JSON.
    Error(String),
    /// A message over the limit; its length in bytes.
    TooLarge(usize),
    /// Something under its id that is no answer.
    Malformed(&'static str),
}

/// What a running server is held to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its largest message, bytes.
    pub cap: usize,
    /// How long it may take to end by itself once its input is closed.
    pub grace: Duration,
}

/// A request that was sent.
pub struct Asked {
    /// Our id for it.
    pub id: u64,
    /// Resolves with the answer; fails where the server is gone.
    pub answer: oneshot::Receiver<Answer>,
    /// Progress notices in their order, as the `params` that came.
    pub progress: mpsc::Receiver<String>,
}

/// Things a server wrote that were not passed on, counted for status.
#[derive(Debug, Default)]
pub struct Counters {
    /// Lines on standard output that are no messages.
    pub noise: AtomicU64,
    /// Messages nobody waits for.
    pub stray: AtomicU64,
    /// Messages with bytes that had to be replaced.
    pub mended: AtomicU64,
}

/// One running server.
pub struct Peer {
    name: ServerName,
    next: AtomicU64,
    out: mpsc::Sender<String>,
    waiting: DashMap<u64, Waiting>,
    era: OnceLock<Era>,
    tail: Mutex<Tail>,
    closing: CancellationToken,
    end: watch::Sender<Option<Ending>>,
    redactor: Arc<Redactor>,
    /// Counted by the reader.
    pub counters: Counters,
    /// Told when the server says that its tools have changed.
    pub changed: tokio::sync::Notify,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    progress: mpsc::Sender<String>,
    /// Whoever waits has stopped taking notices: until it takes one again, none is waited with.
    stuck: Arc<AtomicBool>,
}

impl Peer {
    /// Takes over a running server. What is shown of its own words goes through `redactor`.
    pub fn new(name: ServerName, link: Link, limits: Limits, redactor: Arc<Redactor>) -> Arc<Self> {
        let (out, lines) = mpsc::channel(QUEUE);
        let peer = Arc::new(Peer {
            name,
            next: AtomicU64::new(1),
            out,
            waiting: DashMap::new(),
            era: OnceLock::new(),
            tail: Mutex::default(),
            closing: CancellationToken::new(),
            end: watch::Sender::new(None),
            redactor,
            counters: Counters::default(),
            changed: tokio::sync::Notify::new(),
        });
        tokio::spawn(run::run(peer.clone(), link, lines, limits));
        peer
    }

    /// The era the server was found to speak; the handshake era until that is known.
    pub fn era(&self) -> Era {
        self.era.get().copied().unwrap_or(Era::Handshake)
    }

    /// Settles the era, once.
    pub fn settle_era(&self, era: Era) {
        let _ = self.era.set(era);
    }

    /// Sends a request whose parameters are made for its id (the progress token is the id).
    pub async fn ask(&self, method: &str, params: impl FnOnce(u64) -> Option<String>) -> Result<Asked, Fault> {
        let id = self.next.fetch_add(1, Relaxed);
        let (answer, answered) = oneshot::channel();
        let (progress, noticed) = mpsc::channel(NOTICES);
        let line = reply::request(&Id::from(id), method, params(id).as_deref());
        // Room first: whoever gives up while there is none leaves nothing behind.
        let Ok(room) = self.out.reserve().await else { return Err(self.fault().await) };
        self.waiting.insert(id, Waiting { answer, progress, stuck: Arc::default() });
        room.send(line);
        // The end may have come before the insertion, and then nobody would ever take it out again.
        if self.ended().is_some() {
            self.waiting.remove(&id);
            return Err(self.fault().await);
        }
        Ok(Asked { id, answer: answered, progress: noticed })
    }

    /// Sends a request and waits for its answer until the deadline.
    pub async fn ask_within(&self, method: &str, params: Option<String>, within: Duration) -> Result<Answer, Fault> {
        let wait = async {
            let asked = self.ask(method, |_| params).await?;
            match asked.answer.await {
                Ok(answer) => Ok(answer),
                Err(_) => Err(self.fault().await),
            }
        };
        match tokio::time::timeout(within, wait).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::new(
                Class::Timeout,
                self.with_tail(&format!("server {} gave no answer to {method} within {within:?}", self.name)),
            )),
        }
    }

    /// Sends a notification; a server that does not read loses it rather than hold us up.
    pub fn notify(&self, method: &str, params: Option<&str>) {
        let _ = self.out.try_send(reply::notification(method, params));
    }

    /// Withdraws a request: nobody waits for its answer any more, and the server is told.
    pub fn withdraw(&self, id: u64, reason: &str) {
        if self.waiting.remove(&id).is_some() {
            let params = serde_json::json!({ "requestId": id, "reason": reason }).to_string();
            self.notify("notifications/cancelled", Some(&params));
        }
    }

    /// Ends the server: EOF, grace, stop, kill. Returns when nothing of it is left.
    pub async fn close(&self) -> Ending {
        self.closing.cancel();
        self.gone().await
    }

    /// Waits until the server has ended and nothing of it is left.
    pub async fn gone(&self) -> Ending {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(ending) => ending.clone().unwrap_or_default(),
            Err(_) => Ending::default(),
        }
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ending> {
        self.end.borrow().clone()
    }

    /// Whether it was ended by us.
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Why nothing can be asked of it: how it ended, and its last words.
    pub async fn fault(&self) -> Fault {
        let ending = self.gone().await;
        let class = if self.is_closing() { Class::Unavailable } else { Class::Crashed };
        Fault::new(class, self.with_tail(&format!("server {} ended: {ending}", self.name)))
    }

    /// A text with the last lines of the server's standard error.
    pub fn with_tail(&self, text: &str) -> String {
        match self.last_words() {
            Some(words) => format!("{text}; last lines of its stderr: {words}"),
            None => text.to_owned(),
        }
    }

    /// The last lines of the server's standard error, made safe to show.
    pub fn last_words(&self) -> Option<String> {
        let words = self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()?;
        Some(self.redactor.redact(&words))
    }
}
