//! The life of a running server: its output is read until it ends, then it is cleared away and everybody is told.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wire::Lines;

use super::super::link::{Link, Output};
use super::{Limits, Peer};

/// Lines written at once.
const BATCH: usize = 64;

pub(super) async fn run(peer: Arc<Peer>, link: Link, lines: mpsc::Receiver<String>, limits: Limits) {
    let Link { input, mut output, process } = link;
    let stop_writing = CancellationToken::new();
    let writer = tokio::spawn(write(input, lines, stop_writing.clone()));
    let mut split = Lines::new(limits.cap);
    loop {
        tokio::select! {
            piece = output.next() => match piece {
                Some(Ok(piece)) => tokio::select! {
                    () = take(&peer, &mut split, piece) => {}
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
                Some(Ok(piece)) => take(&peer, &mut split, piece).await,
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

async fn take(peer: &Peer, split: &mut Lines, piece: Output) {
    match piece {
        Output::Stdout(bytes) => {
            let mut lines = Vec::new();
            split.push(&bytes, |line| lines.push(line));
            for line in lines {
                peer.receive(line).await;
            }
        }
        Output::Stderr(bytes) => peer.tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes),
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
