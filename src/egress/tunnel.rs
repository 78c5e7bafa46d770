//! The gateway's end of the guard's one connection: streams in, and each to where its port leads. Knows no engine, and
//! no more of a stream than its first frame says.
//!
//! It is HTTP/2 with the guard as the client, which asks for `CONNECT` to the place of the port in its arguments. The
//! guard may be anybody by now: how much it may have under way, and how many streams, is limited here.

mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::io::StreamReader;

use crate::error::{Class, Fault};

use super::passage::Limits;
use super::relay::relay;
use super::{Egress, Listener, proxy};

/// What one stream may have under way to us before its reader has taken it. All of them together may have as much each,
/// so that one that nobody reads holds up no other.
const WINDOW: u32 = 256 << 10;
/// The most that HTTP/2 lets all of them have.
const MOST: u32 = (1 << 31) - 1;
/// The longest frame that is taken.
const FRAME: u32 = 64 << 10;
/// What is kept of each stream until the guard takes it.
const KEPT: usize = 256 << 10;
/// Streams beyond the connections that are allowed, so that those can be told so instead of being kept waiting.
const SPARE: usize = 16;

/// A guard that listens, and has said so.
pub struct Tunnel<T> {
    connection: Connection<T, Bytes>,
}

/// A guard's two outputs' better one and its input, as one.
pub fn over<S, W>(output: S, input: W) -> impl AsyncRead + AsyncWrite + Unpin
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
    W: AsyncWrite + Unpin,
{
    tokio::io::join(StreamReader::new(output), input)
}

impl<T: AsyncRead + AsyncWrite + Unpin> Tunnel<T> {
    /// Waits for the guard's first words, which it says when all its ports are there.
    pub async fn meet(io: T, limits: Limits, within: Duration) -> Result<Self, Fault> {
        let streams = u32::try_from(limits.connections.saturating_add(SPARE)).unwrap_or(u32::MAX);
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW.saturating_mul(streams).min(MOST))
            .max_frame_size(FRAME)
            .max_send_buffer_size(KEPT)
            .max_header_list_size(4 << 10)
            // What is still under way on a stream that was reset is no error of the guard's, however often it happens.
            .max_local_error_reset_streams(None)
            .max_concurrent_streams(streams);
        let unheard = |why: String| {
            Fault::new(Class::Isolation, "the guard of its network does not answer")
                .with_inward(format!("the guard of its network does not answer: {why}"))
        };
        match timeout(within, builder.handshake(io)).await {
            Ok(Ok(connection)) => Ok(Tunnel { connection }),
            Ok(Err(error)) => Err(unheard(error.to_string())),
            Err(_) => Err(unheard(format!("nothing within {within:?}"))),
        }
    }

    /// Serves until the guard ends; dropped, all that is under way ends with it.
    pub async fn serve(mut self, egress: Arc<Egress>) -> Result<(), Fault> {
        let listeners: Arc<[Listener]> =
            egress.policy().listeners().into_iter().map(|(_, listener)| listener).collect();
        let mut streams = JoinSet::new();
        while let Some(asked) = self.connection.accept().await {
            let (request, answer) = asked.map_err(|error| {
                Fault::new(Class::Crashed, "the guard of its network has ended")
                    .with_inward(format!("the guard of its network has ended: {error}"))
            })?;
            streams.spawn(one(request, answer, listeners.clone(), egress.clone()));
            while streams.try_join_next().is_some() {}
        }
        Ok(())
    }
}

/// One connection from inside. One that is not ended here is reset by being dropped.
async fn one(
    request: Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
    listeners: Arc<[Listener]>,
    egress: Arc<Egress>,
) -> io::Result<()> {
    let place = request.uri().authority().filter(|_| request.method() == Method::CONNECT);
    let place: Option<usize> = place.and_then(|place| place.as_str().parse().ok());
    let Some(listener) = place.and_then(|place| listeners.get(place)) else {
        egress.malformed("came to a port that nobody asked for").await;
        return refuse(&mut answer);
    };
    let accepted = Response::new(());
    match listener {
        Listener::Proxy => {
            let send = answer.send_response(accepted, false).map_err(io::Error::other)?;
            proxy::serve(stream::Stream::new(request.into_body(), send), &egress).await
        }
        // The client hears of a port that nobody serves as it would from the host: the connection does not last.
        Listener::HostPort(port) => match egress.host_port(*port).await {
            Ok((mut outside, open)) => {
                let send = answer.send_response(accepted, false).map_err(io::Error::other)?;
                relay(&mut stream::Stream::new(request.into_body(), send), &mut outside, &open).await
            }
            Err(_) => refuse(&mut answer),
        },
    }
}

fn refuse(answer: &mut SendResponse<Bytes>) -> io::Result<()> {
    let mut refused = Response::new(());
    *refused.status_mut() = StatusCode::BAD_GATEWAY;
    answer.send_response(refused, true).map(drop).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
