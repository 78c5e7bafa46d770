//! The one thread that writes: whatever is in the queue becomes one write and one sync for all.

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::audit::chain::Head;
use crate::audit::ledger::Ledger;
use crate::audit::place::Trouble;
use crate::audit::unavailable;
use crate::error::Fault;

/// Records in one write.
const MAX_BATCH: usize = 1024;

/// Records that are kept for better times while the file cannot be written.
const MAX_KEPT: usize = 4_096;

/// How soon a file that could not be written is tried again, even if nothing new comes.
const RETRY: Duration = Duration::from_secs(1);

/// How soon what was only written is on disk.
const SYNC_WITHIN: Duration = Duration::from_millis(200);

pub(super) type Answer = oneshot::Sender<Result<(), Fault>>;

/// What the thread is asked to do.
pub(super) enum Job {
    /// Write a record.
    Write(Entry),
    /// Write what there is, and end.
    Close(Answer),
}

/// A record in the queue.
pub(super) struct Entry {
    pub body: String,
    /// It tells of something that has happened, so it is kept until it can be written. What is only intended is not.
    pub keep: bool,
    pub done: Answer,
    /// The place in the queue that it takes up.
    pub waiting: Option<OwnedSemaphorePermit>,
}

/// The state of the thread.
pub(super) struct Worker {
    path: PathBuf,
    ledger: Ledger,
    queue: Receiver<Job>,
    head: Arc<Mutex<Head>>,
    /// Sync after a while rather than with every batch.
    lazy: bool,
    /// Since when something is written that is not on disk.
    dirty: Option<Instant>,
    kept: Vec<String>,
    lost: usize,
    /// What is wrong, while something is.
    ailing: Option<Fault>,
}

impl Worker {
    pub(super) fn new(path: &Path, ledger: Ledger, queue: Receiver<Job>, head: Arc<Mutex<Head>>, lazy: bool) -> Self {
        let (path, kept) = (path.to_owned(), Vec::new());
        Worker { path, ledger, queue, head, lazy, dirty: None, kept, lost: 0, ailing: None }
    }

    pub(super) fn start(self) -> io::Result<()> {
        std::thread::Builder::new().name("audit".into()).spawn(move || self.run()).map(drop)
    }

    /// Until it is closed, or until nobody is left who could ask for anything.
    fn run(mut self) {
        loop {
            let (batch, end) = match self.next() {
                Ok(job) => self.drain(job),
                Err(RecvTimeoutError::Timeout) => (Vec::new(), None),
                Err(RecvTimeoutError::Disconnected) => return drop(self.finish()),
            };
            if !batch.is_empty() || !self.kept.is_empty() {
                self.commit(batch);
            }
            if let Some(done) = end {
                let _ = done.send(self.finish());
                return;
            }
            self.sync_when_due();
        }
    }

    /// The next job, or the time to try again or to sync.
    fn next(&self) -> Result<Job, RecvTimeoutError> {
        let retry = (!self.kept.is_empty()).then_some(RETRY);
        let sync = self.dirty.map(|since| SYNC_WITHIN.saturating_sub(since.elapsed()));
        match retry.into_iter().chain(sync).min() {
            Some(pause) => self.queue.recv_timeout(pause),
            None => self.queue.recv().map_err(RecvTimeoutError::from),
        }
    }

    /// The records that are in the queue by now, from `job` up to an end.
    fn drain(&self, job: Job) -> (Vec<Entry>, Option<Answer>) {
        let mut batch = Vec::new();
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                Job::Write(entry) => batch.push(entry),
                Job::Close(done) => return (batch, Some(done)),
            }
            next = if batch.len() < MAX_BATCH { self.queue.try_recv().ok() } else { None };
        }
        (batch, None)
    }

    /// Writes what was kept and what is new, and answers for the new.
    fn commit(&mut self, batch: Vec<Entry>) {
        let mut bodies = mem::take(&mut self.kept);
        let mut keep = vec![true; bodies.len()];
        let mut answers = Vec::with_capacity(batch.len());
        for entry in batch {
            bodies.push(entry.body);
            keep.push(entry.keep);
            answers.push((entry.done, entry.waiting));
        }
        let result = self.write(&bodies);
        if result.is_err() {
            self.keep(bodies.into_iter().zip(keep).filter_map(|(body, keep)| keep.then_some(body)));
        }
        for (done, _) in answers {
            // Whoever asked may have gone.
            let _ = done.send(result.clone());
        }
    }

    fn write(&mut self, bodies: &[String]) -> Result<(), Fault> {
        let result = self.ledger.append(bodies);
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = self.ledger.head().clone();
        if result.is_ok() && self.lazy {
            self.dirty.get_or_insert_with(Instant::now);
        }
        self.judge(result)
    }

    fn keep(&mut self, bodies: impl Iterator<Item = String>) {
        self.kept = bodies.collect();
        let over = self.kept.len().saturating_sub(MAX_KEPT);
        self.kept.truncate(MAX_KEPT);
        self.lost += over;
    }

    fn sync_when_due(&mut self) {
        if self.dirty.is_some_and(|since| since.elapsed() >= SYNC_WITHIN) {
            let _ = self.sync();
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.dirty = None;
        // That a sync works does not mean that writing does; only the next write can end what is wrong.
        self.ledger.sync().or_else(|trouble| self.judge(Err(trouble)))
    }

    /// Everything written and on disk, or what is lost.
    fn finish(&mut self) -> Result<(), Fault> {
        let kept = mem::take(&mut self.kept);
        let written = self.write(&kept);
        let synced = self.sync();
        let lost = self.lost + if written.is_err() { kept.len() } else { 0 };
        written.and(synced).map_err(|fault| {
            let inward = format!("{}; {lost} records are lost", fault.inward);
            fault.with_inward(inward)
        })
    }

    /// Turns trouble into a fault, and logs when it begins, changes and ends.
    fn judge(&mut self, result: Result<(), Trouble>) -> Result<(), Fault> {
        let fault = result.err().map(|trouble| unavailable(format!("audit file {:?} {trouble}", self.path)));
        if fault != self.ailing {
            match &fault {
                Some(fault) => tracing::error!("{fault}; calls are refused until it can be written"),
                None => tracing::warn!(lost = self.lost, "audit file {:?} can be written again", self.path),
            }
            self.ailing.clone_from(&fault);
        }
        fault.map_or(Ok(()), Err)
    }
}
