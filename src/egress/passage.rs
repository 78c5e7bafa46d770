//! What became of each connection, and how much all of a server's together may do. Knows no protocol and no file.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Fault;

use super::allowance::Allowance;
use super::refusal::{Kind, Refusal};

/// One connection, or the attempt at one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its own name, by which what is said of it belongs together.
    pub connection: String,
    /// The server's name.
    pub server: String,
    /// The instance that it came from.
    pub instance: String,
    /// `host:port` as it was asked for; empty where that could not be read.
    pub target: String,
    /// `allow`, or the word of a [`Kind`].
    pub decision: &'static str,
    /// Why not, or why it was ended by us, for the log.
    pub reason: Option<String>,
    /// Bytes that left.
    pub bytes_out: u64,
    /// Bytes that came.
    pub bytes_in: u64,
    /// How long it took, all in all.
    pub ms: u64,
}

/// Whoever keeps passages: the audit, or a test.
pub trait Witness: Send + Sync {
    /// A connection is allowed, and is made once this is answered; an error keeps it from being made.
    fn opens<'a>(&'a self, passage: &'a Passage) -> BoxFuture<'a, Result<(), Fault>>;
    /// A connection has ended, or was never made. Called once for each, whichever way it went.
    fn ended(&self, passage: Passage);
}

/// What a server's connections may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a day, both directions and all instances together; `None` is no limit.
    pub bytes_per_day: Option<u64>,
    /// How long a connection may take to be made, its name's addresses included.
    pub connect: Duration,
    /// How long a client may take to say where it wants to go.
    pub request: Duration,
    /// How long nothing may pass on a connection.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 64,
            bytes_per_day: None,
            connect: Duration::from_secs(15),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
        }
    }
}

impl Limits {
    /// Whether anything of it is less than in the other ones.
    pub fn are_tighter_than(self, other: Limits) -> bool {
        let bytes = |limits: Limits| limits.bytes_per_day.unwrap_or(u64::MAX);
        self.connections < other.connections
            || bytes(self) < bytes(other)
            || (self.connect < other.connect || self.request < other.request || self.idle < other.idle)
    }
}

/// The pace at which connections are taken up in the long run, and how many may come at once. Each leaves a record, refused
/// or not: what asks faster waits, so that it cannot fill a disk.
const PACE: Duration = Duration::from_millis(10);
const BURST: u32 = 500;

/// What an instance's connections have used.
pub struct Account {
    limits: Limits,
    /// When the next connection would be taken up if all had come at that pace.
    due: Mutex<Option<Instant>>,
    free: Arc<Semaphore>,
    today: Arc<Allowance>,
    connections: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    /// Why all that is open ends, where we have ended all of it.
    closed: OnceLock<&'static str>,
}

/// The counters of an account at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections now.
    pub open: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that were not.
    pub refused: u64,
    /// Connections that were made, and ended by us.
    pub cut: u64,
    /// Bytes that left.
    pub bytes_out: u64,
    /// Bytes that came.
    pub bytes_in: u64,
    /// Bytes of today, also of instances before this one.
    pub bytes_today: u64,
}

impl Account {
    /// Nothing used yet, but what other instances have used today.
    pub fn new(limits: Limits, today: Arc<Allowance>) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        let zero = || AtomicU64::new(0);
        Account {
            limits,
            due: Mutex::default(),
            free,
            today,
            connections: zero(),
            refused: zero(),
            cut: zero(),
            bytes_out: zero(),
            bytes_in: zero(),
            closed: OnceLock::new(),
        }
    }

    /// All that is open is about to be cut, for this reason.
    pub fn close(&self, why: &'static str) {
        let _ = self.closed.set(why);
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The counters.
    pub fn usage(&self) -> Usage {
        let [connections, refused, cut, bytes_out, bytes_in] =
            [&self.connections, &self.refused, &self.cut, &self.bytes_out, &self.bytes_in].map(|c| c.load(Relaxed));
        let open = self.limits.connections.saturating_sub(self.free.available_permits()) as u64;
        let bytes_today = self.today.used(Instant::now());
        Usage { open, connections, refused, cut, bytes_out, bytes_in, bytes_today }
    }

    /// Waits until a connection may be taken up.
    async fn pace(&self) {
        let wait = {
            let now = Instant::now();
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = now.checked_sub(PACE * BURST).unwrap_or(now);
            let next = due.unwrap_or(earliest).max(earliest) + PACE;
            *due = Some(next);
            next.saturating_duration_since(now)
        };
        tokio::time::sleep(wait).await;
    }

    fn enter(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let most = self.limits.connections;
        let limit = |text: String| Refusal::new(Kind::Limit, text);
        let now = Instant::now();
        if let Some(bytes) = self.limits.bytes_per_day.filter(|bytes| self.today.used(now) >= *bytes) {
            let minutes = self.today.left(now).as_secs().div_ceil(60);
            let text =
                format!("may not send and receive more than {bytes} bytes a day; the next begins in {minutes} min");
            return Err(limit(text));
        }
        self.free
            .clone()
            .try_acquire_owned()
            .map_err(|_| limit(format!("may not have more than {most} connections at a time")))
    }
}

/// A passage under way: counts, and is told of when it is dropped, whatever ends it.
pub struct Open {
    passage: Passage,
    began: Instant,
    account: Arc<Account>,
    witness: Arc<dyn Witness>,
    permit: Option<OwnedSemaphorePermit>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    /// Why we have ended it, where we have.
    cut: OnceLock<String>,
}

impl Open {
    /// Somebody asks for a connection.
    pub(super) fn new(passage: Passage, account: Arc<Account>, witness: Arc<dyn Witness>) -> Self {
        let zero = || AtomicU64::new(0);
        let (bytes_out, bytes_in) = (zero(), zero());
        let cut = OnceLock::new();
        Open { passage, began: Instant::now(), account, witness, permit: None, bytes_out, bytes_in, cut }
    }

    /// Waits until it may be taken up at all.
    pub(super) async fn pace(&self) {
        self.account.pace().await;
    }

    /// Takes a place among the connections.
    pub(super) fn enter(&mut self) -> Result<(), Refusal> {
        self.permit = Some(self.account.enter()?);
        Ok(())
    }

    /// Has it recorded that the connection is about to be made.
    pub(super) async fn record(&self) -> Result<(), Refusal> {
        self.witness
            .opens(&self.passage)
            .await
            .map_err(|fault| Refusal::new(Kind::Unrecorded, fault.outward.clone()).with_inward(fault.inward))
    }

    /// The connection was made.
    pub(super) fn made(&mut self) {
        self.passage.decision = "allow";
        self.account.connections.fetch_add(1, Relaxed);
    }

    /// The connection is not made.
    pub(super) fn refused(mut self, refusal: &Refusal) {
        self.passage.decision = refusal.kind.decision();
        self.passage.reason = Some(refusal.inward.clone());
        self.account.refused.fetch_add(1, Relaxed);
    }

    /// Counts bytes that are to leave; `false` when there were too many.
    pub(super) fn out(&self, bytes: usize) -> bool {
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
        self.account.bytes_out.fetch_add(bytes as u64, Relaxed);
        self.may_go_on(bytes)
    }

    /// Counts bytes that came; `false` when there were too many.
    pub(super) fn came(&self, bytes: usize) -> bool {
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
        self.account.bytes_in.fetch_add(bytes as u64, Relaxed);
        self.may_go_on(bytes)
    }

    /// Bytes that came until now.
    pub(super) fn has_come(&self) -> u64 {
        self.bytes_in.load(Relaxed)
    }

    /// What it and the others may.
    pub(super) fn limits(&self) -> Limits {
        self.account.limits
    }

    /// It is ended, since it does not keep to a limit; the first reason counts.
    pub(super) fn cut(&self, why: String) {
        tracing::info!(server = %self.passage.server, "egress to {} cut: {why}", self.passage.target);
        let _ = self.cut.set(why);
    }

    fn may_go_on(&self, bytes: usize) -> bool {
        let used = self.account.today.count(bytes as u64, Instant::now());
        let Some(most) = self.account.limits.bytes_per_day.filter(|most| used > *most) else { return true };
        self.cut(format!("it would have been more than {most} bytes a day"));
        false
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Whoever reads the record finds the place free.
        self.permit = None;
        let mut passage = self.passage.clone();
        let closed = self.account.closed.get().filter(|_| passage.decision == "allow");
        if let Some(why) = self.cut.take().or_else(|| closed.map(|why| (*why).to_owned())) {
            self.account.cut.fetch_add(1, Relaxed);
            passage.reason = Some(format!("cut: {why}"));
        }
        passage.bytes_out = self.bytes_out.load(Relaxed);
        passage.bytes_in = self.bytes_in.load(Relaxed);
        passage.ms = u64::try_from(Duration::as_millis(&self.began.elapsed())).unwrap_or(u64::MAX);
        self.witness.ended(passage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_is_taken_up_at_once_and_what_follows_at_its_pace() {
        let account = Account::new(Limits::default(), Arc::default());
        let began = Instant::now();
        for _ in 0..BURST {
            account.pace().await;
        }
        // Not that it was quick, but that what follows is due later than it came.
        for _ in 0..50 {
            account.pace().await;
        }
        assert!(began.elapsed() >= PACE * 40, "{:?}", began.elapsed());
    }
}
