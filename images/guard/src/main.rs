//! Carries connections from the loopback of a container to the gateway, and knows nothing of where they lead.
//!
//!     guard PORT…
//!
//! It listens on each port of 127.0.0.1, and of ::1 where there is one. What connects becomes one stream of a single
//! HTTP/2 connection over its own stdin and stdout, opened by `CONNECT` with nothing but the place of the port in the
//! arguments, from 0. Which port is a proxy, what a name means and what may be reached is decided at the other end,
//! which is also the one that limits how many streams there are. When stdin ends, so does this.
//!
//! HTTP/2 has all that is needed, and the crate is everybody's: flow control for each stream, ends of one direction
//! alone, resets. All of them are passed on, so that a connection looks from inside as if it went straight to its target.

mod carry;

use std::env;
use std::io::{self, Write as _, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use tokio::net::TcpListener;
use tokio::net::unix::pipe;

/// The arguments are no ports.
const EXIT_USAGE: u8 = 2;
/// A port cannot be listened on, or stdin and stdout are no pipes.
const EXIT_UNABLE: u8 = 1;

/// What a stream may have under way before its client has taken it; all of them together are as many as the gateway has.
const WINDOW: u32 = 256 << 10;
const WINDOWS: u32 = (1 << 31) - 1;
/// The longest frame that is taken.
const FRAME: u32 = 64 << 10;
/// How long nothing is accepted after the system could not.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let ports: Option<Vec<u16>> = env::args().skip(1).map(|port| port.parse().ok().filter(|port| *port != 0)).collect();
    let Some(ports) = ports.filter(|ports| !ports.is_empty()) else {
        return told("usage: guard PORT...", EXIT_USAGE);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(&ports))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => told(&error.to_string(), EXIT_UNABLE),
    }
}

fn told(text: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "guard: {text}");
    ExitCode::from(code)
}

/// Listens, and only then speaks: the gateway's greeting is answered when every port is there.
async fn run(ports: &[u16]) -> io::Result<()> {
    let mut listeners = Vec::new();
    for (place, port) in ports.iter().enumerate() {
        listeners.extend(listen(*port).await?.into_iter().map(|listener| (place, listener)));
    }
    let input = pipe::Receiver::from_owned_fd(stdin().as_fd().try_clone_to_owned()?)?;
    let output = pipe::Sender::from_owned_fd(stdout().as_fd().try_clone_to_owned()?)?;
    let mut builder = client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOWS).max_frame_size(FRAME);
    // What is still under way on a stream that was reset is no error of the gateway's, however often it happens.
    builder.enable_push(false).max_local_error_reset_streams(None);
    let (request, connection) =
        builder.handshake::<_, Bytes>(tokio::io::join(input, output)).await.map_err(io::Error::other)?;
    for (place, listener) in listeners {
        tokio::spawn(serve(place, listener, request.clone()));
    }
    drop(request);
    // It ends with stdin, whatever is under way.
    connection.await.or_else(|error| if error.is_io() { Ok(()) } else { Err(io::Error::other(error)) })
}

/// A port of both loopback addresses; a container need not have the second one.
async fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    let at = |address: IpAddr| async move {
        let cannot =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}:{port}: {error}"));
        TcpListener::bind(SocketAddr::from((address, port))).await.map_err(cannot)
    };
    let mut listeners = vec![at(Ipv4Addr::LOCALHOST.into()).await?];
    match at(Ipv6Addr::LOCALHOST.into()).await {
        Ok(listener) => listeners.push(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        Err(_) => {}
    }
    Ok(listeners)
}

/// Takes what connects to one port, as fast as the gateway takes streams. A stream that waits for its turn is waited for
/// here before anybody else looks at it: h2 wakes only one of those who wait for the same stream.
async fn serve(place: usize, listener: TcpListener, mut request: SendRequest<Bytes>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(ready) = request.ready().await else { return };
        request = ready;
        let opening = http::Request::connect(place.to_string()).body(());
        let Ok((answer, stream)) =
            opening.map_err(drop).and_then(|head| request.send_request(head, false).map_err(drop))
        else {
            return;
        };
        let Ok(ready) = request.ready().await else { return };
        request = ready;
        tokio::spawn(carry::carry(client, answer, stream));
    }
}
