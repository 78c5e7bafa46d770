//! A client's stream with what was read of it too early. Knows no protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Reads what came early before what comes.
pub(super) struct Inside<S> {
    stream: S,
    early: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inside<S> {
    pub(super) fn new(stream: S) -> Self {
        Inside { stream, early: BytesMut::with_capacity(4 << 10) }
    }

    /// What has come and is not taken.
    pub(super) fn early(&self) -> &[u8] {
        &self.early
    }

    /// The first byte, left where it is; `None` where there is none.
    pub(super) async fn first(&mut self) -> io::Result<Option<u8>> {
        while self.early.is_empty() {
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
        Ok(self.early.first().copied())
    }

    /// Reads more; 0 at the end.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.early).await
    }

    /// Takes what has come away.
    pub(super) fn take(&mut self, length: usize) -> BytesMut {
        self.early.split_to(length)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inside<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..length]);
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inside<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
