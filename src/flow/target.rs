//! From what a caller named to a server and its own name for the tool. Starts a server only to learn what it offers.

use std::sync::Arc;

use crate::config::Names;
use crate::downstream::pool::Entry;
use crate::error::{Class, Fault};
use crate::name::ExposedName;

use super::{Caller, Gateway, may_know};

/// What a caller wants to call.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A tool by its exposed name.
    Exposed(&'a str),
    /// A tool by its server's name and the server's own name for it, as scripts call it.
    Own {
        /// The server's configured name.
        server: &'a str,
        /// The server's own name for the tool.
        tool: &'a str,
    },
}

/// A server that may have the tool and cannot tell.
pub(super) struct Silent {
    /// The server.
    pub entry: Arc<Entry>,
    /// Why it cannot.
    pub fault: Fault,
}

/// A tool that exists.
pub(super) struct Found {
    /// The place of the server in the configuration.
    pub place: usize,
    /// The server.
    pub entry: Arc<Entry>,
    /// The server's own name for the tool.
    pub tool: String,
    /// The name that clients use.
    pub exposed: String,
}

impl Gateway {
    /// Looks a target up by table. Where the server it may belong to was never listed, that is waited for; `None` means
    /// that there is no such tool, or none that this caller may know of.
    pub(super) async fn find(&self, caller: &Caller, target: &Target<'_>) -> Result<Option<Found>, Silent> {
        if let Some(found) = self.look_up(target) {
            return Ok(Some(found));
        }
        let unknown: Vec<Arc<Entry>> =
            self.pool.servers.iter().filter(|e| self.may_own(caller, e, target)).cloned().collect();
        let Some(patience) = unknown.iter().map(|e| e.server.start_timeout).max() else { return Ok(None) };
        let concerned = |entry: &Entry| unknown.iter().any(|u| u.server.name == entry.server.name);
        self.pool.learn_some(&caller.principal, &caller.session, concerned);
        self.pool.learned(patience, concerned).await;
        if let Some(found) = self.look_up(target) {
            return Ok(Some(found));
        }
        // Nobody can say whether the tool exists; what is known is why the server does not tell.
        match unknown.iter().find(|e| e.listing().is_none()) {
            Some(entry) => Err(Silent { fault: self.why_silent(caller, entry).await, entry: entry.clone() }),
            None => Ok(None),
        }
    }

    async fn why_silent(&self, caller: &Caller, entry: &Arc<Entry>) -> Fault {
        match self.pool.instance(entry, &caller.principal, &caller.session).await {
            Err(fault) => fault,
            Ok(_) => {
                Fault::new(Class::Unavailable, format!("server {} has not listed its tools yet", entry.server.name))
            }
        }
    }

    pub(super) fn look_up(&self, target: &Target<'_>) -> Option<Found> {
        let catalog = self.catalog();
        let found = match target {
            Target::Exposed(name) => catalog.find(name),
            Target::Own { server, tool } => {
                let place = self.servers().iter().position(|s| s.name.as_str() == *server)?;
                catalog.find_own(place, tool)
            }
        }?;
        Some(Found {
            place: found.server,
            entry: self.pool.servers[found.server].clone(),
            tool: found.tool.clone(),
            exposed: found.exposed.to_string(),
        })
    }

    /// Whether a server that was never listed could have the target, among those the caller may know of.
    fn may_own(&self, caller: &Caller, entry: &Entry, target: &Target<'_>) -> bool {
        if entry.listing().is_some() || !may_know(caller, entry) {
            return false;
        }
        match target {
            Target::Own { server, .. } => entry.server.name.as_str() == *server,
            Target::Exposed(_) if self.config.gateway.names == Names::Bare => true,
            Target::Exposed(name) => ExposedName::may_be_of(name, &entry.server.name),
        }
    }
}
