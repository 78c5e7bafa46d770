//! What locks and configurations refer to, and the labels by which a state directory finds what it made. Pure.
//!
//! What is named here is never removed. That something is *not* named proves nothing for another state directory at the
//! same engine: so an image has to be old as well, and a volume has to say that this state directory made it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::name::ServerName;

use super::super::owner::Owner;

/// Label: which state directory made it.
pub const KEEPER: &str = "org.bulkhead.keeper";
/// Label on a volume: the configuration whose server has it, as [`scope_key`] shortens it.
pub const SCOPE: &str = "org.bulkhead.scope";

/// Everything that must stay.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The identity of the state directory that asks; empty where it has none, and then no label is its own.
    pub keeper: String,
    /// Images by identity or reference, and who refers to each.
    pub images: BTreeMap<String, String>,
    /// The configurations that this state directory knows, by [`scope_key`].
    pub scopes: BTreeMap<String, Scope>,
}

/// A configuration that a state directory knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Its file, for people.
    pub place: String,
    /// The servers that it or its lock has, as [`server_key`] writes them.
    pub servers: BTreeSet<String>,
}

impl Wanted {
    /// Notes that somebody refers to an image; who did so first is told.
    pub fn image(&mut self, reference: &str, who: &str) {
        self.images.entry(reference.to_owned()).or_insert_with(|| who.to_owned());
    }

    /// Notes what a configuration asks for.
    pub fn configuration(&mut self, config: &Config, scope: &mut Scope) {
        for server in &config.servers {
            scope.servers.insert(server.name.collision_key());
            if let crate::config::Run::Image { reference, .. } = &server.run {
                self.image(reference, &scope.place);
            }
        }
    }
}

/// The name of a server as it is compared: two with one key would have one volume.
pub fn server_key(name: &str) -> String {
    ServerName::parse(name).map_or_else(|_| name.to_ascii_lowercase(), |name| name.collision_key())
}

/// A short hash of the path of a configuration: paths are nobody's business who can see an engine's labels.
pub fn scope_key(scope: &str) -> String {
    crate::hex(&Sha256::digest(format!("scope\0{scope}"))[..12])
}

/// The labels of a volume that is meant to stay; none where it is not known who keeps it.
pub(in crate::compartment) fn labels(owner: &Owner) -> HashMap<String, String> {
    if owner.keeper.is_empty() {
        return HashMap::new();
    }
    [(KEEPER, owner.keeper.clone()), (SCOPE, scope_key(&owner.scope))].map(|(k, v)| (k.to_owned(), v)).into()
}
