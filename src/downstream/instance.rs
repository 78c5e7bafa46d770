//! One running server with what is known of it. Knows no call.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::audit::record::Isolation;
use crate::compartment::lease::{Lease, Stage};
use crate::compartment::verify::Evidence;

use super::guarded::Way;
use super::handshake::Greeting;
use super::peer::Peer;

/// Shortest and longest pause before it is asked again whether an instance is to be stopped. A lease is a matter of the
/// clock on the wall, and a host that slept has timers that know nothing of that.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// One running server.
pub struct Instance {
    /// Our half of the conversation with it.
    pub peer: Arc<Peer>,
    /// What it said of itself.
    pub greeting: Greeting,
    /// Who it belongs to.
    pub owner: String,
    /// When it was ready.
    pub since: SystemTime,
    /// What confines it.
    pub confinement: Confinement,
    /// Its way out, if it has one.
    pub way: Option<Way>,
    /// Until when it may live at most, whoever uses it; none where it has no container.
    pub lease: Option<Lease>,
    /// Told when a call was not answered in time.
    pub doubted: Notify,
    busy: AtomicUsize,
    used: Mutex<Instant>,
}

/// What is to be done with an instance.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It is to be stopped now, for this reason.
    Stop(&'static str),
    /// That is to be asked again after this time.
    Ask(Duration),
}

/// What confines an instance, as far as it is proven.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// In one word.
    pub isolation: Isolation,
    /// The container's id.
    pub container: Option<String>,
    /// The image's id.
    pub image: Option<String>,
    /// The proof.
    pub evidence: Option<Arc<Evidence>>,
}

impl Confinement {
    /// The digest of the proof.
    pub fn digest(&self) -> Option<String> {
        self.evidence.as_ref().map(|e| e.digest.clone())
    }
}

impl Instance {
    /// A server that is ready from now on.
    pub fn new(
        peer: Arc<Peer>,
        greeting: Greeting,
        owner: String,
        confinement: Confinement,
        way: Option<Way>,
        lease: Option<Lease>,
    ) -> Self {
        Instance {
            peer,
            greeting,
            owner,
            since: SystemTime::now(),
            confinement,
            way,
            lease,
            doubted: Notify::new(),
            busy: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
        }
    }

    /// Whether calls can be sent to it.
    pub fn is_usable(&self) -> bool {
        self.peer.ended().is_none() && !self.peer.is_closing()
    }

    /// Marks it as in use until the value is dropped, so that it is not stopped as idle.
    pub fn hold(self: &Arc<Self>) -> InUse {
        self.busy.fetch_add(1, Relaxed);
        InUse(self.clone())
    }

    /// How long nobody has used it; none while somebody does.
    pub fn idle(&self) -> Option<Duration> {
        if self.busy.load(Relaxed) > 0 {
            return None;
        }
        Some(self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    /// Whether it is to be stopped, where its server is no more what it was: as soon as nobody uses it, and at that time in
    /// any case.
    pub fn last(&self, why: &'static str, until: Instant) -> Next {
        let in_time = Instant::now() < until;
        if in_time && self.idle().is_none() { Next::Ask(PAUSE.0) } else { Next::Stop(why) }
    }

    /// Whether it is to be stopped.
    pub fn next(&self, idle_stop: Duration, margin: Duration, now: SystemTime) -> Next {
        let lease = self.lease.map_or(Stage::Good(Duration::MAX), |lease| lease.stage(margin, now));
        next(self.idle(), idle_stop, lease)
    }
}

fn next(idle: Option<Duration>, idle_stop: Duration, lease: Stage) -> Next {
    let unused = idle.map_or(idle_stop, |idle| idle_stop.saturating_sub(idle));
    let left = match (lease, idle) {
        (Stage::Over, _) => return Next::Stop("its lease is over"),
        (Stage::Ending(_), Some(_)) => return Next::Stop("its lease ends soon and nobody uses it now"),
        _ if unused.is_zero() && idle.is_some() => return Next::Stop("nobody used it"),
        // Whoever uses it may be done at any moment.
        (Stage::Ending(left), None) => left.min(Duration::from_secs(1)),
        (Stage::Good(left), _) => left,
    };
    Next::Ask(unused.min(left).clamp(PAUSE.0, PAUSE.1))
}

/// An instance in use.
pub struct InUse(Arc<Instance>);

impl std::ops::Deref for InUse {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_instance_is_stopped_when_nobody_uses_it() {
        let good = Stage::Good(9999 * SECOND);
        assert_eq!(next(Some(30 * SECOND), 30 * SECOND, good), Next::Stop("nobody used it"));
        assert_eq!(next(Some(10 * SECOND), 30 * SECOND, good), Next::Ask(20 * SECOND));
        assert_eq!(next(None, 30 * SECOND, good), Next::Ask(30 * SECOND));
        assert_eq!(next(None, Duration::ZERO, good), Next::Ask(PAUSE.0), "in use");
        // Not for longer than this, however long its times are: the host may sleep meanwhile.
        assert_eq!(next(Some(SECOND), 900 * SECOND, good), Next::Ask(PAUSE.1));
        assert_eq!(next(Some(SECOND), 900 * SECOND, Stage::Good(2 * SECOND)), Next::Ask(2 * SECOND));
    }

    #[test]
    fn an_instance_does_not_outlive_its_lease() {
        let ending = Stage::Ending(600 * SECOND);
        assert_eq!(
            next(Some(Duration::ZERO), 30 * SECOND, ending),
            Next::Stop("its lease ends soon and nobody uses it now")
        );
        // A call in flight may end by itself; the lease is the last word all the same.
        assert_eq!(next(None, 30 * SECOND, ending), Next::Ask(SECOND));
        assert_eq!(next(None, 30 * SECOND, Stage::Over), Next::Stop("its lease is over"));
        assert_eq!(next(Some(SECOND), 30 * SECOND, Stage::Over), Next::Stop("its lease is over"));
    }
}
