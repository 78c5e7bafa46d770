//! The client on the other end of our standard input and output: the only file that writes to standard output while the
//! gateway serves. Knows no JSON-RPC.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::wire::{Line, Lines};

use super::outbox::Pickup;

/// Largest line of a client, bytes.
pub const CAP: usize = 32 << 20;

/// Lines written at once.
const BATCH: usize = 64;

/// Reads lines until the client closes its end; no further one while `each` is at work.
pub async fn read(mut input: impl AsyncRead + Unpin, mut each: impl AsyncFnMut(Line)) -> io::Result<()> {
    let (mut lines, mut piece, mut whole) = (Lines::new(CAP), vec![0; 64 * 1024], Vec::new());
    loop {
        let count = input.read(&mut piece).await?;
        if count == 0 {
            break;
        }
        lines.push(&piece[..count], |line| whole.push(line));
        for line in whole.drain(..) {
            each(line).await;
        }
    }
    if let Some(line) = lines.finish() {
        each(line).await;
    }
    Ok(())
}

/// Writes lines until there are no more to come, or the client is gone.
pub async fn write(mut output: impl AsyncWrite + Unpin, mut pickup: Pickup) -> io::Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while pickup.take(&mut batch, BATCH).await > 0 {
        // One write for all of them: each costs a way to another thread and back.
        let mut bytes = Vec::with_capacity(batch.iter().map(|queued| queued.line.len() + 1).sum());
        for queued in &batch {
            bytes.extend_from_slice(queued.line.as_bytes());
            bytes.push(b'\n');
        }
        output.write_all(&bytes).await?;
        output.flush().await?;
        batch.clear();
    }
    Ok(())
}
