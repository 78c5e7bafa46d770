//! One connection and its stream: bytes, ends and resets, both ways. Knows no ports.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// The most that is read at once.
const PIECE: usize = 64 << 10;

/// Carries one connection to its end. A failure of either side is a reset to the other.
pub(super) async fn carry(mut client: TcpStream, answer: ResponseFuture, mut stream: SendStream<Bytes>) {
    let _ = client.set_nodelay(true);
    let (from, to) = client.split();
    let whole = AtomicBool::new(false);
    let carried = both(up(from, &mut stream), down(answer, to, &whole)).await;
    if carried.is_err() {
        stream.send_reset(h2::Reason::CANCEL);
        // A client that has all that there was to come may take its time to read it: a reset would take it away.
        if !whole.load(Relaxed) {
            let _ = client.set_zero_linger();
        }
    }
}

/// Both futures to their end, or one to its failure.
async fn both(
    one: impl Future<Output = io::Result<()>>,
    other: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (false, false);
    poll_fn(|cx| {
        let mut step = |done: &mut bool, future: Pin<&mut dyn Future<Output = io::Result<()>>>| {
            if !*done && let Poll::Ready(ended) = future.poll(cx) {
                *done = true;
                return ended;
            }
            Ok(())
        };
        if let Err(error) = step(&mut first, one.as_mut()).and_then(|()| step(&mut second, other.as_mut())) {
            return Poll::Ready(Err(error));
        }
        if first && second { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

async fn up(mut from: ReadHalf<'_>, stream: &mut SendStream<Bytes>) -> io::Result<()> {
    let mut piece = BytesMut::new();
    loop {
        piece.reserve(PIECE);
        if read(&mut from, &mut piece, stream).await? == 0 {
            return stream.send_data(Bytes::new(), true).map_err(io::Error::other);
        }
        while !piece.is_empty() {
            let room = room(stream, piece.len()).await?;
            let part = piece.split_to(room.min(piece.len())).freeze();
            stream.send_data(part, false).map_err(io::Error::other)?;
        }
    }
}

/// What the client sends next; a failure once the gateway has given up the stream.
async fn read(from: &mut ReadHalf<'_>, piece: &mut BytesMut, stream: &mut SendStream<Bytes>) -> io::Result<usize> {
    let mut reading = pin!(from.read_buf(piece));
    poll_fn(|cx| {
        if let Poll::Ready(reset) = stream.poll_reset(cx) {
            return Poll::Ready(Err(reset.map_or_else(io::Error::other, |_| io::ErrorKind::ConnectionReset.into())));
        }
        reading.as_mut().poll(cx)
    })
    .await
}

/// Waits until some of what is wanted may be sent.
async fn room(stream: &mut SendStream<Bytes>, wanted: usize) -> io::Result<usize> {
    stream.reserve_capacity(wanted);
    loop {
        match stream.capacity() {
            0 => match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(more) => more.map_err(io::Error::other)?,
                None => return Err(io::ErrorKind::ConnectionReset.into()),
            },
            room => return Ok(room),
        };
    }
}

async fn down(answer: ResponseFuture, mut to: WriteHalf<'_>, whole: &AtomicBool) -> io::Result<()> {
    let answer = answer.await.map_err(io::Error::other)?;
    if answer.status() != StatusCode::OK {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let mut stream: RecvStream = answer.into_body();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(io::Error::other)?;
        to.write_all(&piece).await?;
        stream.flow_control().release_capacity(piece.len()).map_err(io::Error::other)?;
    }
    whole.store(true, Relaxed);
    to.shutdown().await
}
