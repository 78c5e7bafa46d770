//! Clients of the proxy in memory, and a server on this host's loopback that a rule names.

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};

use crate::egress::passage::Limits;
use crate::egress::testing::{Seen, egress, with};
use crate::egress::{Egress, passage::Passage};

use super::*;

const LONG: Duration = Duration::from_secs(30);

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A client's end of a connection to the proxy.
fn client(egress: &std::sync::Arc<Egress>) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    let egress = egress.clone();
    tokio::spawn(async move { serve(far, &egress).await });
    near
}

/// All that is answered to these bytes, with our direction ended.
async fn talk(egress: &std::sync::Arc<Egress>, bytes: &[u8]) -> Vec<u8> {
    let mut client = client(egress);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, client.read_to_end(&mut answer)).await.unwrap().unwrap();
    answer
}

async fn text(egress: &std::sync::Arc<Egress>, request: &str) -> String {
    String::from_utf8(talk(egress, request.as_bytes()).await).unwrap()
}

async fn until(stream: &mut (impl AsyncRead + Unpin), end: &[u8]) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end) {
        got.push(timeout(LONG, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(got).unwrap()
}

/// Takes one connection, reads to the end of a head, answers, and gives back what it read.
async fn once(listener: TcpListener, answer: &'static [u8]) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = until(&mut stream, b"\r\n\r\n").await;
    stream.write_all(answer).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_string(&mut head).await;
    head
}

fn short(passage: &Passage) -> (&str, &str) {
    (&passage.target, passage.decision)
}

#[tokio::test]
async fn a_tunnel_carries_what_came_early_and_all_that_follows() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[&format!("a.org:{port}"), &format!("127.0.0.1:{port}")], &[], Limits::default());
    let mut client = client(&egress);
    client.write_all(format!("CONNECT A.ORG:{port} HTTP/1.1\r\n\r\nearly").as_bytes()).await.unwrap();
    let (mut server, _): (TcpStream, _) = listener.accept().await.unwrap();
    assert_eq!(until(&mut client, b"\r\n\r\n").await, "HTTP/1.1 200 Connection established\r\n\r\n");
    assert_eq!(until(&mut server, b"early").await, "early");
    client.write_all(b" late").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = String::new();
    server.read_to_string(&mut rest).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!((rest.as_str(), answer.as_str()), (" late", "answer"));
    let passage = seen.passages(1).await.remove(0);
    assert_eq!(short(&passage), (format!("a.org:{port}").as_str(), "allow"));
    assert_eq!((passage.bytes_out, passage.bytes_in, seen.opened()), (10, 6, 1));
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_with_words() {
    let (egress, seen) = egress(&["a.org:443", "*.b.org:80"], &[], Limits::default());
    let answer = text(&egress, "CONNECT evil.org:443 HTTP/1.1\r\n\r\n").await;
    let why = "bulkhead: server notes may not reach evil.org:443; allowed: a.org:443, *.b.org:80";
    assert!(
        answer.starts_with(&format!("HTTP/1.1 403 {why}\r\n")) && answer.ends_with(&format!("\r\n\r\n{why}\n")),
        "{answer}"
    );
    // It is this host's, which no name leads to.
    let answer = text(&egress, "GET http://x.b.org/ HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("leads to a loopback address"), "{answer}");
    assert!(!answer.contains("127.0.0.1"), "{answer}");
    let answer = text(&egress, "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 bulkhead: server notes sent a request for a server"), "{answer}");
    let passages = seen.passages(3).await;
    let passages: Vec<_> = passages.iter().map(short).collect();
    assert_eq!(passages, [("evil.org:443", "deny"), ("x.b.org:80", "deny"), ("", "malformed")]);
    assert_eq!((egress.usage().refused, egress.usage().connections), (3, 0));
}

#[tokio::test]
async fn nothing_that_is_put_into_a_request_comes_out_in_the_answer() {
    let (egress, _) = egress(&["a.org:443"], &[], Limits::default());
    for asked in ["a.org:443\u{7f}", "a.org\u{e9}:443", "<b>:443", "a.org:443\tX"] {
        let answer = text(&egress, &format!("CONNECT {asked} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("<b>") && answer.is_ascii(), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_plain_request_is_sent_once_and_a_second_one_never() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[&format!("127.0.0.1:{port}")], &[], Limits::default());
    let served =
        tokio::spawn(once(listener, b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi"));
    let request = format!(
        "POST http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: evil.org\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc\
         GET http://evil.org/ HTTP/1.1\r\nHost: evil.org\r\n\r\n"
    );
    let answer = text(&egress, &request).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
    let wanted =
        format!("POST /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(served.await.unwrap(), wanted);
    let passage = seen.passages(1).await.remove(0);
    assert_eq!(passage.bytes_out, wanted.len() as u64);
}

#[tokio::test]
async fn a_chunked_request_ends_where_its_chunks_do() {
    let (listener, port) = listener().await;
    let (egress, _) = egress(&[&format!("127.0.0.1:{port}")], &[], Limits::default());
    let served = tokio::spawn(once(listener, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 Done\r\n\r\n"));
    let request = format!(
        "PUT http://127.0.0.1:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n\
         GET http://evil.org/ HTTP/1.1\r\n\r\n"
    );
    let answer = text(&egress, &request).await;
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 Done\r\nConnection: close\r\n\r\n");
    let got = served.await.unwrap();
    assert!(got.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n") && !got.contains("evil"), "{got}");
}

#[tokio::test]
async fn a_redirect_is_the_clients_to_follow_and_asked_for_anew() {
    let (listener, port) = listener().await;
    let (egress, _) = egress(&[&format!("127.0.0.1:{port}")], &[], Limits::default());
    let served =
        tokio::spawn(once(listener, b"HTTP/1.1 302 Found\r\nLocation: http://evil.org/\r\nContent-Length: 0\r\n\r\n"));
    let answer = text(&egress, &format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n")).await;
    assert!(answer.contains("Location: http://evil.org/"), "{answer}");
    served.await.unwrap();
    assert!(text(&egress, "GET http://evil.org/ HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 403 "));
}

#[tokio::test]
async fn a_target_without_an_answer_is_told_from_one_that_is_not_allowed() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[&format!("127.0.0.1:{port}")], &[], Limits::default());
    let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n");
    let served = tokio::spawn(async move { listener.accept().await.map(drop) });
    let answer = text(&egress, &request).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("had no answer from 127.0.0.1"), "{answer}");
    served.await.unwrap().unwrap();
    let answer = text(&egress, &request).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("the connection was refused"), "{answer}");
    let passages = seen.passages(2).await;
    assert_eq!([passages[0].decision, passages[1].decision], ["allow", "unreachable"]);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_made() {
    let (listener, port) = listener().await;
    let broken = Seen::broken();
    let (egress, seen) = with(&[&format!("127.0.0.1:{port}")], &[], Limits::default(), broken);
    let answer = text(&egress, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 503 bulkhead: server notes") && answer.contains("audit"), "{answer}");
    assert_eq!(seen.passages(1).await[0].decision, "unrecorded");
    assert!(timeout(Duration::from_millis(100), listener.accept()).await.is_err(), "somebody connected");
}

#[tokio::test]
async fn socks_reaches_names_and_addresses_that_are_allowed() {
    let (listener, port) = listener().await;
    let (egress, seen) = egress(&[&format!("a.org:{port}"), &format!("127.0.0.1:{port}")], &[], Limits::default());
    let hosts: [&[u8]; 3] = [b"\x03\x05a.ORG", b"\x03\x09127.0.0.1", b"\x01\x7f\0\0\x01"];
    for host in hosts {
        let mut client = client(&egress);
        client.write_all(&[b"\x05\x02\x02\x00\x05\x01\0", host, &port.to_be_bytes(), b"early"].concat()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, *b"\x05\0\x05\0\0\x01\0\0\0\0\0\0");
        assert_eq!(until(&mut server, b"early").await, "early");
    }
    assert_eq!(seen.passages(3).await[0].target, format!("a.org:{port}"));
}

#[tokio::test]
async fn socks_refuses_with_the_code_for_it() {
    let (egress, seen) = egress(&["a.org:443", "127.0.0.1:9"], &[], Limits::default());
    let named =
        |name: &str, port: u16| [b"\x03", [name.len() as u8].as_slice(), name.as_bytes(), &port.to_be_bytes()].concat();
    let cases: [(u8, Vec<u8>, u8); 13] = [
        (1, named("evil.org", 443), 2),
        (1, named("a.org", 443), 2),
        (1, named("a.org", 0), 1),
        (1, named("", 443), 2),
        (1, named("a.org\0.evil.org", 443), 2),
        (1, named("0x7f.1", 9), 2),
        (1, named("::ffff:127.0.0.1", 9), 2),
        (1, b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01\0\x09".to_vec(), 2),
        (1, b"\x01\x7f\0\0\x02\0\x09".to_vec(), 2),
        (1, b"\x01\x7f\0\0\x01\0\x09".to_vec(), 4),
        (1, b"\x09\0\0".to_vec(), 8),
        (2, named("a.org", 443), 7),
        (3, named("a.org", 443), 7),
    ];
    let count = cases.len();
    for (command, rest, code) in cases {
        let answer = talk(&egress, &[b"\x05\x01\0\x05", [command, 0].as_slice(), &rest].concat()).await;
        assert_eq!(answer, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{command} {rest:?}");
    }
    assert_eq!(talk(&egress, b"\x05\x01\x02").await, b"\x05\xff");
    assert_eq!(seen.passages(count + 1).await.len(), count + 1);
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_is_no_trouble() {
    let (egress, _) = egress(&["a.org:443"], &[], Limits::default());
    let parts: [&[u8]; 8] = [
        b"",
        b"\x05",
        b"\x05\x01",
        b"\x05\x01\0\x05\x01",
        b"\x05\x01\0\x05\x01\0\x03\xffa",
        b"CONN",
        b"\x04\x01",
        b"\x16\x03\x01",
    ];
    for part in parts {
        let answer = talk(&egress, part).await;
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 ") || answer == b"\x05\0",
            "{part:?}: {answer:?}"
        );
    }
    assert_eq!(egress.usage().open, 0);
}
