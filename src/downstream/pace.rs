//! How fast a server's output is read. What is not read waits in the server's pipe and holds up nobody else, while a flood
//! that is read as fast as it comes costs the engine and us the processors that other servers need. Knows no message.

use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};

use super::link::Output;

/// What is read as fast as it comes, bytes: more than a server has to say at once, results of the usual largest size
/// included.
const BURST: f64 = 64.0 * 1024.0 * 1024.0;
/// How much is read in a second beyond that, bytes. The engine spends seconds of a processor on each gigabyte.
const RATE: f64 = 64.0 * 1024.0 * 1024.0;
/// The shortest pause: shorter ones would cost more than they spare.
const PAUSE: Duration = Duration::from_millis(5);

/// The output of a server, as [`Link`](super::link::Link) has it.
type Pieces = Pin<Box<dyn Stream<Item = io::Result<Output>> + Send>>;

/// The same output, read no faster than that.
pub fn paced(output: Pieces) -> Pieces {
    let mut pace = Pace::new(Instant::now());
    let paced = output.then(move |piece| {
        let length = match &piece {
            Ok(Output::Stdout(bytes) | Output::Stderr(bytes)) => bytes.len(),
            Err(_) => 0,
        };
        let pause = pace.read(length, Instant::now());
        async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            piece
        }
    });
    Box::pin(paced)
}

/// What was read lately, less what time has paid off.
#[derive(Debug)]
struct Pace {
    owed: f64,
    at: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Pace { owed: 0.0, at: now }
    }

    /// Takes down that so many bytes were read at `now`, and says how long to read no more.
    fn read(&mut self, bytes: usize, now: Instant) -> Option<Duration> {
        let paid = now.saturating_duration_since(self.at).as_secs_f64() * RATE;
        self.owed = (self.owed - paid).max(0.0) + bytes as f64;
        self.at = now;
        let pause = Duration::from_secs_f64((self.owed - BURST).max(0.0) / RATE);
        (pause >= PAUSE).then_some(pause)
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
            now += pace.read(PIECE, now).unwrap_or_default();
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
    fn who_says_less_than_the_rate_never_waits() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            assert_eq!(pace.read(60 << 10, now), None);
        }
    }
}
