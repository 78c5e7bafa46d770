//! The client on the other end of our standard input and output: the only file that writes to standard output while the
//! gateway serves. Knows no JSON-RPC.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::wire::{Line, Lines};

/// Largest line of a client, bytes.
pub const CAP: usize = 32 << 20;

/// Lines written at once.
const BATCH: usize = 64;

/// Reads lines until the client closes its end.
pub async fn read(mut input: impl AsyncRead + Unpin, mut each: impl FnMut(Line)) -> io::Result<()> {
    let (mut lines, mut piece) = (Lines::new(CAP), vec![0; 64 * 1024]);
    loop {
        let count = input.read(&mut piece).await?;
        if count == 0 {
            break;
        }
        lines.push(&piece[..count], &mut each);
    }
    if let Some(line) = lines.finish() {
        each(line);
    }
    Ok(())
}

/// Writes lines until there are no more to come, or the client is gone.
pub async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::UnboundedReceiver<String>) -> io::Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while lines.recv_many(&mut batch, BATCH).await > 0 {
        // One write for all of them: each costs a way to another thread and back.
        let mut bytes = Vec::with_capacity(batch.iter().map(|line| line.len() + 1).sum());
        for line in batch.drain(..) {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        output.write_all(&bytes).await?;
        output.flush().await?;
    }
    Ok(())
}
