//! The handle on the audit: records go in from anywhere, one thread writes them. No caller ever blocks on the disk.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::thread::{Entry, Job, Worker};
use super::chain::Head;
use super::key::Key;
use super::ledger::Ledger;
use super::place::Trouble;
use super::record::{Egress, GatewayEvent, Intent, Outcome, Record, ServerEvent};
use super::redact::Redactor;
use super::unavailable;
use crate::config::Sync;
use crate::error::Fault;

mod thread;

/// Intents that may wait for the disk; further ones are refused. Outcomes need no bound: there is one for each intent.
const MAX_WAITING: usize = 16_384;

/// The audit of one gateway. Clones are the same audit.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

struct Shared {
    gateway: String,
    jobs: Sender<Job>,
    closing: AtomicBool,
    waiting: Arc<Semaphore>,
    head: Arc<Mutex<Head>>,
    key: Key,
    redactor: Arc<Redactor>,
}

/// A record on its way: it is written whether this is awaited or dropped. On an error it is not written; all but an intent
/// are kept then, and tried again.
pub struct Written(oneshot::Receiver<Result<(), Fault>>);

impl Audit {
    /// Opens the file at `path`, and the key beside it, for the gateway of that name. What is recorded goes through
    /// `redactor`. Blocks.
    ///
    /// With [`Sync::Always`] a record counts as written once it is on disk, with [`Sync::Batch`] once the system has it.
    pub fn open(path: &Path, sync: Sync, gateway: String, redactor: Arc<Redactor>) -> Result<Audit, Fault> {
        let fault = |path: &Path, trouble: Trouble| unavailable(format!("audit file {path:?} {trouble}"));
        let durable = sync == Sync::Always;
        let mut ledger = Ledger::open(path, durable, &gateway).map_err(|trouble| fault(path, trouble))?;
        let key_path = path.with_file_name("audit.key");
        if ledger.head().seq == 0 && key_path.exists() {
            tracing::warn!("audit file {path:?} begins anew, although there was one before");
        }
        let key = ledger.locked(|_| Key::load(&key_path)).map_err(|trouble| fault(&key_path, trouble))?;
        let head = Arc::new(Mutex::new(ledger.head().clone()));
        let (jobs, queue) = mpsc::channel();
        Worker::new(path, ledger, queue, Arc::clone(&head), !durable)
            .start()
            .map_err(|e| unavailable(format!("cannot start the thread that writes the audit: {e}")))?;
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        Ok(Audit {
            shared: Arc::new(Shared { gateway, jobs, closing: AtomicBool::new(false), waiting, head, key, redactor }),
        })
    }

    /// Records what is about to be done: only once this is awaited without an error may it be done. After an error it is
    /// forgotten, and needs no outcome.
    #[must_use = "nothing may be done before the intent is written"]
    pub fn intent(&self, intent: Intent) -> Written {
        match Arc::clone(&self.shared.waiting).try_acquire_owned() {
            Ok(waiting) => self.enqueue(Record::Intent(intent), false, Some(waiting)),
            Err(_) => Written::refused(unavailable("too many calls wait for the audit to be written")),
        }
    }

    /// Records that a connection is about to be made, as an intent does for a call.
    #[must_use = "nothing may be connected to before this is written"]
    pub fn opens(&self, passage: Egress) -> Written {
        match Arc::clone(&self.shared.waiting).try_acquire_owned() {
            Ok(waiting) => self.enqueue(Record::Egress(passage), false, Some(waiting)),
            Err(_) => Written::refused(unavailable("too many records wait for the audit to be written")),
        }
    }

    /// Records a connection that has ended.
    pub fn ended(&self, passage: Egress) -> Written {
        self.enqueue(Record::Egress(passage), true, None)
    }

    /// Records a connection that was not made. While the audit cannot be written this is forgotten: a server may ask for
    /// as many as it likes, and they must not take the place of records of what has happened.
    pub fn kept_from(&self, passage: Egress) -> Written {
        self.opens(passage)
    }

    /// Records how a call ended.
    pub fn outcome(&self, outcome: Outcome) -> Written {
        self.enqueue(Record::Outcome(outcome), true, None)
    }

    /// Records what happened to a server.
    pub fn server(&self, event: ServerEvent) -> Written {
        self.enqueue(Record::Server(event), true, None)
    }

    /// Records what happened to the gateway.
    pub fn gateway(&self, event: GatewayEvent) -> Written {
        self.enqueue(Record::Gateway(event), true, None)
    }

    /// Writes all that is on its way and puts it on disk; later records are refused. The error says what is lost.
    pub async fn close(&self) -> Result<(), Fault> {
        let again = self.shared.closing.swap(true, Ordering::AcqRel);
        let (done, end) = oneshot::channel();
        let _ = self.shared.jobs.send(Job::Close(done));
        match end.await {
            Ok(written) => written,
            Err(_) if again => Ok(()),
            Err(_) => Err(unavailable("the thread that writes the audit is gone")),
        }
    }

    /// The number and hash of the last record that we wrote or saw.
    pub fn head(&self) -> (u64, String) {
        let head = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner);
        (head.seq, head.hash.clone())
    }

    /// The keyed hash of a call's arguments as they came: equal arguments show as equal, and cannot be guessed from it.
    pub fn args_hash(&self, arguments: &[u8]) -> String {
        self.shared.key.hash(arguments)
    }

    /// The order of records is the order of these calls. What is not to be kept is forgotten when it cannot be written.
    fn enqueue(&self, record: Record, keep: bool, waiting: Option<OwnedSemaphorePermit>) -> Written {
        let shared = &self.shared;
        let body = record.body(SystemTime::now(), &shared.gateway, &shared.redactor);
        let (done, written) = oneshot::channel();
        // Refused only after the end; the answer's sender is dropped with the entry then, which says so.
        let _ = shared.jobs.send(Job::Write(Entry { body, keep, done, waiting }));
        Written(written)
    }
}

impl Written {
    fn refused(fault: Fault) -> Self {
        let (done, written) = oneshot::channel();
        let _ = done.send(Err(fault));
        Written(written)
    }
}

impl Future for Written {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(closed())))
    }
}

fn closed() -> Fault {
    unavailable("the audit is closed")
}

#[cfg(test)]
mod tests;
