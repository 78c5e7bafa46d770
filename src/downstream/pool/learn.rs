//! Learning what servers offer before anybody calls them, and again when they say it has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use crate::error::Class;
use crate::name::Principal;
use crate::route::Listing;

use super::super::handshake;
use super::super::instance::Instance;
use super::{Entry, Pool, lock};

/// After so many failures in a row a server is only tried again when somebody calls it.
const PARKED: u32 = 6;
/// An engine that does not answer is asked again after that time, for as long as we run.
const ENGINE_PAUSE: Duration = Duration::from_secs(15);

impl Pool {
    /// Starts, in the background and on behalf of a principal, the servers selected whose tools are not known yet. Whom
    /// the principal may know of is not decided here.
    pub fn learn_some(self: &Arc<Self>, principal: &Principal, session: &str, selected: impl Fn(&Entry) -> bool) {
        for entry in self.roster().entries.iter().filter(|e| selected(e)) {
            if !entry.is_listed() && entry.server.disabled.is_none() && !entry.stock.learning.swap(true, AcqRel) {
                let (pool, entry) = (self.clone(), entry.clone());
                let (principal, session) = (principal.clone(), session.to_owned());
                tokio::spawn(async move {
                    pool.learn(&entry, &principal, &session).await;
                    entry.stock.learning.store(false, Release);
                    pool.changed();
                });
            }
        }
    }

    /// Starts, in the background, an instance for a principal of the servers selected.
    pub fn start_some(self: &Arc<Self>, principal: &Principal, session: &str, selected: impl Fn(&Entry) -> bool) {
        for entry in self.roster().entries.iter().filter(|e| selected(e) && e.server.disabled.is_none()) {
            let (pool, entry) = (self.clone(), entry.clone());
            let (principal, session) = (principal.clone(), session.to_owned());
            // What goes wrong is logged by the start itself and shown in the status.
            tokio::spawn(async move { drop(pool.instance(&entry, &principal, &session).await) });
        }
    }

    /// Whether a first answer of this server is still to come.
    pub fn is_learning(&self, entry: &Entry) -> bool {
        !entry.is_listed() && entry.stock.learning.load(Acquire) && lock(&entry.stock.trouble).last().is_none()
    }

    /// Waits, at most so long, until every server selected has answered once or failed once.
    pub async fn learned(&self, within: Duration, selected: impl Fn(&Entry) -> bool) {
        let mut changes = self.changes();
        let settled = async {
            while self.roster().entries.iter().any(|e| selected(e) && self.is_learning(e)) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(within, settled).await;
    }

    async fn learn(self: &Arc<Self>, entry: &Arc<Entry>, principal: &Principal, session: &str) {
        while !entry.is_listed() && !self.closing.is_cancelled() && entry.stock.leaving().is_none() {
            let Err(fault) = self.instance(entry, principal, session).await else { return };
            let pause = {
                let trouble = lock(&entry.stock.trouble);
                match fault.class {
                    Class::Engine => ENGINE_PAUSE,
                    // A refusal or a missing lock is mended by the operator, not by trying again.
                    Class::Isolation | Class::Unapproved => return,
                    _ if trouble.failures() >= PARKED || entry.held.is_some() => return,
                    _ => trouble.barred(Instant::now()).map_or(Duration::from_secs(1), |(_, left)| left),
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause + Duration::from_millis(10)) => {}
                () = self.closing.cancelled() => return,
                () = entry.stock.left() => return,
            }
        }
    }

    /// Lists anew what it offers after the server said that it has changed.
    pub(super) async fn learn_again(&self, entry: &Arc<Entry>, instance: &Arc<Instance>) {
        // Servers tell each change by itself; one list serves all that come within this time.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let deadline = Instant::now() + entry.server.start_timeout;
        match handshake::list(&instance.peer, &instance.greeting, deadline).await {
            Ok(told) => self.offer(entry, Listing::of(told), None),
            // It was ended meanwhile, by us.
            Err(_) if instance.peer.is_closing() => {}
            Err(fault) => tracing::warn!(server = %entry.server.name, "what it offers now cannot be listed: {fault}"),
        }
    }
}
