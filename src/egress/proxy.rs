//! The proxy that programs inside talk to: HTTP and SOCKS 5 on one port, told apart by the first byte. Decides nothing.

mod chunked;
mod forward;
mod head;
mod inside;
mod socks;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::Egress;
use super::passage::Open;
use super::refusal::{Kind, Refusal};
use super::relay::relay;
use super::rule::Target;
use head::{Form, Incomplete, Request};
use inside::Inside;

/// What a client is told, and the audit, that has not said in time where it wants to go.
const LATE: &str = "sent no whole request in time";
/// How long and how far a client is still listened to that has had its answer. To hang up on what it sends could take the
/// answer away from it again.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

/// Serves one connection to its end. An error means that it was not ended as it should be, so that it is to be reset.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, egress: &Egress) -> io::Result<()> {
    let mut inside = Inside::new(stream);
    let within = egress.policy().limits.request;
    match timeout(within, inside.first()).await {
        Ok(Ok(Some(socks::VERSION))) => socks::serve(inside, egress).await,
        Ok(Ok(Some(_))) => http(inside, egress).await,
        // Who says nothing and goes has not asked for anything.
        Ok(Ok(None)) => inside.shutdown().await,
        Ok(Err(error)) => Err(error),
        Err(_) => {
            egress.malformed(LATE).await;
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

async fn http(mut inside: Inside<impl AsyncRead + AsyncWrite + Unpin>, egress: &Egress) -> io::Result<()> {
    let request = match timeout(egress.policy().limits.request, read(&mut inside, head::request)).await {
        Ok(Ok(request)) => request,
        Ok(Err(Unread::Broken(error))) => return Err(error),
        Ok(Err(Unread::Malformed(why))) => {
            let refusal = egress.malformed(why).await;
            return answer(inside, egress, &refusal).await;
        }
        Err(_) => {
            let refusal = egress.malformed(LATE).await;
            return answer(inside, egress, &refusal).await;
        }
    };
    let Request { target, form } = request;
    match (egress.connect(&target).await, form) {
        (Err(refusal), _) => answer(inside, egress, &refusal).await,
        (Ok((mut outside, open)), Form::Tunnel) => {
            inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            relay(&mut inside, &mut outside, &open).await
        }
        (Ok((outside, open)), Form::Plain { head, body }) => {
            match forward::forward(&mut inside, outside, &open, &head, body).await? {
                forward::Done::Whole => linger(inside).await,
                forward::Done::Unanswered(why) => answer(inside, egress, &unanswered(&target, why, open)).await,
            }
        }
    }
}

/// The other side took the request and gave no answer that can be passed on.
fn unanswered(target: &Target, why: &str, open: Open) -> Refusal {
    drop(open);
    Refusal::new(Kind::Unreachable, format!("had no answer from {target}: {why}"))
}

/// Why nothing was read.
enum Unread {
    Broken(io::Error),
    Malformed(String),
}

/// Reads until what has come can be parsed.
async fn read<T>(
    inside: &mut Inside<impl AsyncRead + AsyncWrite + Unpin>,
    parse: impl Fn(&[u8]) -> Result<(T, usize), Incomplete>,
) -> Result<T, Unread> {
    loop {
        match parse(inside.early()) {
            Ok((parsed, length)) => {
                inside.take(length);
                return Ok(parsed);
            }
            Err(Incomplete::Wrong(why)) => return Err(Unread::Malformed(why)),
            Err(Incomplete::More) => {}
        }
        if inside.fill().await.map_err(Unread::Broken)? == 0 {
            return Err(Unread::Malformed("ended within its request".to_owned()));
        }
    }
}

/// Says why not. The text is in the first line, too, since many programs show no more than that of a proxy's answer.
async fn answer(
    mut inside: Inside<impl AsyncRead + AsyncWrite + Unpin>,
    egress: &Egress,
    refusal: &Refusal,
) -> io::Result<()> {
    let status = match refusal.kind {
        Kind::Denied => 403,
        Kind::Malformed => 400,
        Kind::Limit | Kind::Unrecorded => 503,
        Kind::Unreachable => 502,
        Kind::Late => 504,
    };
    let text = egress.told(refusal);
    let reason: String =
        text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).take(400).collect();
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\nProxy-Connection: close\r\n\r\n{text}\n",
        text.len() + 1
    );
    inside.write_all(answer.as_bytes()).await?;
    linger(inside).await
}

/// Ends our direction, and listens a little longer.
async fn linger(mut inside: Inside<impl AsyncRead + AsyncWrite + Unpin>) -> io::Result<()> {
    inside.shutdown().await?;
    let drain = async {
        let mut left = LINGER_BYTES;
        let mut piece = vec![0; 8 << 10];
        while left > 0 {
            match inside.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
            }
        }
    };
    let _ = timeout(LINGER, drain).await;
    Ok(())
}

#[cfg(test)]
mod tests;
