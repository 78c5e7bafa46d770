//! From the servers of one configuration to those of the next: what goes on is not touched, what is another one is started
//! anew with the next call, and what is no more ends as anything that nobody uses. Reads no file and decides no call.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::config::change::general;
use crate::config::{Config, Sensitive, Server};
use crate::error::{Class, Fault};
use crate::route::Listing;

use super::entry::{Entry, Slot};
use super::{Basis, Pool, lock};

/// The servers as one configuration has them. It never changes: another one takes its place, all at once.
pub struct Roster {
    /// The configuration.
    pub config: Arc<Config>,
    /// In its order.
    pub entries: Vec<Arc<Entry>>,
}

/// What a new configuration changes, by the servers' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// There was no such server.
    pub added: Vec<String>,
    /// There is none any more.
    pub removed: Vec<String>,
    /// What runs is another one, or is disabled: instances end, and the next call starts others.
    pub changed: Vec<String>,
    /// Other rules, limits or times; instances go on.
    pub ruled: Vec<String>,
    /// All is as it was.
    pub unchanged: Vec<String>,
    /// Keys beside the servers'.
    pub general: Vec<&'static str>,
}

/// A configuration that is ready to be put in force.
pub struct Handover {
    /// What it changes.
    pub changes: Changes,
    /// What will be in force.
    pub next: Arc<Roster>,
    going_on: Vec<(Arc<Entry>, Option<Arc<Listing>>)>,
    leaving: Vec<Leaver>,
}

/// A server that is no more what it was.
struct Leaver {
    entry: Arc<Entry>,
    why: &'static str,
    /// Whether it may reach something now that it may not reach any more.
    narrowed: bool,
}

impl Roster {
    /// The servers of a configuration, none of which has run.
    pub(super) fn new(config: Arc<Config>, basis: Basis<'_>) -> Self {
        let entries = config.servers.iter().map(|s| Arc::new(Entry::new(s, config.gateway.approval, basis))).collect();
        Roster { config, entries }
    }

    /// The server of that name.
    pub fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| entry.server.name.as_str() == name)
    }

    fn secrets(&self) -> impl Iterator<Item = &Sensitive> {
        self.config.servers.iter().flat_map(|server| server.env.values())
    }
}

impl Pool {
    /// Makes another configuration ready. Nothing is changed yet, but that its secrets are known from now on to whatever
    /// keeps them out of texts; those of what runs, and of what was in force last, stay known.
    pub fn prepare(&self, config: Arc<Config>, basis: Basis<'_>) -> Result<Handover, Fault> {
        let now = self.roster();
        let mut changes = Changes { general: general(&now.config, &config), ..Changes::default() };
        let (mut entries, mut going_on) = (Vec::new(), Vec::new());
        for server in &config.servers {
            let name = server.name.as_str().to_owned();
            let fresh = Entry::new(server, config.gateway.approval, basis);
            let Some(before) = now.entry(&name) else {
                changes.added.push(name);
                entries.push(Arc::new(fresh));
                continue;
            };
            match fresh.going_on(before) {
                Ok((entry, approved)) => {
                    let entry = Arc::new(entry);
                    let as_before = server.is_ruled_like(&before.server);
                    let list = if as_before { &mut changes.unchanged } else { &mut changes.ruled };
                    list.push(name);
                    going_on.push((entry.clone(), approved));
                    entries.push(entry);
                }
                Err(fresh) => {
                    changes.changed.push(name);
                    entries.push(Arc::new(fresh.instead_of(before)));
                }
            }
        }
        let next = Roster { config, entries };
        let left = now.entries.iter().filter_map(|entry| leaver(entry, next.entry(entry.server.name.as_str())));
        let leaving: Vec<Leaver> = left.collect();
        let gone = leaving.iter().filter(|l| l.why == REMOVED).map(|l| l.entry.server.name.as_str().to_owned());
        changes.removed = gone.collect();
        let runs = self.leaving();
        let secrets = next.secrets().chain(now.secrets()).chain(runs.iter().flat_map(|e| e.server.env.values()));
        let secrets: Vec<Sensitive> = secrets.cloned().collect();
        self.redactor.know(&secrets).map_err(|error| {
            Fault::new(Class::Usage, format!("the secrets are too large to be kept out of texts: {error}"))
        })?;
        Ok(Handover { changes, next: Arc::new(next), going_on, leaving })
    }

    /// Puts it in force, all at once: whoever comes from now on finds nothing else. Returns when nothing reaches what it may
    /// reach no more; calls under way go on.
    pub async fn hand_over(&self, handover: Handover) {
        let Handover { next, going_on, leaving, .. } = handover;
        self.budget.set(next.config.total);
        *self.roster.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        for (entry, approved) in going_on {
            entry.take_over(approved);
        }
        let mut cuts = Vec::new();
        // What has left before may still have a call under way, and may reach no more than what is in force either.
        for entry in self.leaving() {
            let now = next.entry(entry.server.name.as_str()).filter(|now| now.server.disabled.is_none());
            if entry.server.may_reach_less(now.map(|now| &*now.server)) {
                cuts.extend(entry.stock.slots().into_iter().map(Slot::cut));
            }
        }
        for Leaver { entry, why, narrowed } in leaving {
            let slots = entry.stock.leave(why, longest_call(&entry.server));
            lock(&self.leaving).push(entry);
            if narrowed {
                cuts.extend(slots.into_iter().map(Slot::cut));
            }
        }
        self.changed();
        futures_util::future::join_all(cuts).await;
    }

    /// The servers that are no more what they were and of which something still runs.
    pub fn leaving(&self) -> Vec<Arc<Entry>> {
        let mut leaving = lock(&self.leaving);
        leaving.retain(|entry| !entry.stock.lives.is_empty());
        leaving.clone()
    }
}

const REMOVED: &str = "it is no longer configured";

/// What becomes of a server when that takes its place.
fn leaver(entry: &Arc<Entry>, next: Option<&Arc<Entry>>) -> Option<Leaver> {
    let (why, server) = match next {
        Some(next) if Arc::ptr_eq(&next.stock, &entry.stock) => return None,
        Some(next) if next.server.disabled.is_some() => ("it is disabled", None),
        Some(next) => ("its configuration has changed", Some(&*next.server)),
        None => (REMOVED, None),
    };
    Some(Leaver { entry: entry.clone(), why, narrowed: entry.server.may_reach_less(server) })
}

/// How long the calls that a server has may take by their own deadlines.
fn longest_call(server: &Server) -> Duration {
    server.max_time.max(server.timeout)
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let some = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("other rules for", &self.ruled),
        ];
        let named = some.into_iter().filter(|(_, names)| !names.is_empty());
        let mut parts: Vec<String> = named.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        if !self.general.is_empty() {
            parts.push(format!("other values of {}", self.general.join(", ")));
        }
        if parts.is_empty() {
            parts.push("nothing changed".to_owned());
        }
        parts.push(match self.unchanged.len() {
            1 => "1 server as before".to_owned(),
            many => format!("{many} servers as before"),
        });
        f.write_str(&parts.join("; "))
    }
}
