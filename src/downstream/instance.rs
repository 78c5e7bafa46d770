//! One running server with what is known of it. Knows no call.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::audit::record::Isolation;
use crate::compartment::verify::Evidence;

use super::handshake::Greeting;
use super::peer::Peer;

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
    busy: AtomicUsize,
    used: Mutex<Instant>,
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
    pub fn new(peer: Arc<Peer>, greeting: Greeting, owner: String, confinement: Confinement) -> Self {
        Instance {
            peer,
            greeting,
            owner,
            since: SystemTime::now(),
            confinement,
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

    /// How long nobody has used it.
    pub fn idle(&self) -> Duration {
        if self.busy.load(Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
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
