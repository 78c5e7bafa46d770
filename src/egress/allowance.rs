//! How many bytes a server has sent and received today, whichever of its instances did. Knows no connection and no limit.
//!
//! An instance ends whenever its server wants it to, and the next call starts another. So what is counted for an instance
//! alone would be counted anew as often as a server likes; this is counted for a server and a principal, over all of the
//! gateway's life, and begins again a day after its first byte.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long bytes are counted together.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The bytes of one server and one principal.
#[derive(Debug, Default)]
pub struct Allowance(Mutex<Today>);

#[derive(Debug, Default)]
struct Today {
    /// When its first byte was counted.
    began: Option<Instant>,
    bytes: u64,
}

impl Today {
    /// Begins again where the day is over.
    fn at(&mut self, now: Instant) -> &mut Self {
        if self.began.is_some_and(|began| now.saturating_duration_since(began) >= DAY) {
            *self = Today::default();
        }
        self
    }
}

impl Allowance {
    /// Bytes of today, both directions together.
    pub fn used(&self, now: Instant) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).at(now).bytes
    }

    /// Counts more, and says how many there are then.
    pub(super) fn count(&self, bytes: u64, now: Instant) -> u64 {
        let mut today = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let today = today.at(now);
        today.began.get_or_insert(now);
        today.bytes = today.bytes.saturating_add(bytes);
        today.bytes
    }

    /// How long today lasts.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let mut today = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = today.at(now).began.unwrap_or(now);
        DAY.saturating_sub(now.saturating_duration_since(began))
    }
}

/// Those of all servers and principals of a gateway.
#[derive(Debug, Default)]
pub struct Allowances(Mutex<HashMap<(String, String), Arc<Allowance>>>);

impl Allowances {
    /// The one of a server and a principal, as long as anybody has it or something of today is in it.
    pub fn of(&self, server: &str, principal: &str) -> Arc<Allowance> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, allowance| Arc::strong_count(allowance) > 1 || allowance.used(now) > 0);
        all.entry((server.to_owned(), principal.to_owned())).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_with_its_first_byte_and_is_over_a_day_later() {
        let (allowance, now) = (Allowance::default(), Instant::now());
        assert_eq!((allowance.used(now), allowance.left(now)), (0, DAY));
        let first = now + DAY;
        assert_eq!(allowance.count(5, first), 5);
        let late = first + DAY - Duration::from_secs(1);
        assert_eq!((allowance.count(7, late), allowance.left(late)), (12, Duration::from_secs(1)));
        assert_eq!((allowance.used(first + DAY), allowance.left(first + DAY)), (0, DAY));
        assert_eq!(allowance.count(1, first + DAY), 1);
        assert_eq!(allowance.count(u64::MAX, first + DAY), u64::MAX);
    }

    #[test]
    fn each_server_and_principal_has_its_own_and_keeps_it_from_one_instance_to_the_next() {
        let all = Allowances::default();
        all.of("web", "me").count(3, Instant::now());
        let others = [("web", "you"), ("db", "me"), ("we", "bme")].map(|(server, who)| all.of(server, who));
        assert!(others.iter().all(|other| other.used(Instant::now()) == 0));
        assert_eq!(all.of("web", "me").used(Instant::now()), 3);
        drop(others);
        all.of("x", "y");
        assert_eq!(all.0.lock().unwrap().len(), 2, "what is empty and nobody's is forgotten");
    }
}
