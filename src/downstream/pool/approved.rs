//! What a server is by what somebody approved of it: whether it may run, from which image, and what its definitions are
//! held against. Starts nothing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::audit::record::{Isolation, ServerWord};
use crate::config::{Approval, Run, Server};
use crate::error::{Class, Fault};
use crate::name::ServerName;
use crate::route::Listing;
use crate::route::listing::Told;
use crate::route::lock::{Kind, LockedServer, differences};

use super::super::handshake::Greeting;
use super::super::instance::{Confinement, Instance};
use super::{Basis, Entry, LAST_WORDS, Pool, lock};

/// Lines about one listing in the log; a server can change thousands of definitions at once, again and again.
const NOTES: usize = 10;

/// Why nothing of a server may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Nobody has approved it; whether it is a package, which has to be baked.
    Unapproved(bool),
    /// Its entry is another than the approved one, in these words.
    Changed(String),
}

/// What approval says of a server.
#[derive(Default)]
pub(super) struct Standing {
    pub image: Option<String>,
    pub approved: Option<Arc<Listing>>,
    pub held: Option<Held>,
    pub pinned: Option<Arc<LockedServer>>,
}

/// Where a server comes from, as far as that was looked up before it was started.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Identity of its image.
    pub image: Option<String>,
    /// Runner and name of its package.
    pub package: Option<String>,
    /// Its exact version.
    pub version: Option<String>,
    /// The registry's hash of it.
    pub integrity: Option<String>,
    /// Hash over what was baked.
    pub content: Option<String>,
    /// The whole tree of what was baked.
    pub tree: Vec<Box<RawValue>>,
}

// === impl Held ===

impl Held {
    /// What whoever comes to it is told.
    pub fn fault(&self, name: &ServerName) -> Fault {
        let text = match self {
            Held::Unapproved(true) => format!("server {name} is not locked; run: bulkhead lock {name}"),
            Held::Unapproved(false) => format!("server {name} is not approved; run: bulkhead approve {name}"),
            Held::Changed(what) => {
                let text = format!("server {name} has changed since approval; run: bulkhead approve {name}");
                return Fault::new(Class::Unapproved, text).with_inward(format!(
                    "server {name} has changed since approval ({what}); run: bulkhead approve {name}"
                ));
            }
        };
        Fault::new(Class::Unapproved, text)
    }
}

// === impl Standing ===

impl Standing {
    /// By the lock, whose word is the last; else by what was pinned, where that is enough.
    pub fn of(server: &Server, approval: Approval, basis: Basis<'_>) -> Self {
        let name = server.name.as_str();
        let (lock, pins) = match basis {
            Basis::Images(images) => return Standing { image: images.get(name).cloned(), ..Standing::default() },
            Basis::Approved { lock, pins } => (lock, pins),
        };
        let package = matches!(server.run, Run::Package(_));
        match (lock.servers.get(name), pins.get(name)) {
            (Some(locked), _) if locked.config == server.digest && locked.kind == server.run.kind() => Standing {
                image: locked.image.clone(),
                approved: Some(Arc::new(Listing::approved(locked))),
                ..Standing::default()
            },
            (Some(locked), _) => {
                let what = differences(&locked.settings, &server.settings);
                Standing { held: Some(Held::Changed(what)), ..Standing::default() }
            }
            (None, _) if package || approval == Approval::Explicit => {
                Standing { held: Some(Held::Unapproved(package)), ..Standing::default() }
            }
            (None, Some(pinned)) => Standing {
                approved: Some(Arc::new(Listing::approved(&pinned))),
                pinned: Some(Arc::new(pinned)),
                ..Standing::default()
            },
            (None, None) => Standing::default(),
        }
    }
}

/// The state of a server as a lock has it, from what it is made of and what it says itself.
fn locked(server: &Server, made: Made, greeting: &Greeting, listing: &Listing) -> Result<LockedServer, Fault> {
    let odd = |what: String| Fault::new(Class::Malformed, format!("server {}: {what}", server.name));
    let capabilities = RawValue::from_string(greeting.capabilities.clone()).map_err(|error| odd(error.to_string()))?;
    let definitions = |kind| listing.definitions(kind).map_err(&odd);
    Ok(LockedServer {
        kind: server.run.kind().to_owned(),
        package: made.package,
        version: made.version,
        integrity: made.integrity,
        image: made.image,
        content: made.content,
        config: server.digest.clone(),
        settings: server.settings.clone(),
        revision: greeting.revision.clone(),
        capabilities,
        instructions: greeting.instructions.clone(),
        tools: definitions(Kind::Tool)?,
        prompts: definitions(Kind::Prompt)?,
        templates: definitions(Kind::Template)?,
        tree: made.tree,
    })
}

impl Pool {
    /// Takes in what an instance offers: the first listing is pinned, later ones are held against it.
    pub(super) async fn meet(&self, entry: &Entry, greeting: &Greeting, image: Option<String>, told: Told) {
        let live = Listing::of(told);
        let first = self.pin(entry, greeting, image, &live).await;
        self.offer(entry, live, first.as_ref().map(Listing::approved));
    }

    /// Takes in what a server offers, and holds it against what was approved, or else against `first`.
    pub(super) fn offer(&self, entry: &Entry, live: Listing, first: Option<Listing>) {
        let (served, news) = {
            let mut offer = lock(&entry.stock.offer);
            let taken = offer.take(live, first);
            // Within the lock: whoever sees that it is listed finds it in what is made of all lists, too.
            if taken.1 {
                self.changed();
            }
            taken
        };
        if news {
            let notes = served.notes();
            for note in notes.iter().take(NOTES) {
                tracing::warn!(server = %entry.server.name, "{note}");
            }
            if notes.len() > NOTES {
                tracing::warn!(server = %entry.server.name, "and {} more like these", notes.len() - NOTES);
            }
            if !served.withheld.is_empty() {
                let withheld: Vec<String> = served.withheld.iter().map(ToString::to_string).collect();
                self.tell_changed(entry, None, withheld.join("; "));
            }
        }
    }

    /// Pins what is met for the first time, and the operator's own changes to what is pinned. Returns what holds from then
    /// on.
    async fn pin(
        &self,
        entry: &Entry,
        greeting: &Greeting,
        image: Option<String>,
        live: &Listing,
    ) -> Option<LockedServer> {
        let first = lock(&entry.stock.offer).is_first();
        let (pins, server) = (self.pins.clone()?, &entry.server);
        let name = server.name.as_str().to_owned();
        let pinned = lock(&entry.pinned).clone();
        let done = match pinned {
            // Nothing is what a server that fails lists, and is no offer to hold it to.
            None if first && live.warning.is_some() && live.tools.is_empty() => return None,
            // Half a list, too: otherwise a server that never lists whole would never be held to anything.
            None if first => {
                let seen = locked(server, Made { image, ..Made::default() }, greeting, live);
                tokio::task::spawn_blocking(move || pins.pin(&name, seen?)).await
            }
            Some(pinned) if pinned.config != server.digest || pinned.image != image => {
                // The operator's own word: another reference may be another image, and the same one is by now the same.
                let what = differences(&pinned.settings, &server.settings);
                self.tell_changed(entry, image.clone(), format!("the configuration: {what}"));
                let (config, settings) = (server.digest.clone(), server.settings.clone());
                let now = LockedServer { config, settings, image, ..LockedServer::clone(&pinned) };
                tokio::task::spawn_blocking(move || pins.replace([(name, now.clone())]).map(|()| now)).await
            }
            _ => return None,
        };
        match done {
            Ok(Ok(holds)) => {
                *lock(&entry.pinned) = Some(Arc::new(holds.clone()));
                Some(holds)
            }
            Ok(Err(fault)) => {
                tracing::warn!(server = %server.name, "what it offers is pinned for as long as this gateway runs: {fault}");
                None
            }
            Err(_) => None,
        }
    }

    fn tell_changed(&self, entry: &Entry, image: Option<String>, what: String) {
        let nothing = Confinement { isolation: Isolation::NotRunning, container: None, image, evidence: None };
        self.record(entry, ServerWord::Changed, &nothing, Some(what));
    }

    /// Ends an instance and returns when nothing of it is left and what it took is free again.
    pub async fn retire(&self, entry: &Entry, instance: &Instance) {
        instance.peer.close().await;
        let gone = async {
            while !entry.stock.lives.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, gone).await;
    }

    /// What a server is now, as a lock has it; `made` is where it comes from.
    pub fn locked(&self, entry: &Entry, made: Made, instance: &Instance) -> Result<LockedServer, Fault> {
        let listing = entry.listing().unwrap_or_default();
        // What it will list when it can would all be new.
        if let Some(warning) = &listing.warning {
            let text = format!("server {} does not tell all that it offers: {warning}", entry.server.name);
            return Err(Fault::new(Class::Malformed, text));
        }
        locked(&entry.server, made, &instance.greeting, &listing)
    }
}
