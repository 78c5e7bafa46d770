//! Volumes that are not meant to stay: marked as such when they are made, and removed when their session is over. Knows
//! no server.

use std::collections::HashMap;
use std::time::Duration;

use bollard::query_parameters::RemoveVolumeOptions;

use super::super::Engine;
use super::super::engine::{CALL, Refused};
use super::super::lease::Lease;
use super::super::spec::Compartment;

/// Label: `no` on what is not meant to stay. Nothing without it is ever removed.
pub(in crate::compartment) const KEEP: &str = "org.bulkhead.keep";
/// How often a volume is asked to go whose last container the engine is still taking apart, and the pause between.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// The labels that say whose it is and that it is not meant to stay.
pub(super) fn labels(compartment: &Compartment, term: Duration) -> HashMap<String, String> {
    let mut labels = compartment.owner.labels(Lease::from_now(term));
    labels.insert(KEEP.to_owned(), "no".to_owned());
    labels
}

impl Engine {
    /// Removes the volumes that were made for sessions: those of one owner, or of all that there are. Their instances must
    /// have ended. What cannot be removed is found by its labels once this process has ended.
    pub async fn forget_sessions(&self, of: Option<&str>) {
        let passing = self.prepared.passing.iter();
        let wanted = passing.filter(|volume| of.is_none_or(|owner| volume.value() == owner));
        let names: Vec<String> = wanted.map(|volume| volume.key().clone()).collect();
        futures_util::future::join_all(names.iter().map(|name| self.forget_volume(name))).await;
    }

    async fn forget_volume(&self, name: &str) {
        self.prepared.passing.remove(name);
        self.prepared.volumes.remove(name);
        for _ in 0..TRIES {
            match self.remove_volume(name).await {
                Some(true) => return,
                Some(false) => tokio::time::sleep(PAUSE).await,
                None => break,
            }
        }
        tracing::warn!(volume = name, "could not be removed; `bulkhead reap` will, once this gateway has ended");
    }

    /// Whether it is gone, or none where that cannot be said.
    async fn remove_volume(&self, name: &str) -> Option<bool> {
        let docker = self.docker().await.ok()?;
        let removal = docker.remove_volume(name, None::<RemoveVolumeOptions>);
        match self.ask("remove a volume", CALL, removal).await.ok()? {
            Ok(()) | Err(Refused { status: 404, .. }) => Some(true),
            Err(Refused { status: 409, .. }) => Some(false),
            Err(_) => None,
        }
    }
}
