//! One plain HTTP request to its target, and the answer back. Knows no rules: it is given the connection.
//!
//! One request a connection: a second one could be for another host, and is never read.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::egress::passage::Open;

use super::chunked;
use super::head::{self, Body, Incomplete};
use super::inside::Inside;

/// What is carried at once.
const PIECE: usize = 64 << 10;
/// How long the other side may be quiet, where connections may be as long otherwise…
const QUIET: Duration = Duration::from_secs(300);
/// …and how long when the client has ended its side: mostly it is gone, since no answer interests it any more.
const GONE: Duration = Duration::from_secs(30);

/// How it went.
pub(super) enum Done {
    /// The answer was passed on.
    Whole,
    /// There is none, and the client has heard none yet.
    Unanswered(&'static str),
}

/// Sends the request and passes the answer on. An error leaves the client with half of one.
pub(super) async fn forward(
    inside: &mut Inside<impl AsyncRead + AsyncWrite + Unpin>,
    mut outside: TcpStream,
    open: &Open,
    head: &[u8],
    body: Body,
) -> io::Result<Done> {
    let done = exchange(inside, &mut outside, open, head, body).await;
    if done.is_err() {
        let _ = outside.set_zero_linger();
    }
    done
}

async fn exchange(
    inside: &mut Inside<impl AsyncRead + AsyncWrite + Unpin>,
    outside: &mut TcpStream,
    open: &Open,
    head: &[u8],
    body: Body,
) -> io::Result<Done> {
    let (from_inside, mut to_inside) = tokio::io::split(inside);
    let mut from_inside = BufReader::with_capacity(PIECE, from_inside);
    let (mut from_outside, mut to_outside) = outside.split();
    let send = async {
        counted(open.out(head.len()))?;
        to_outside.write_all(head).await?;
        let count = |bytes| counted(open.out(bytes));
        match body {
            Body::Length(length) => chunked::exactly(&mut from_inside, &mut to_outside, length, count).await?,
            Body::Chunked => chunked::pass(&mut from_inside, &mut to_outside, count).await?,
        }
        Ok(from_inside)
    };
    let (mut send, mut receive) = (pin!(send), pin!(receive(&mut from_outside, &mut to_inside, open)));
    // The answer may come before the request is whole; one that cannot be sent to its end may have one all the same.
    tokio::select! {
        done = &mut receive => done,
        sent = &mut send => match sent {
            Ok(from_inside) => tokio::select! {
                done = receive => done,
                gone = gone(from_inside, open) => Err(gone),
            },
            Err(error) if is_ours(&error) => Err(error),
            Err(_) => receive.await,
        },
    }
}

/// Resolves when nobody is there any more to read an answer. What else the client sends is not read as anything.
async fn gone(mut from: impl AsyncRead + Unpin, open: &Open) -> io::Error {
    let mut piece = [0; 1024];
    loop {
        match from.read(&mut piece).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    loop {
        let before = open.has_come();
        tokio::time::sleep(GONE).await;
        if open.has_come() == before {
            return io::ErrorKind::TimedOut.into();
        }
    }
}

/// Whether the request failed at the client's side or by a limit, and not because the target takes no more of it.
fn is_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, QuotaExceeded, UnexpectedEof};
    matches!(error.kind(), InvalidData | QuotaExceeded | UnexpectedEof)
}

fn counted(may_go_on: bool) -> io::Result<()> {
    if may_go_on { Ok(()) } else { Err(io::Error::new(io::ErrorKind::QuotaExceeded, "more bytes than allowed")) }
}

async fn receive(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    open: &Open,
) -> io::Result<Done> {
    let mut piece = BytesMut::with_capacity(PIECE);
    let mut interim = 0;
    loop {
        match head::answer(&piece) {
            Ok(((head, status), length)) if status >= 200 => {
                let _ = piece.split_to(length);
                to.write_all(&head).await?;
                break;
            }
            Ok(((head, status), length)) if status != 101 && interim < 16 => {
                interim += 1;
                let _ = piece.split_to(length);
                to.write_all(&head).await?;
                continue;
            }
            Ok(_) => return Ok(Done::Unanswered("it would change the protocol")),
            Err(Incomplete::Wrong(_)) => return Ok(Done::Unanswered("it is no HTTP")),
            Err(Incomplete::More) => {}
        }
        match more(from, &mut piece, open).await {
            Err(error) if interim == 0 && error.kind() == io::ErrorKind::TimedOut => {
                return Ok(Done::Unanswered("nothing came in time"));
            }
            Err(error) if interim == 0 && error.kind() == io::ErrorKind::QuotaExceeded => {
                return Ok(Done::Unanswered("it would have been more bytes than are allowed in a day"));
            }
            Ok(0) | Err(_) if interim == 0 => return Ok(Done::Unanswered("the connection ended before one")),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        to.write_all(&piece).await?;
        piece.clear();
        if more(from, &mut piece, open).await? == 0 {
            return Ok(Done::Whole);
        }
    }
}

async fn more(from: &mut (impl AsyncRead + Unpin), piece: &mut BytesMut, open: &Open) -> io::Result<usize> {
    piece.reserve(PIECE);
    let quiet = QUIET.min(open.limits().idle);
    let read = timeout(quiet, from.read_buf(piece)).await.unwrap_or_else(|_| {
        open.cut(format!("nothing came for {}", humantime::format_duration(quiet)));
        Err(io::ErrorKind::TimedOut.into())
    })?;
    counted(open.came(read))?;
    Ok(read)
}
