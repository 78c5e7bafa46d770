//! A guard made of the same crate, over pipes in memory: what it may ask for, and what comes of it.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

use crate::egress::testing::egress;

use super::*;

const LONG: Duration = Duration::from_secs(30);

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A guard whose tunnel is served.
async fn guard(egress: &Arc<Egress>) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), Fault>>) {
    let (near, far): (DuplexStream, _) = tokio::io::duplex(64 << 10);
    let served = egress.clone();
    let task = tokio::spawn(async move { Tunnel::meet(far, served.policy().limits, LONG).await?.serve(served).await });
    // As the real one does: one stream that nobody reads must not use up what is for all.
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(256 << 10).initial_connection_window_size((1 << 31) - 1);
    let (request, connection) = builder.handshake(near).await.unwrap();
    tokio::spawn(connection);
    (request, task)
}

async fn ask(request: &SendRequest<Bytes>, place: &str) -> (StatusCode, SendStream<Bytes>, RecvStream) {
    let head = Request::connect(place).body(()).unwrap();
    let (answer, send) = request.clone().ready().await.unwrap().send_request(head, false).unwrap();
    let answer = tokio::time::timeout(LONG, answer).await.unwrap().unwrap();
    (answer.status(), send, answer.into_body())
}

async fn all(receive: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = tokio::time::timeout(LONG, receive.data()).await.expect("words in time") {
        let piece = piece?;
        receive.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_port_of_the_host_is_reached_with_every_byte_and_both_ends() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[], &[port], Limits::default());
    let (request, _task) = guard(&egress).await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        // The other direction is still there after the first has ended.
        stream.write_all(&vec![7; 3 << 20]).await.unwrap();
        all
    });
    let (status, mut send, mut receive) = ask(&request, "0").await;
    assert_eq!(status, StatusCode::OK);
    send.send_data(Bytes::from_static(b"hello"), false).unwrap();
    send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(all(&mut receive).await.unwrap(), vec![7; 3 << 20]);
    assert_eq!(server.await.unwrap(), b"hello");
    let passage = seen.passages(1).await.remove(0);
    assert_eq!((passage.target, passage.decision), (format!("127.0.0.1:{port}"), "allow"));
    assert_eq!((passage.bytes_out, passage.bytes_in), (5, 3 << 20));
    let usage = egress.usage();
    assert_eq!((usage.open, usage.connections, usage.bytes_in), (0, 1, 3 << 20));
}

#[tokio::test]
async fn only_a_place_that_was_given_leads_anywhere() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[], &[port], Limits::default());
    let (request, _task) = guard(&egress).await;
    for place in ["1", "99999999999999999999", "-1", "a", "127.0.0.1:22", "0.", &port.to_string()] {
        let (status, _, _) = ask(&request, place).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{place}");
    }
    assert!(seen.passages(7).await.iter().all(|passage| passage.decision == "malformed"));
    assert_eq!((seen.opened(), egress.usage().refused), (0, 7));
    drop(listener);
    let (status, _, _) = ask(&request, "0").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert_eq!(seen.passages(8).await[7].decision, "unreachable");
}

#[tokio::test]
async fn a_reset_goes_through_in_both_directions() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[], &[port], Limits::default());
    let (request, _task) = guard(&egress).await;

    let (_, _send, mut receive) = ask(&request, "0").await;
    let (outside, _) = listener.accept().await.unwrap();
    outside.set_zero_linger().unwrap();
    drop(outside);
    assert!(all(&mut receive).await.unwrap_err().is_reset());

    let (_, mut send, _receive) = ask(&request, "0").await;
    let (mut outside, _): (TcpStream, _) = listener.accept().await.unwrap();
    send.send_reset(h2::Reason::CANCEL);
    let read = tokio::time::timeout(LONG, outside.read(&mut [0; 8])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    seen.passages(2).await;
}

#[tokio::test]
async fn who_reads_slowly_holds_up_the_sender_and_nobody_else() {
    let (listener, port) = listener().await;
    let (egress, _seen) = egress(&[], &[port], Limits::default());
    let (request, _task) = guard(&egress).await;
    let (_, _slow, mut unread) = ask(&request, "0").await;
    let (mut outside, _) = listener.accept().await.unwrap();
    let flood = tokio::spawn(async move {
        let mut sent = 0usize;
        let piece = vec![1; 64 << 10];
        while tokio::time::timeout(Duration::from_secs(1), outside.write_all(&piece)).await.is_ok() {
            sent += piece.len();
            assert!(sent < 256 << 20, "nothing holds it up");
        }
        (sent, outside)
    });
    let (sent, outside) = flood.await.unwrap();
    let (_, mut send, mut receive) = ask(&request, "0").await;
    let (mut other, _) = listener.accept().await.unwrap();
    send.send_data(Bytes::from_static(b"ping"), true).unwrap();
    let mut got = Vec::new();
    other.read_to_end(&mut got).await.unwrap();
    other.write_all(b"pong").await.unwrap();
    drop(other);
    assert_eq!((got.as_slice(), all(&mut receive).await.unwrap().as_slice()), (&b"ping"[..], &b"pong"[..]));
    drop(outside);
    let left = all(&mut unread).await.unwrap().len();
    assert!(left >= sent, "{left} of {sent}");
}

#[tokio::test]
async fn connections_and_bytes_have_limits() {
    let (listener, port) = listener().await;
    let limits = Limits { connections: 2, bytes_per_day: Some(1000), ..Limits::default() };
    let (egress, seen) = egress(&[], &[port], limits);
    let (request, _task) = guard(&egress).await;
    let (_, mut first, mut receive) = ask(&request, "0").await;
    let (_, _second, _) = ask(&request, "0").await;
    assert_eq!(ask(&request, "0").await.0, StatusCode::BAD_GATEWAY);
    assert_eq!((seen.passages(1).await[0].decision, egress.usage().open), ("limit", 2));
    let (mut outside, _) = listener.accept().await.unwrap();
    first.send_data(Bytes::from(vec![0; 2000]), false).unwrap();
    assert!(all(&mut receive).await.unwrap_err().is_reset());
    let mut got = Vec::new();
    let _ = outside.read_to_end(&mut got).await;
    assert_eq!(got.len(), 0, "what is too much does not leave");
    let cut = seen.passages(2).await.remove(1);
    let why = "cut: it would have been more than 1000 bytes a day";
    assert_eq!((cut.decision, cut.reason.as_deref(), egress.usage().cut), ("allow", Some(why), 1));
    assert_eq!(ask(&request, "0").await.0, StatusCode::BAD_GATEWAY);
    assert_eq!(seen.passages(3).await[2].decision, "limit");
}

#[tokio::test]
async fn hundreds_of_connections_one_after_the_other_are_no_flood() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[], &[port], Limits::default());
    let (request, _task) = guard(&egress).await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut byte = [0];
            // Every other one is reset.
            match stream.read(&mut byte).await {
                Ok(1) if byte == [1] => stream.set_zero_linger().unwrap(),
                _ => stream.write_all(&byte).await.unwrap(),
            }
        }
    });
    for n in 0..600u16 {
        let (_, mut send, mut receive) = ask(&request, "0").await;
        let byte = Bytes::copy_from_slice(&[(n % 2) as u8]);
        send.send_data(byte, false).unwrap();
        send.send_data(Bytes::new(), true).unwrap();
        let _ = all(&mut receive).await;
    }
    assert_eq!(seen.passages(600).await.len(), 600);
}

#[tokio::test]
async fn the_end_of_the_tunnel_is_the_end_of_all_that_is_under_way() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[], &[port], Limits::default());
    let (request, task) = guard(&egress).await;
    let (_, _send, _receive) = ask(&request, "0").await;
    let (mut outside, _) = listener.accept().await.unwrap();
    task.abort();
    assert!(!matches!(tokio::time::timeout(LONG, outside.read(&mut [0; 8])).await.unwrap(), Ok(1..)));
    assert_eq!(seen.passages(1).await.len(), 1);
    assert_eq!(egress.usage().open, 0);
}

#[tokio::test]
async fn what_is_no_guard_is_not_met() {
    let greet = async |words: &'static [u8]| {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(words).await.unwrap();
        Tunnel::meet(far, Limits::default(), Duration::from_millis(200)).await.err().map(|fault| fault.class)
    };
    assert_eq!(greet(b"GET / HTTP/1.1\r\n\r\n").await, Some(Class::Isolation));
    assert_eq!(greet(b"").await, Some(Class::Isolation));
}
