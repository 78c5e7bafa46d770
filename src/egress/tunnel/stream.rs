//! A stream of HTTP/2 as bytes that are read and written. Knows nothing of what they are.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that is sent at once.
const PIECE: usize = 64 << 10;

/// Both directions. Dropped before it was shut down, it is reset.
pub(super) struct Stream {
    receive: RecvStream,
    send: SendStream<Bytes>,
    /// What came and was not read.
    piece: Bytes,
}

impl Stream {
    pub(super) fn new(receive: RecvStream, send: SendStream<Bytes>) -> Self {
        Stream { receive, send, piece: Bytes::new() }
    }
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_reset() {
        return io::Error::new(io::ErrorKind::ConnectionReset, error);
    }
    error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into())
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.piece.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                Some(piece) => self.piece = piece.map_err(broken)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.piece.len().min(buf.remaining());
        buf.put_slice(&self.piece[..length]);
        self.piece.advance(length);
        // What is read makes room for more.
        self.receive.flow_control().release_capacity(length).map_err(broken)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let wanted = buf.len().min(PIECE);
        self.send.reserve_capacity(wanted);
        while self.send.capacity() == 0 {
            match ready!(self.send.poll_capacity(cx)) {
                Some(more) => more.map_err(broken)?,
                None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            };
        }
        let length = wanted.min(self.send.capacity());
        self.send.send_data(Bytes::copy_from_slice(&buf[..length]), false).map_err(broken)?;
        Poll::Ready(Ok(length))
    }

    /// The connection sends by itself.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.send.send_data(Bytes::new(), true).map_err(broken))
    }
}
