//! Whether something at the engine can still be wanted by anybody. Pure.

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use super::super::lease::Lease;
use super::super::owner::Life;

/// What can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the engine's words")]
pub enum Kind {
    Container,
    Network,
    Volume,
    Image,
}

impl Kind {
    /// What uses others before what is used.
    pub const IN_ORDER: [Kind; 4] = [Kind::Container, Kind::Network, Kind::Volume, Kind::Image];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Container => "container",
            Kind::Network => "network",
            Kind::Volume => "volume",
            Kind::Image => "image",
        })
    }
}

/// Something of ours at the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// By what the engine knows it: an id, or a volume's name.
    pub id: String,
    /// For people: its server, or its own name.
    pub name: String,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Item { kind, id, name } = self;
        match kind {
            Kind::Volume => write!(f, "{kind} {id} ({name})"),
            _ => write!(f, "{kind} {:.12} ({name})", id.trim_start_matches("sha256:")),
        }
    }
}

/// The same with what decides about it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub item: Item,
    /// Whether its owner lives; none where its labels name no owner.
    pub life: Option<Life>,
    pub lease: Option<Lease>,
    /// Whether it is a container that does not run, and will not any more.
    pub idle: bool,
}

/// What is to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nobody can want it any more.
    Remove,
    /// A gateway that lives has it.
    Theirs,
    /// It may be wanted, for this reason.
    Leave(String),
}

impl Found {
    /// A lease counts only where nobody can say whether the owner lives: a gateway that was kept from stopping what it has
    /// will do so itself.
    ///
    /// No container runs on over a reboot of its engine: one that does, and whose gateway is of another boot than ours, may
    /// well be in use by a machine that calls itself like this one.
    pub fn verdict(&self, now: SystemTime) -> Verdict {
        let why = match self.life {
            Some(Life::Alive) => return Verdict::Theirs,
            Some(Life::Dead) => return Verdict::Remove,
            Some(Life::Earlier) if self.idle => return Verdict::Remove,
            Some(Life::Earlier) => "its gateway may be running on a host that calls itself like this one",
            Some(Life::Elsewhere) => "its gateway may be running on another host",
            None => "it does not say whose it is",
        };
        match self.lease {
            Some(lease) if lease.is_over_everywhere(now) => Verdict::Remove,
            Some(lease) if lease.end() <= now => {
                Verdict::Leave(format!("{why}; its lease ended at {lease}, by which clocks may still differ"))
            }
            Some(lease) => Verdict::Leave(format!("{why}; its lease ends at {lease}")),
            None => Verdict::Leave(format!("{why}, and it has no lease")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    /// A lease that ends so many hours from now.
    fn ending(hours: i32) -> Option<Lease> {
        let shift = HOUR * hours.unsigned_abs();
        let end = if hours < 0 { now() - shift } else { now() + shift };
        Some(Lease::new(end, Duration::ZERO))
    }

    fn verdict(kind: Kind, life: Option<Life>, lease: Option<Lease>, idle: bool) -> Verdict {
        let item = Item { kind, id: "i".into(), name: "n".into() };
        Found { item, life, lease, idle }.verdict(now())
    }

    #[test]
    fn what_a_dead_gateway_had_goes_and_what_a_living_one_has_stays_whatever_its_lease_says() {
        for kind in Kind::IN_ORDER {
            for lease in [None, ending(-9), ending(0), ending(9)] {
                for idle in [false, true] {
                    assert_eq!(verdict(kind, Some(Life::Dead), lease, idle), Verdict::Remove);
                    assert_eq!(verdict(kind, Some(Life::Alive), lease, idle), Verdict::Theirs);
                }
            }
        }
    }

    #[test]
    fn what_may_be_in_use_somewhere_stays_until_its_lease_is_over_on_every_clock() {
        for kind in Kind::IN_ORDER {
            for life in [Some(Life::Elsewhere), Some(Life::Earlier), None] {
                let of = |lease| verdict(kind, life, lease, false);
                for lease in [None, ending(9), ending(0), ending(-1)] {
                    assert!(matches!(of(lease), Verdict::Leave(_)), "{life:?} {lease:?}");
                }
                assert_eq!(of(ending(-2)), Verdict::Remove, "{life:?}");
            }
        }
        assert_eq!(verdict(Kind::Container, Some(Life::Earlier), ending(9), true), Verdict::Remove);
        for life in [Some(Life::Elsewhere), None] {
            assert!(matches!(verdict(Kind::Container, life, None, true), Verdict::Leave(_)));
        }
    }

    #[test]
    fn the_reason_for_which_something_is_left_is_told() {
        let why = |life, lease| match verdict(Kind::Container, life, lease, false) {
            Verdict::Leave(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            why(Some(Life::Elsewhere), ending(9)),
            "its gateway may be running on another host; its lease ends at 2027-01-15T17:00:00Z"
        );
        assert!(why(Some(Life::Elsewhere), ending(-1)).contains("ended at 2027-01-15T07:00:00Z, by which clocks"));
        assert!(
            why(Some(Life::Earlier), ending(9)).starts_with("its gateway may be running on a host that calls itself")
        );
        assert_eq!(why(None, None), "it does not say whose it is, and it has no lease");
    }

    #[test]
    fn a_thing_is_shown_by_kind_id_and_name() {
        let shown = |kind, id: &str| Item { kind, id: id.into(), name: "n".into() }.to_string();
        assert_eq!(shown(Kind::Container, "0123456789abcdef"), "container 0123456789ab (n)");
        assert_eq!(shown(Kind::Image, "sha256:0123456789abcdef"), "image 0123456789ab (n)");
        assert_eq!(shown(Kind::Volume, "bulkhead-state-x-0123456789ab"), "volume bulkhead-state-x-0123456789ab (n)");
    }
}
