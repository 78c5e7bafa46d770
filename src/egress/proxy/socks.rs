//! SOCKS 5 (RFC 1928): no authentication, CONNECT alone, names and both kinds of address. Decides nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::egress::Egress;
use crate::egress::host::Host;
use crate::egress::refusal::Kind;
use crate::egress::relay::relay;
use crate::egress::rule::Target;

use super::inside::Inside;
use super::{LATE, linger};

/// The first byte of everything that is said.
pub(super) const VERSION: u8 = 5;
/// No authentication, and no method that we have.
const ANYBODY: u8 = 0;
const NO_METHOD: u8 = 0xff;
/// To be connected.
const CONNECT: u8 = 1;

/// What is answered, beside 0 for a connection.
mod reply {
    pub(super) const FAILED: u8 = 1;
    pub(super) const DENIED: u8 = 2;
    pub(super) const UNREACHABLE: u8 = 4;
    pub(super) const LATE: u8 = 6;
    pub(super) const NO_COMMAND: u8 = 7;
    pub(super) const NO_ADDRESS: u8 = 8;
}

/// What a client wants.
enum Asked {
    For(Target),
    /// None of the methods that there are.
    Method,
    /// What cannot be read; the reply to it, and why.
    Wrong(u8, String),
}

pub(super) async fn serve(mut inside: Inside<impl AsyncRead + AsyncWrite + Unpin>, egress: &Egress) -> io::Result<()> {
    let asked = match timeout(egress.policy().limits.request, ask(&mut inside)).await {
        Ok(asked) => asked?,
        Err(_) => {
            egress.malformed(LATE).await;
            return Err(io::ErrorKind::TimedOut.into());
        }
    };
    let reply = match asked {
        Asked::Method => {
            egress.malformed("offered no SOCKS method that is known: none is needed").await;
            inside.write_all(&[VERSION, NO_METHOD]).await?;
            return linger(inside).await;
        }
        Asked::Wrong(reply, why) => {
            egress.malformed(why).await;
            reply
        }
        Asked::For(target) => match egress.connect(&target).await {
            Ok((mut outside, open)) => {
                inside.write_all(&answer(0)).await?;
                return relay(&mut inside, &mut outside, &open).await;
            }
            Err(refusal) => word(refusal.kind),
        },
    };
    inside.write_all(&answer(reply)).await?;
    linger(inside).await
}

fn word(kind: Kind) -> u8 {
    match kind {
        Kind::Denied => reply::DENIED,
        Kind::Unreachable => reply::UNREACHABLE,
        Kind::Late => reply::LATE,
        Kind::Limit | Kind::Malformed | Kind::Unrecorded => reply::FAILED,
    }
}

/// The address that it is bound to is nobody's business.
fn answer(reply: u8) -> [u8; 10] {
    [VERSION, reply, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// The greeting and the request.
async fn ask(inside: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Asked> {
    inside.read_u8().await?;
    let mut methods = vec![0; usize::from(inside.read_u8().await?)];
    inside.read_exact(&mut methods).await?;
    if !methods.contains(&ANYBODY) {
        return Ok(Asked::Method);
    }
    inside.write_all(&[VERSION, ANYBODY]).await?;
    let mut start = [0; 4];
    inside.read_exact(&mut start).await?;
    let [version, command, _, kind] = start;
    let wrong = |reply, why: &str| Ok(Asked::Wrong(reply, format!("sent a SOCKS request {why}")));
    if version != VERSION {
        return wrong(reply::FAILED, "of another version");
    }
    let host = match kind {
        1 => Host::address(IpAddr::from(Ipv4Addr::from(inside.read_u32().await?))),
        4 => Host::address(IpAddr::from(Ipv6Addr::from(inside.read_u128().await?))),
        3 => {
            let mut name = vec![0; usize::from(inside.read_u8().await?)];
            inside.read_exact(&mut name).await?;
            // What is no text has characters that no name has, either.
            Host::bare(std::str::from_utf8(&name).unwrap_or("\0"))
        }
        _ => return wrong(reply::NO_ADDRESS, "for no known kind of address"),
    };
    let port = inside.read_u16().await?;
    match (command, host) {
        (CONNECT, Ok(host)) if port != 0 => Ok(Asked::For(Target { host, port })),
        (CONNECT, Ok(_)) => wrong(reply::FAILED, "without a port"),
        (CONNECT, Err(bad)) => wrong(reply::DENIED, &format!("for no host: {bad}")),
        _ => wrong(reply::NO_COMMAND, "other than CONNECT"),
    }
}
