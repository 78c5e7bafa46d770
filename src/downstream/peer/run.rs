//! The life of a running server: its output is read until it ends, then it is cleared away and everybody is told.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wire::{Line, Lines};

use super::super::link::{Link, Output};
use super::super::pace::Pace;
use super::{Limits, Peer};

/// Lines written at once.
const BATCH: usize = 64;

pub(super) async fn run(peer: Arc<Peer>, link: Link, lines: mpsc::Receiver<String>, limits: Limits) {
    let Link { input, mut output, process } = link;
    let stop_writing = CancellationToken::new();
    let writer = tokio::spawn(write(input, lines, stop_writing.clone()));
    let mut split = Lines::new(limits.cap);
    let mut pace = Pace::new(Instant::now());
    loop {
        tokio::select! {
            piece = output.next() => match piece {
                Some(Ok(piece)) => tokio::select! {
                    () = take(&peer, &mut split, piece, &mut pace) => {}
                    () = peer.closing.cancelled() => break,
                },
                Some(Err(error)) => {
                    tracing::debug!(server = %peer.name, %error, "the server's output broke off");
                    break;
                }
                None => break,
            },
            () = peer.closing.cancelled() => break,
        }
    }
    // EOF for the server: the writer drops its input.
    stop_writing.cancel();
    let _ = writer.await;
    let grace = if peer.closing.is_cancelled() { limits.grace } else { limits.grace.min(Duration::from_millis(300)) };
    let mut end = process.end(grace);
    let mut open = true;
    let ending = loop {
        // What it still writes is read, since a full pipe would keep it from ending.
        tokio::select! {
            ending = &mut end => break ending,
            piece = output.next(), if open => match piece {
                Some(Ok(piece)) => take(&peer, &mut split, piece, &mut pace).await,
                _ => open = false,
            },
        }
    };
    drop(end);
    if let Some(line) = split.finish() {
        peer.receive_last(line).await;
    }
    peer.end.send_replace(Some(ending));
    // Everybody who still waits learns of the end by the loss of the sender.
    peer.waiting.clear();
}

/// Takes in a piece of output, at the pace at which output is read.
async fn take(peer: &Peer, split: &mut Lines, piece: Output, pace: &mut Pace) {
    let pause = match piece {
        Output::Stdout(bytes) => {
            let mut lines = Vec::new();
            split.push(&bytes, |line| lines.push(line));
            let pause = pace.read(bytes.len(), lines.len(), Instant::now());
            for line in lines {
                let length = match &line {
                    Line::Whole(bytes) => bytes.len(),
                    Line::TooLong { .. } => 0,
                };
                if peer.receive(line).await {
                    pace.wanted(length);
                }
            }
            pause
        }
        Output::Stderr(bytes) => {
            peer.tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes);
            // Nobody looks at its lines one by one.
            pace.read(bytes.len(), 0, Instant::now())
        }
    };
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
}

async fn write(mut input: Pin<Box<dyn AsyncWrite + Send>>, mut lines: mpsc::Receiver<String>, stop: CancellationToken) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            count = lines.recv_many(&mut batch, BATCH) => count,
        };
        if count == 0 {
            break;
        }
        let mut bytes = Vec::with_capacity(batch.iter().map(|line| line.len() + 1).sum());
        for line in batch.drain(..) {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        let written = tokio::select! {
            () = stop.cancelled() => break,
            written = async { input.write_all(&bytes).await?; input.flush().await } => written,
        };
        // A server that closed its input may still answer; its end is seen on its output.
        if written.is_err() {
            break;
        }
    }
    let _ = input.shutdown().await;
}
