//! Bytes both ways between two streams, with every end and failure of one passed on to the other. Knows no protocol.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::passage::Open;

/// What is carried at once.
const PIECE: usize = 64 << 10;
/// How long a connection of which one direction has ended may be quiet, where it may be as long otherwise: pools keep
/// connections, but nobody one that is half gone.
const HALF: Duration = Duration::from_secs(300);

/// When something was carried last.
struct Clock {
    began: Instant,
    /// Milliseconds after it began.
    last: AtomicU64,
    /// Whether one direction has ended.
    half: AtomicBool,
}

impl Clock {
    fn tick(&self) {
        self.last.store(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Resolves when the connection was quiet for too long, to why that is.
    async fn quiet(&self, idle: Duration) -> String {
        let half = HALF.min(idle);
        loop {
            let one_way = self.half.load(Relaxed);
            let may = if one_way { half } else { idle };
            let until = self.began + Duration::from_millis(self.last.load(Relaxed)) + may;
            if Instant::now() >= until {
                let after = if one_way { ", and one side had ended" } else { "" };
                return format!("nothing passed for {}{after}", humantime::format_duration(may));
            }
            // One side may end meanwhile.
            tokio::time::sleep_until(until.min(Instant::now() + half)).await;
        }
    }
}

/// Carries until both directions have ended, or one has failed: then the outer one is reset, and so is the inner one when
/// it is dropped without having been shut down, as whoever made it sees to.
pub async fn relay(
    inside: &mut (impl AsyncRead + AsyncWrite + Unpin),
    outside: &mut TcpStream,
    open: &Open,
) -> io::Result<()> {
    let (from_inside, to_inside) = tokio::io::split(inside);
    let (from_outside, to_outside) = outside.split();
    let clock = Clock { began: Instant::now(), last: AtomicU64::new(0), half: AtomicBool::new(false) };
    let out = carry(from_inside, to_outside, |bytes| open.out(bytes), &clock);
    let back = carry(from_outside, to_inside, |bytes| open.came(bytes), &clock);
    let carried = tokio::select! {
        carried = async { tokio::try_join!(out, back).map(drop) } => carried,
        why = clock.quiet(open.limits().idle) => {
            open.cut(why);
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    if carried.is_err() {
        let _ = outside.set_zero_linger();
    }
    carried
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: impl Fn(usize) -> bool,
    clock: &Clock,
) -> io::Result<()> {
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        if from.read_buf(&mut piece).await? == 0 {
            clock.tick();
            clock.half.store(true, Relaxed);
            return to.shutdown().await;
        }
        if !count(piece.len()) {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "more bytes than allowed"));
        }
        to.write_all(&piece).await?;
        clock.tick();
    }
}
