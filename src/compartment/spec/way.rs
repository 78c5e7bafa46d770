//! Whose network a compartment has, and what follows from that. Pure.

use std::sync::Arc;

use crate::name::ServerName;

use super::super::fence::{Bounds, CAPABILITIES, Fence};
use super::super::guard::Guard;
use super::super::seat::Seat;
use super::super::verify::Evidence;
use super::Compartment;

/// Whose network it has.
#[derive(Clone, Debug)]
pub(in crate::compartment) enum Way {
    /// Its own, with nothing in it.
    Alone,
    /// Its guard's, which has nothing in it but the guard's ports.
    Behind(Box<Guard>),
    /// Its own, since it is the guard of that server.
    Guarding(ServerName),
    /// Its fence's.
    Within(Box<Fence>),
    /// Its own, which it makes to have such bounds, since it is the fence of that server.
    Fencing(ServerName, Arc<Bounds>),
}

impl Compartment {
    /// Whose network it is to have, in the engine's words.
    pub(in crate::compartment) fn network_mode(&self) -> String {
        match &self.way {
            Way::Behind(guard) => format!("container:{}", guard.container()),
            Way::Within(fence) => format!("container:{}", fence.container()),
            Way::Fencing(_, bounds) => bounds.place.name.clone(),
            // Only this: a container whose network is disabled as well has no /etc/hosts, and no `localhost` then.
            Way::Alone | Way::Guarding(_) => "none".to_owned(),
        }
    }

    /// The container whose network it has, with the proof of that one.
    pub(in crate::compartment) fn host_of_network(&self) -> Option<(&str, &Evidence)> {
        match &self.way {
            Way::Behind(guard) => Some((guard.container(), guard.evidence())),
            Way::Within(fence) => Some((fence.container(), fence.evidence())),
            Way::Alone | Way::Guarding(_) | Way::Fencing(..) => None,
        }
    }

    /// That one's network as the kernel names it.
    pub(in crate::compartment) fn namespace_of_network(&self) -> Option<&str> {
        match &self.way {
            Way::Behind(guard) => Some(guard.namespace()),
            Way::Within(fence) => Some(fence.namespace()),
            Way::Alone | Way::Guarding(_) | Way::Fencing(..) => None,
        }
    }

    /// The processors of what carries all that it says to the network, so that it may be beside that.
    pub(in crate::compartment) fn near(&self) -> Option<Arc<Seat>> {
        match &self.way {
            Way::Behind(guard) => guard.seat().cloned(),
            // The kernel carries what goes through a fence.
            Way::Alone | Way::Guarding(_) | Way::Within(_) | Way::Fencing(..) => None,
        }
    }

    /// What bounds its network, where that leads out.
    pub(in crate::compartment) fn bounds(&self) -> Option<&Bounds> {
        match &self.way {
            Way::Within(fence) => Some(fence.bounds()),
            Way::Fencing(_, bounds) => Some(bounds),
            Way::Alone | Way::Behind(_) | Way::Guarding(_) => None,
        }
    }

    /// Whether it is a fence, which begins with more than it keeps.
    pub(in crate::compartment) fn is_fence(&self) -> bool {
        matches!(self.way, Way::Fencing(..))
    }

    /// The capabilities it begins with.
    pub(in crate::compartment) fn capabilities(&self) -> &'static [&'static str] {
        if self.is_fence() { &CAPABILITIES } else { &[] }
    }

    /// Who tells it names, where that is its own to say.
    pub(in crate::compartment) fn name_servers(&self) -> Option<Vec<String>> {
        let Way::Fencing(_, bounds) = &self.way else { return None };
        bounds.names.as_ref().map(|all| all.iter().map(ToString::to_string).collect())
    }
}
