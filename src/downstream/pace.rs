//! How fast a server's output is read. What is not read waits in the server's pipe and holds up nobody else, while a flood
//! that is read as fast as it comes costs the engine and us the processors that other servers need. Knows no message.

use std::time::{Duration, Instant};

/// What is read as fast as it comes, bytes: more than a server has to say at once without being asked.
const BURST: f64 = 64.0 * 1024.0 * 1024.0;
/// How much is read in a second beyond that, bytes. The engine spends some three seconds of a processor on a gigabyte.
const RATE: f64 = 64.0 * 1024.0 * 1024.0;
/// What a line costs beside its bytes, in bytes of the rate: to look at a short one takes as long as to read so many.
const LINE: f64 = 256.0;
/// The shortest pause: shorter ones would cost more than they spare.
const PAUSE: Duration = Duration::from_millis(5);

/// What was read lately, less what time has paid off and what somebody had asked for.
#[derive(Debug)]
pub(super) struct Pace {
    owed: f64,
    at: Instant,
}

impl Pace {
    /// Nothing read yet.
    pub(super) fn new(now: Instant) -> Self {
        Pace { owed: 0.0, at: now }
    }

    /// Takes down that so many bytes were read at `now`, with so many lines in them that somebody looks at, and says how
    /// long to read no more.
    pub(super) fn read(&mut self, bytes: usize, lines: usize, now: Instant) -> Option<Duration> {
        let paid = now.saturating_duration_since(self.at).as_secs_f64() * RATE;
        self.owed = (self.owed - paid).max(0.0) + bytes as f64 + lines as f64 * LINE;
        self.at = now;
        let pause = Duration::from_secs_f64((self.owed - BURST).max(0.0) / RATE);
        (pause >= PAUSE).then_some(pause)
    }

    /// So many of the bytes were a line that answers a request: however large, it was asked for.
    pub(super) fn wanted(&mut self, bytes: usize) {
        self.owed -= bytes as f64 + LINE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 32 * 1024;

    /// How long it takes to read so many bytes that are there at once.
    fn time_for(bytes: usize, pace: &mut Pace, start: Instant) -> Duration {
        let mut now = start;
        for _ in 0..bytes / PIECE {
            now += pace.read(PIECE, 0, now).unwrap_or_default();
        }
        now - start
    }

    #[test]
    fn a_burst_is_read_at_once_and_a_flood_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(time_for(64 << 20, &mut pace, start), Duration::ZERO);
        let flood = time_for(640 << 20, &mut pace, start);
        assert!((9.9..=10.0).contains(&flood.as_secs_f64()), "{flood:?}");
        // After a rest it may speak at once again.
        let rested = start + flood + Duration::from_secs(2);
        assert_eq!(time_for(64 << 20, &mut pace, rested), Duration::ZERO);
    }

    #[test]
    fn short_lines_cost_what_it_takes_to_look_at_them() {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(start), start);
        let (short, pieces) = (PIECE / 40, 10_000);
        for _ in 0..pieces {
            now += pace.read(PIECE, short, now).unwrap_or_default();
        }
        let rate = (short * pieces) as f64 / (now - start).as_secs_f64();
        assert!((200_000.0..300_000.0).contains(&rate), "{rate} lines a second");
    }

    #[test]
    fn what_was_asked_for_is_not_paced() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..100 {
            assert_eq!(time_for(32 << 20, &mut pace, start), Duration::ZERO);
            pace.wanted(32 << 20);
        }
    }

    #[test]
    fn who_says_less_than_the_rate_never_waits() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            assert_eq!(pace.read(60 << 10, 10, now), None);
        }
    }
}
