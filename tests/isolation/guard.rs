//! The guard and the gateway's end of it on the real engine: what a container that joins the guard's network reaches is
//! what it was given, and nothing else.

mod stage;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bulkhead::egress::environment::variables;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::support::LONG;
use stage::{Guarded, alone};

/// Where a name that is allowed leads to in these tests, which is the host's loopback: so the address is allowed, too.
async fn site() -> (TcpListener, u16, [String; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port, [format!("site.test:{port}"), format!("127.0.0.1:{port}")])
}

/// Answers every connection with what came, until its end.
fn echo(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
}

/// Answers every request with a page that says what was asked.
fn pages(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap_or(0) > 0 {}
                let head = String::from_utf8_lossy(&head);
                let asked = head.lines().next().unwrap_or_default();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{asked}", asked.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
}

/// Where a container on the default bridge finds its host.
async fn bridge() -> String {
    let route = "say([l.split()[2] for l in open('/proc/net/route') if l.split()[1] == '00000000'][0])";
    let hex = alone("bridge", route).await;
    let bits = u32::from_str_radix(hex.as_str().unwrap(), 16).unwrap();
    Ipv4Addr::from(bits.to_le_bytes()).to_string()
}

/// What a program inside finds when it tries every way that there could be.
const WAYS: &str = r#"
found = {}
for name, host, port in targets:
    found[name] = reach(host, port)
found["interfaces"] = sorted(n for _, n in socket.if_nameindex())
found["routes"] = len(open("/proc/net/route").readlines()) - 1
try:
    found["dns"] = str(socket.getaddrinfo("example.com", 443))
except OSError as e:
    found["dns"] = "no"
say(found)
"#;

#[tokio::test]
async fn there_is_no_other_way_out() {
    // A service that listens everywhere, as the host's do that containers reach without being meant to.
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    echo(everywhere);
    let (listener, granted, rules) = site().await;
    echo(listener);
    let targets = json!([
        ["granted", "127.0.0.1", granted],
        ["loopback", "127.0.0.1", port],
        ["bridge", bridge().await, port],
        ["metadata", "169.254.169.254", 80],
        ["public", "1.1.1.1", 443],
        ["private", "10.0.0.1", 80],
        ["six", "2606:4700:4700::1111", 443],
        ["near", "127.0.0.1", granted.wrapping_add(1)],
    ]);
    let script = format!("targets = {targets}\n{WAYS}");

    let guarded = Guarded::start(&[&rules[0]], &[granted]).await;
    let found = guarded.run(&script, &[]).await;
    assert_eq!(found["granted"], "open", "{found}");
    assert_eq!((&found["loopback"], &found["near"]), (&json!("ECONNREFUSED"), &json!("ECONNREFUSED")), "{found}");
    for way in ["bridge", "metadata", "public", "private", "six"] {
        assert!(
            ["ENETUNREACH", "EAFNOSUPPORT", "EADDRNOTAVAIL"].contains(&found[way].as_str().unwrap()),
            "{way}: {found}"
        );
    }
    assert_eq!((&found["interfaces"], &found["routes"], &found["dns"]), (&json!(["lo"]), &json!(0), &json!("no")));
    guarded.end().await;

    // The same program sees the difference where there is one.
    let open = alone("bridge", &script).await;
    assert_eq!(open["bridge"], "open", "{open}");
    assert!(open["routes"].as_u64() > Some(0), "{open}");
}

#[tokio::test]
async fn a_granted_port_is_the_hosts_by_either_loopback_address() {
    let (listener, port, _) = site().await;
    echo(listener);
    let guarded = Guarded::start(&[], &[port]).await;
    let script = format!(
        r#"
answers = {{}}
for host in ["127.0.0.1", "localhost"] + (["::1"] if has_six() else []):
    with socket.create_connection((host, {port}), 10) as s:
        s.sendall(b"hello ")
        s.sendall(host.encode())
        s.shutdown(socket.SHUT_WR)
        answers[host] = all_of(s).decode()
say(answers)
"#
    );
    let answers = guarded.run(&script, &[]).await;
    assert_eq!((&answers["127.0.0.1"], &answers["localhost"]), (&json!("hello 127.0.0.1"), &json!("hello localhost")));
    assert!(answers.get("::1").is_none_or(|answer| answer == "hello ::1"), "{answers}");
    let passages = guarded.seen.passages(2).await;
    assert!(passages.iter().all(|p| p.decision == "allow" && p.bytes_in == p.bytes_out && p.bytes_in > 6));
    guarded.end().await;
}

#[tokio::test]
async fn programs_find_the_proxy_by_their_variables_and_are_told_what_is_refused() {
    let (listener, port, rules) = site().await;
    pages(listener);
    let guarded = Guarded::start(&[&rules[0], &rules[1]], &[]).await;
    let script = format!(
        r#"
import urllib.request, urllib.error, http.client
def get(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except urllib.error.HTTPError as e:
        return [e.code, e.read().decode()]
    except OSError as e:
        return str(e)
def socks(host, port):
    with socket.create_connection(("127.0.0.1", 3128), 20) as s:
        s.sendall(b"\5\1\0\5\1\0\3" + bytes([len(host)]) + host.encode() + port.to_bytes(2, "big"))
        answer = b""
        while len(answer) < 4:
            answer += s.recv(64)
        return list(answer[:4])
say({{
    "plain": get("http://site.test:{port}/x?y"),
    "twice": get("http://site.test:{port}/z"),
    "refused": get("http://evil.test/"),
    "tunnel": get("https://evil.test/"),
    "literal": get("http://[::1]:{port}/"),
    "socks": [socks("site.test", {port}), socks("evil.test", {port})],
}})
"#
    );
    let variables = variables(3128);
    let found = guarded.run(&script, &variables).await;
    assert_eq!((&found["plain"], &found["twice"]), (&json!("GET /x?y HTTP/1.1"), &json!("GET /z HTTP/1.1")));
    let why = format!("bulkhead: server notes may not reach evil.test:80; allowed: {}, {}", rules[0], rules[1]);
    assert_eq!(found["refused"], json!([403, format!("{why}\n")]));
    let told = found["tunnel"].as_str().unwrap();
    assert!(told.contains("403") && told.contains("may not reach evil.test:443"), "{told}");
    assert_eq!(found["socks"], json!([[5, 0, 5, 0], [5, 0, 5, 2]]));
    let passages = guarded.seen.passages(6).await;
    let denied: Vec<_> = passages.iter().filter(|p| p.decision == "deny").map(|p| p.target.as_str()).collect();
    assert!(denied.contains(&"evil.test:80") && denied.contains(&"evil.test:443"), "{denied:?}");
    guarded.end().await;
}

#[tokio::test]
async fn many_connections_at_once_keep_every_byte_apart() {
    let (listener, port, _) = site().await;
    echo(listener);
    let guarded = Guarded::start(&[], &[port]).await;
    let script = format!(
        r#"
import threading, hashlib, random
wrong = []
def one(n):
    data = random.Random(n).randbytes(1_500_000 + n)
    with socket.create_connection(("127.0.0.1", {port}), 60) as s:
        def send():
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        if all_of(s) != data:
            wrong.append(n)
threads = [threading.Thread(target=one, args=(n,)) for n in range(16)]
for t in threads: t.start()
for t in threads: t.join()
say(wrong)
"#
    );
    assert_eq!(guarded.run(&script, &[]).await, json!([]));
    let passages = guarded.seen.passages(16).await;
    assert!(passages.iter().all(|p| p.bytes_in == p.bytes_out && p.bytes_in >= 1_500_000), "{passages:?}");
    guarded.end().await;
}

#[tokio::test]
async fn resets_go_through_and_hundreds_of_connections_do_no_harm() {
    let (listener, port, _) = site().await;
    let aborted = tokio::spawn(async move {
        // The first one is reset from outside, the second one from inside, all others are quick.
        let (first, _) = listener.accept().await.unwrap();
        first.set_zero_linger().unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let ended = tokio::time::timeout(LONG, second.read_to_end(&mut bytes)).await.unwrap();
        echo(listener);
        ended.map_err(|error| error.kind())
    });
    let guarded = Guarded::start(&[], &[port]).await;
    let script = format!(
        r#"
import struct
def connect():
    return socket.create_connection(("127.0.0.1", {port}), 30)
# The reset may be there before the connection is taken for one.
try:
    with connect() as s:
        reset = str(s.recv(1))
except OSError as e:
    reset = errno.errorcode[e.errno]
s = connect()
s.sendall(b"x")
import time
time.sleep(0.3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
right = 0
for n in range(400):
    with connect() as s:
        s.sendall(b"%d" % n)
        s.shutdown(socket.SHUT_WR)
        right += all_of(s) == b"%d" % n
say([reset, right])
"#
    );
    assert_eq!(guarded.run(&script, &[]).await, json!(["ECONNRESET", 400]));
    assert_eq!(aborted.await.unwrap(), Err(std::io::ErrorKind::ConnectionReset));
    guarded.seen.passages(402).await;
    assert_eq!(guarded.egress.usage().open, 0);
    guarded.end().await;
}

#[tokio::test]
async fn the_end_of_its_input_is_the_guards_end_and_nothing_opens() {
    let (listener, port, _) = site().await;
    let address: SocketAddr = listener.local_addr().unwrap();
    echo(listener);
    let guarded = Guarded::start(&[], &[port]).await;
    let id = guarded.id.clone();
    let reach = format!("say(reach('127.0.0.1', {port}))");
    let mut joined = guarded.join(&format!("{reach}\nsys.stdin.readline()\n{reach}"), &[]).await;
    assert_eq!(joined.line().await, json!("open"));
    guarded.end().await;
    stage::is_gone(&id).await;
    joined.go_on().await;
    assert_eq!(joined.line().await, json!("ECONNREFUSED"));
    joined.end().await;
    // The host's service is still there; only the way to it is not.
    assert!(
        tokio::time::timeout(Duration::from_secs(5), tokio::net::TcpStream::connect(address)).await.unwrap().is_ok()
    );
}

#[tokio::test]
async fn a_guard_that_cannot_listen_is_not_met() {
    let fault = Guarded::attempt(&[], &[70, 70]).await.err().expect("two of one port");
    assert_eq!(fault.class, bulkhead::error::Class::Isolation);
    assert_eq!(fault.outward, "the guard of its network does not answer");
    let value: Value = json!(fault.inward);
    assert_ne!(value, json!(fault.outward));
}
