//! What is in force at one moment, taken as a whole: no call is decided by one half of a configuration and one half of the
//! next. Decides nothing itself.

use std::sync::{Arc, PoisonError};

use crate::config::Server;
use crate::downstream::pool::{Entry, Roster};
use crate::gate;
use crate::name::Principal;
use crate::route::{Catalog, catalog};

use super::{Caller, Gateway};

/// The servers by one configuration, with all their tools as far as they are known.
pub struct Snapshot {
    /// The servers.
    pub roster: Arc<Roster>,
    /// Their tools.
    pub catalog: Catalog,
    /// How often what is offered had changed by then.
    epoch: u64,
}

impl Snapshot {
    pub(super) fn of(roster: Arc<Roster>, epoch: u64) -> Arc<Self> {
        let all = roster.entries.iter().map(|e| (e.server.as_ref(), e.listing()));
        let catalog = Catalog::build(roster.config.gateway.names, all);
        for name in &catalog.contested {
            tracing::warn!("several tools claim the name {name:?}, so none of them is served");
        }
        Arc::new(Snapshot { roster, catalog, epoch })
    }

    /// Whom a caller is, in the role that it has now.
    pub fn principal(&self, caller: &Caller) -> Principal {
        // Every face there is has the principal behind the pipe, by whom the command was given.
        Principal { id: caller.id.clone(), role: self.roster.config.stdio.role }
    }

    /// The tools that a caller sees.
    pub fn visible(&self, caller: &Caller) -> Vec<&catalog::Entry> {
        self.catalog.visible(&self.principal(caller), |place| self.server(place))
    }

    /// Whether the gate lets a caller know of a server.
    pub fn may_know(&self, caller: &Caller, entry: &Entry) -> bool {
        gate::may_know(&self.principal(caller), &entry.server).allow
    }

    fn server(&self, place: usize) -> &Server {
        &self.roster.entries[place].server
    }
}

impl Gateway {
    /// What is in force now.
    pub fn now(&self) -> Arc<Snapshot> {
        let (roster, epoch) = (self.pool.roster(), *self.pool.changes().borrow());
        {
            let cached = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
            if cached.epoch == epoch && Arc::ptr_eq(&cached.roster, &roster) {
                return cached.clone();
            }
        }
        let snapshot = Snapshot::of(roster, epoch);
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = snapshot.clone();
        snapshot
    }

    /// Whether that is the configuration in force still.
    pub(super) fn is_in_force(&self, snapshot: &Snapshot) -> bool {
        self.pool.is_in_force(&snapshot.roster)
    }
}
