//! What state a server is in, in the words of the interface. Changes nothing.

use super::approved::Held;
use super::{Entry, Pool, Slot, lock};
use crate::error::Class;

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the interface")]
pub enum State {
    Idle,
    Starting,
    Ready,
    Failed,
    Unapproved,
    Changed,
    Disabled,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Starting => "starting",
            State::Ready => "ready",
            State::Failed => "failed",
            State::Unapproved => "unapproved",
            State::Changed => "changed",
            State::Disabled => "disabled",
        }
    }
}

impl Pool {
    /// The state of a server and, where it is not as it should be, the reason.
    pub fn state(&self, entry: &Entry) -> (State, Option<String>) {
        if let Some(why) = &entry.server.disabled {
            return (State::Disabled, Some(why.clone()));
        }
        if let Some(held) = &entry.held {
            let state = match held {
                Held::Unapproved(_) => State::Unapproved,
                Held::Changed(_) => State::Changed,
            };
            return (state, Some(held.fault(&entry.server.name).inward));
        }
        let listing = entry.listing();
        let notes = listing.as_ref().map(|l| l.notes().join("; ")).filter(|n| !n.is_empty());
        let (starting, ready) = {
            let slots = lock(&entry.stock.slots);
            let ready = slots.values().any(|s| matches!(s, Slot::Running(i) if i.is_usable()));
            (slots.values().any(|s| matches!(s, Slot::Starting(_))), ready)
        };
        let trouble = lock(&entry.stock.trouble);
        let held = listing.is_some_and(|l| l.unapproved().next().is_some());
        match trouble.last() {
            _ if held => (State::Changed, notes.map(|n| format!("{n}; run: bulkhead approve {}", entry.server.name))),
            Some(fault) if fault.class == Class::Unapproved => (State::Changed, Some(fault.inward.clone())),
            _ if ready => (State::Ready, notes),
            // Also while it is tried again: the cause is what one wants to see until it serves.
            Some(fault) => (State::Failed, Some(fault.inward.clone())),
            None if starting => (State::Starting, None),
            None => (State::Idle, notes),
        }
    }
}
