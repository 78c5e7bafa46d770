//! Until when what is at the engine may stay there at most, told in a label, so that what nobody can say anything about
//! goes in the end. Pure: the time is given.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Label: the moment, RFC 3339.
pub const LEASE: &str = "org.bulkhead.lease";

/// By how much the clocks of two hosts may differ. Nobody but its gateway ends anything before that has passed, too.
pub const TOLERANCE: Duration = Duration::from_secs(3600);

/// How long the leases are that a gateway gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// An instance's.
    pub instance: Duration,
    /// How long before its end an instance is stopped as soon as nobody uses it.
    pub margin: Duration,
    /// That of what serves a moment's work: a volume's preparation, a build.
    pub work: Duration,
    /// A session's volume's. The session may have several instances one after the other, and pauses between them.
    pub session: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Terms { instance: hours(24), margin: hours(1), work: hours(1), session: hours(7 * 24) }
    }
}

/// The moment until which something may stay, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(SystemTime);

/// How far an instance is in its lease, for its own gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It may be used for as long as this, at least.
    Good(Duration),
    /// It is stopped as soon as nobody uses it, and after this time in any case.
    Ending(Duration),
    /// It is stopped now.
    Over,
}

impl Lease {
    /// From that moment on, for so long.
    pub fn new(from: SystemTime, term: Duration) -> Self {
        let whole = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let end = Duration::from_secs(whole(from)) + term;
        Lease(SystemTime::UNIX_EPOCH + Duration::from_secs(end.as_secs()))
    }

    /// From now on.
    pub fn from_now(term: Duration) -> Self {
        Lease::new(SystemTime::now(), term)
    }

    /// What labels tell; none where they tell nothing that makes sense.
    pub fn from_labels(labels: &HashMap<String, String>) -> Option<Self> {
        humantime::parse_rfc3339(labels.get(LEASE)?).ok().map(Lease)
    }

    /// Its end.
    pub fn end(&self) -> SystemTime {
        self.0
    }

    /// Whether it is over on every clock that is not wrong by more than the tolerance.
    pub fn is_over_everywhere(&self, now: SystemTime) -> bool {
        now.duration_since(self.0).is_ok_and(|past| past > TOLERANCE)
    }

    /// How far it is, for who gave it.
    pub fn stage(&self, margin: Duration, now: SystemTime) -> Stage {
        match self.0.duration_since(now) {
            Ok(left) if left > margin => Stage::Good(left - margin),
            Ok(left) if !left.is_zero() => Stage::Ending(left),
            _ => Stage::Over,
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_read_as_it_is_written() {
        let lease = Lease::new(at(1_800_000_000) + Duration::from_millis(900), Duration::from_secs(86_400));
        assert_eq!(lease.to_string(), "2027-01-16T08:00:00Z");
        let labels = HashMap::from([(LEASE.to_owned(), lease.to_string())]);
        assert_eq!(Lease::from_labels(&labels), Some(lease));
        for nonsense in ["", "soon", "1800000000", "2027-13-40T99:00:00Z", "é2027-01-16T08:00:00Z", "2027-01-16"] {
            let labels = HashMap::from([(LEASE.to_owned(), nonsense.to_owned())]);
            assert_eq!(Lease::from_labels(&labels), None, "{nonsense}");
        }
        assert_eq!(Lease::from_labels(&HashMap::new()), None);
    }

    #[test]
    fn it_is_over_for_others_only_when_no_clock_can_doubt_it() {
        let lease = Lease::new(at(1000), Duration::from_secs(500));
        for early in [0, 1000, 1500, 1501, 1500 + TOLERANCE.as_secs()] {
            assert!(!lease.is_over_everywhere(at(early)), "{early}");
        }
        assert!(lease.is_over_everywhere(at(1501 + TOLERANCE.as_secs())));
    }

    #[test]
    fn its_gateway_ends_an_instance_before_anybody_else_may() {
        let lease = Lease::new(at(1000), Duration::from_secs(500));
        let stage = |now| lease.stage(100 * SECOND, at(now));
        assert_eq!(stage(1000), Stage::Good(400 * SECOND));
        assert_eq!(stage(1399), Stage::Good(SECOND));
        assert_eq!(stage(1400), Stage::Ending(100 * SECOND));
        assert_eq!(stage(1499), Stage::Ending(SECOND));
        assert_eq!((stage(1500), stage(9999)), (Stage::Over, Stage::Over));
        let Terms { instance, margin, .. } = Terms::default();
        assert!(margin < instance);
    }
}
