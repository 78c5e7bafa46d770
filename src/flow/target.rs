//! From what a caller named to a server and its own name for the tool. Starts a server only to learn what it offers.

use std::sync::Arc;

use crate::config::Names;
use crate::downstream::pool::Entry;
use crate::error::{Class, Fault};
use crate::name::ExposedName;
use crate::route::listing::Why;

use crate::wire::text::visible;

use super::snapshot::Snapshot;
use super::{Caller, Gateway};

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
    /// What was in force when that was seen.
    pub now: Arc<Snapshot>,
    /// The server.
    pub entry: Arc<Entry>,
    /// Why it cannot.
    pub fault: Fault,
}

/// A tool that exists.
pub(super) struct Found {
    /// What was in force when it was found.
    pub now: Arc<Snapshot>,
    /// The place of the server in the configuration.
    pub place: usize,
    /// The server.
    pub entry: Arc<Entry>,
    /// The server's own name for the tool.
    pub tool: String,
    /// The name that clients use.
    pub exposed: String,
    /// Why it is not served before somebody has approved it, if so.
    pub held: Option<Why>,
}

impl Gateway {
    /// Looks a target up by table. Where the server it may belong to was never listed, that is waited for; `None` means
    /// that there is no such tool, or none that this caller may know of.
    pub(super) async fn find(&self, caller: &Caller, target: &Target<'_>) -> Result<Option<Found>, Silent> {
        let now = self.now();
        if let Some(found) = look_up(&now, target) {
            return Ok(Some(found));
        }
        let unknown: Vec<Arc<Entry>> =
            now.roster.entries.iter().filter(|e| may_own(&now, caller, e, target)).cloned().collect();
        let Some(patience) = unknown.iter().map(|e| e.server.start_timeout).max() else { return Ok(None) };
        let concerned = |entry: &Entry| unknown.iter().any(|u| u.server.name == entry.server.name);
        self.pool.learn_some(&now.principal(caller), &caller.session, concerned);
        self.pool.learned(patience, concerned).await;
        if let Some(found) = look_up(&self.now(), target) {
            return Ok(Some(found));
        }
        // Nobody can say whether the tool exists; what is known is why the server does not tell.
        match unknown.iter().find(|e| !e.is_listed()) {
            Some(entry) => {
                let fault = self.why_silent(&now, caller, entry).await;
                Err(Silent { now, fault, entry: entry.clone() })
            }
            None => Ok(None),
        }
    }

    async fn why_silent(&self, now: &Snapshot, caller: &Caller, entry: &Arc<Entry>) -> Fault {
        match self.pool.instance(entry, &now.principal(caller), &caller.session).await {
            Err(fault) => fault,
            Ok(_) => {
                Fault::new(Class::Unavailable, format!("server {} has not listed its tools yet", entry.server.name))
            }
        }
    }
}

/// Why a tool cannot be called before somebody has approved it.
pub(super) fn unapproved(entry: &Entry, tool: &str, why: &Why) -> Fault {
    let what = match why {
        Why::New => "is new",
        Why::Changed | Why::Bad(_) => "has changed",
    };
    let (name, tool) = (&entry.server.name, visible(tool, 80));
    let text = format!("tool {tool:?} of server {name} {what} since approval; run: bulkhead approve {name}");
    Fault::new(Class::Unapproved, text)
}

/// Looks a target up by table: among what is served, and then among what is held back.
pub(super) fn look_up(now: &Arc<Snapshot>, target: &Target<'_>) -> Option<Found> {
    let catalog = &now.catalog;
    let (served, held) = match target {
        Target::Exposed(name) => {
            let served = catalog.find(name);
            (served, served.is_none().then(|| catalog.find_held(name)).flatten())
        }
        Target::Own { server, tool } => {
            let place = now.roster.entries.iter().position(|e| e.server.name.as_str() == *server)?;
            let served = catalog.find_own(place, tool);
            (served, served.is_none().then(|| catalog.find_own_held(place, tool)).flatten())
        }
    };
    let (place, tool, exposed, held) = match (served, held) {
        (Some(served), _) => (served.server, &served.tool, &served.exposed, None),
        (None, Some(held)) => (held.server, &held.tool, &held.exposed, Some(held.why.clone())),
        (None, None) => return None,
    };
    let entry = now.roster.entries[place].clone();
    Some(Found { now: now.clone(), place, entry, tool: tool.clone(), exposed: exposed.to_string(), held })
}

/// Whether a server that was never listed could have the target, among those the caller may know of.
fn may_own(now: &Snapshot, caller: &Caller, entry: &Entry, target: &Target<'_>) -> bool {
    if entry.is_listed() || !now.may_know(caller, entry) {
        return false;
    }
    match target {
        Target::Own { server, .. } => entry.server.name.as_str() == *server,
        Target::Exposed(_) if now.roster.config.gateway.names == Names::Bare => true,
        Target::Exposed(name) => ExposedName::may_be_of(name, &entry.server.name),
    }
}
