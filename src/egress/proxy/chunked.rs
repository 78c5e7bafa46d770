//! A chunked body passed on to where it ends, and no further. Knows no request.

use std::io;

use httparse::Status;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest line between two chunks.
const LINE: u64 = 8 << 10;
/// The most lines after the last one.
const TRAILERS: usize = 64;

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not chunks")
}

/// Passes the chunks and the trailer on; `count` is asked before each piece. Extensions of chunks and the trailer's fields
/// are left out: nobody needs them, and few read them alike (RFC 9112, 7.1).
pub(super) async fn pass(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: impl Fn(usize) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let size = line(from).await?;
        let size = match httparse::parse_chunk_size(&size) {
            Ok(Status::Complete((_, size))) => size,
            _ => return Err(malformed()),
        };
        if size == 0 {
            break;
        }
        to.write_all(format!("{size:x}\r\n").as_bytes()).await?;
        exactly(from, to, size, &count).await?;
        if line(from).await? != b"\r\n" {
            return Err(malformed());
        }
        to.write_all(b"\r\n").await?;
    }
    for _ in 0..TRAILERS {
        if line(from).await? == b"\r\n" {
            return to.write_all(b"0\r\n\r\n").await;
        }
    }
    Err(malformed())
}

/// Passes on that many bytes.
pub(super) async fn exactly(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    length: u64,
    count: impl Fn(usize) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let piece = from.fill_buf().await?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        count(taken)?;
        to.write_all(&piece[..taken]).await?;
        from.consume(taken);
        left -= taken as u64;
    }
    Ok(())
}

/// A line with its end, which must be the full one.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LINE).read_until(b'\n', &mut line).await?;
    if line.ends_with(b"\r\n") { Ok(line) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(text: &[u8]) -> (io::Result<()>, Vec<u8>, Vec<u8>) {
        let (mut from, mut to) = (text, Vec::new());
        let ended = pass(&mut from, &mut to, |_| Ok(())).await;
        (ended, to, from.to_vec())
    }

    #[tokio::test]
    async fn chunks_end_where_they_say() {
        let (ended, to, left) = passed(b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET http://evil/").await;
        assert!(ended.is_ok());
        assert_eq!(to, b"5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(left, b"GET http://evil/");
    }

    #[tokio::test]
    async fn what_is_no_chunk_ends_it() {
        let long = [b"1;".as_slice(), &[b'x'; 9000], b"\r\na\r\n0\r\n\r\n"].concat();
        let trailers = [b"0\r\n".as_slice(), &b"A: b\r\n".repeat(100), b"\r\n"].concat();
        let wrong: [&[u8]; 10] = [
            b"",
            b"x\r\n",
            b"-1\r\n",
            b"5\r\nhello6\r\n",
            b"5\nhello\n0\n\n",
            b"5\r\nhel",
            b"5\r\nhello\n0\r\n\r\n",
            b"ffffffffffffffffff\r\n",
            &long,
            &trailers,
        ];
        for text in wrong {
            assert!(passed(text).await.0.is_err(), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
