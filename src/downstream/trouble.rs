//! How often a server failed, and when it may be tried again. Pure.

use std::time::{Duration, Instant};

use crate::error::Fault;

/// First pause; doubled with every failure.
const FIRST: Duration = Duration::from_millis(500);
/// Pause after a failure of the engine, which has nothing to do with the server and is over when the engine is back.
const ENGINE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(60);
/// A server that ran for so long is no longer in trouble.
pub const SUSTAINED: Duration = Duration::from_secs(60);

/// A server's failures in a row.
#[derive(Debug, Default)]
pub struct Trouble {
    failures: u32,
    last: Option<(Fault, Instant)>,
}

/// At what point a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before it could be used.
    Starting,
    /// After it had been ready: the first such failure is forgiven, since many servers die with one bad call.
    Running,
    /// By no fault of its own, since its engine failed or there was no room for it: that counts for nothing.
    WithoutFault,
}

impl Trouble {
    /// Takes down a failure at `now`; the pause before the next attempt grows with each.
    pub fn failed(&mut self, fault: Fault, when: When, now: Instant) {
        let pause = match when {
            When::WithoutFault => ENGINE,
            When::Starting | When::Running => {
                self.failures = self.failures.saturating_add(1);
                let forgiven = when == When::Running && self.failures == 1;
                if forgiven { Duration::ZERO } else { self.pause() }
            }
        };
        self.last = Some((fault, now + pause));
    }

    /// Takes down that it ran long enough for the past to be forgotten.
    pub fn sustained(&mut self) {
        *self = Trouble::default();
    }

    /// Why it must not be tried at `now`, and for how long still.
    pub fn barred(&self, now: Instant) -> Option<(&Fault, Duration)> {
        let (fault, until) = self.last.as_ref()?;
        let left = until.checked_duration_since(now)?;
        (!left.is_zero()).then_some((fault, left))
    }

    /// The last failure, if the server has not run since.
    pub fn last(&self) -> Option<&Fault> {
        self.last.as_ref().map(|(fault, _)| fault)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The pause that belongs to the number of failures.
    fn pause(&self) -> Duration {
        FIRST.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn the_pause_doubles_up_to_a_minute_and_only_a_sustained_run_resets_it() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        assert!(trouble.barred(start).is_none());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            trouble.failed(Fault::new(Class::Crashed, "x"), When::Starting, start);
            pauses.push(trouble.pause().as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
        assert!(trouble.barred(start + Duration::from_secs(59)).is_some());
        assert!(trouble.barred(start + Duration::from_secs(60)).is_none());
        trouble.sustained();
        assert_eq!((trouble.failures(), trouble.last()), (0, None));
    }

    #[test]
    fn a_failure_of_the_engine_is_told_and_never_adds_up() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        for _ in 0..20 {
            trouble.failed(Fault::new(Class::Engine, "x"), When::WithoutFault, now);
        }
        assert!(trouble.last().is_some() && trouble.failures() == 0);
        assert!(trouble.barred(now).is_some() && trouble.barred(now + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn a_first_death_after_it_had_run_costs_no_pause_and_a_second_one_does() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        trouble.failed(Fault::new(Class::Crashed, "x"), When::Running, now);
        assert!(trouble.barred(now).is_none() && trouble.last().is_some());
        trouble.failed(Fault::new(Class::Crashed, "x"), When::Running, now);
        assert!(trouble.barred(now).is_some());
    }
}
