//! What a server reaches: what its configuration names, by way of its guard, and nothing else; told in status and audit.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener};

use serde_json::{Value, json};

use crate::support::dialling::{self, dialler, of_role, passages};
use crate::support::engine::{self, containers, docker};
use crate::support::{PATIENCE, Serving, Site, contained, wait_for, wait_until};

/// What the programs begin with.
pub const PRELUDE: &str = r#"
import errno, http.client, os, socket, urllib.error, urllib.request

def reach(host, port):
    try:
        socket.create_connection((host, port), 3).close()
        return "open"
    except socket.gaierror:
        return "no name"
    except TimeoutError:
        return "timeout"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))

def talk(host, port, words):
    with socket.create_connection((host, port), 20) as s:
        s.sendall(words.encode())
        s.shutdown(socket.SHUT_WR)
        return s.makefile().read()

def get(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except urllib.error.HTTPError as e:
        return [e.code, e.read().decode().strip()]
    except OSError as e:
        return str(e)

def tunnel(host, port, path):
    proxy = os.environ["https_proxy"].rpartition(":")[2]
    connection = http.client.HTTPConnection("127.0.0.1", int(proxy), timeout=20)
    connection.set_tunnel(host, port)
    connection.request("GET", path)
    return connection.getresponse().read().decode()
"#;

/// What a program on a server finds.
pub fn found(serving: &mut Serving, server: &str, program: &str) -> Value {
    dialling::found(serving, server, &format!("{PRELUDE}\n{program}"))
}

/// A service of the host's that answers with what it was sent, behind its name.
fn echo(address: &str, name: &'static str) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut words = Vec::new();
                let _ = stream.read_to_end(&mut words);
                let _ = stream.write_all(&[name.as_bytes(), b" ", &words].concat());
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    port
}

/// A site of the web on the host's loopback that shows the line it was asked with.
fn pages() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut head, mut piece) = (Vec::new(), [0; 1024]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(count @ 1..) => head.extend_from_slice(&piece[..count]),
                        _ => return,
                    }
                }
                let asked = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{asked}", asked.len());
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    port
}

/// Where containers on the default bridge find the host.
fn bridge() -> String {
    let route = "print([l.split()[2] for l in open('/proc/net/route') if l.split()[1] == '00000000'][0])";
    let hex = docker(&["run", "--rm", "--network", "bridge", "bulkhead/fixture", "python3", "-c", route]);
    Ipv4Addr::from(u32::from_str_radix(&hex, 16).unwrap().to_le_bytes()).to_string()
}

#[test]
fn a_port_of_the_host_is_its_own_and_nobody_elses_and_nothing_else_is_there() {
    let (granted, other) = (echo("127.0.0.1:0", "granted"), echo("127.0.0.1:0", "other"));
    let everywhere = echo("0.0.0.0:0", "everywhere");
    let config = [
        dialler("db", &format!("host_ports = [{granted}]")),
        dialler("second", &format!("host_ports = [{other}]")),
        dialler("plain", ""),
    ];
    let site = Site::new(&config.concat());
    let mut serving = site.open();
    let ways = format!(
        r#"
found = {{
    "granted": reach("127.0.0.1", {granted}), "localhost": reach("localhost", {granted}),
    "other": reach("127.0.0.1", {other}), "everywhere": reach("127.0.0.1", {everywhere}),
    "bridge": reach("{}", {everywhere}), "metadata": reach("169.254.169.254", 80), "private": reach("10.0.0.1", 80),
    "public": reach("1.1.1.1", 443), "six": reach("2606:4700:4700::1111", 443), "name": reach("example.com", 443),
    "net": sorted(n for _, n in socket.if_nameindex()), "proxy": os.environ.get("HTTP_PROXY"),
}}
"#,
        bridge()
    );
    for (server, open) in [("db", Some("granted")), ("second", Some("other")), ("plain", None)] {
        let found = found(&mut serving, server, &ways);
        for near in ["granted", "localhost", "other", "everywhere"] {
            let is = Some(if near == "localhost" { "granted" } else { near }) == open;
            // The second is for a name that leads to ::1, too, where there is none.
            let expected: &[&str] = if is { &["open"] } else { &["ECONNREFUSED", "EADDRNOTAVAIL"] };
            assert!(expected.contains(&found[near].as_str().unwrap()), "{server} to {near}: {found}");
        }
        for far in ["bridge", "metadata", "private", "public", "six"] {
            let word = found[far].as_str().unwrap();
            assert!(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&word), "{server} to {far}: {found}");
        }
        assert_eq!((&found["name"], &found["proxy"]), (&json!("no name"), &Value::Null), "{server}: {found}");
        assert_eq!(found["net"], json!(["lo"]), "{server}");
    }
    let program = format!("found = talk('127.0.0.1', {granted}, 'hello')");
    assert_eq!(found(&mut serving, "db", &program), "granted hello");

    // Each connection has one record before it is made and one after it.
    let records = passages(&site, "db", 6);
    for record in &records {
        assert_eq!((&record["target"], &record["decision"]), (&json!(format!("127.0.0.1:{granted}")), &json!("allow")));
        let pair = records.iter().filter(|other| other["connection"] == record["connection"]);
        let counted: Vec<bool> = pair.map(|record| record["ms"].is_u64()).collect();
        assert_eq!(counted, [false, true], "{records:?}");
    }
    let carried: Vec<_> = records.iter().map(|r| (r["bytes_out"].as_u64(), r["bytes_in"].as_u64())).collect();
    assert!(carried.contains(&(Some(5), Some(13))), "{carried:?}");

    let shown = site.server("db");
    assert_eq!((&shown["network"], &shown["isolation"]), (&json!("egress"), &json!("proven")));
    assert_eq!(shown["reach"], json!(["lo", format!("host 127.0.0.1:{granted}")]));
    let instance = &shown["instances"][0];
    assert_eq!(records[0]["instance"], instance["container"]);
    let used = &instance["egress"];
    assert_eq!((&used["connections"], &used["open"], &used["refused"]), (&json!(3), &json!(0), &json!(0)), "{used}");
    assert_eq!((&used["bytes_out"], &used["bytes_in"]), (&json!(5), &json!(13 + 2 * 8)), "{used}");
    let controls = instance["evidence"]["controls"].as_array().unwrap();
    let network = controls.iter().find(|control| control["control"] == "network").unwrap();
    let guard = instance["guard"]["container"].as_str().unwrap();
    assert_eq!(network["engine"], format!("none but through the guard {:.12}", guard));
    assert_eq!((&network["inside"], &network["holds"]), (&json!("lo, 0 routes out"), &json!(true)));
    let own = instance["guard"]["evidence"]["controls"].as_array().unwrap();
    assert!(own.len() == controls.len() && own.iter().all(|control| control["holds"] == true), "{own:?}");
    let plain = site.server("plain");
    assert_eq!((&plain["network"], &plain["reach"]), (&json!("none"), &json!(["lo"])));
    assert!(site.prints(&["status"]).contains(&format!("host 127.0.0.1:{granted}")));

    let gateway = site.gateway();
    assert_eq!((of_role(&gateway, "guard").len(), of_role(&gateway, "server").len()), (2, 3));
    assert!(serving.close().status.success());
    assert_eq!(engine::servers(&gateway), [""; 0]);
    let verified = site.prints(&["audit", "verify"]);
    assert!(verified.contains("whole"), "{verified}");
}

#[test]
fn a_host_is_reached_by_its_name_and_what_is_not_listed_is_refused_in_words() {
    let (port, hidden) = (pages(), pages());
    // Only the literal lets a name lead to the host's own loopback.
    let rules = format!("egress = [\"localhost:{port}\", \"127.0.0.1:{port}\", \"localhost:{hidden}\"]");
    let site = Site::new(&dialler("web", &rules));
    let mut serving = site.open();
    let program = format!(
        r#"
os.environ.pop("no_proxy"), os.environ.pop("NO_PROXY")
found = {{
    "plain": get("http://localhost:{port}/a"), "tunnel": tunnel("localhost", {port}, "/b"),
    "private": get("http://localhost:{hidden}/"), "literal": get("http://127.0.0.1:{hidden}/"),
    "unlisted": get("http://unlisted.example/"), "secure": get("https://unlisted.example/"),
    "direct": reach("127.0.0.1", {port}), "raw": reach("1.1.1.1", 443), "name": reach("localhost.example", {port}),
}}
"#
    );
    let found = found(&mut serving, "web", &program);
    assert_eq!((&found["plain"], &found["tunnel"]), (&json!("GET /a HTTP/1.1"), &json!("GET /b HTTP/1.1")), "{found}");
    let allowed = format!("localhost:{port}, 127.0.0.1:{port}, localhost:{hidden}");
    let refused = |target: &str| format!("bulkhead: server web may not reach {target}; allowed: {allowed}");
    assert_eq!(found["unlisted"], json!([403, refused("unlisted.example:80")]));
    assert_eq!(found["literal"], json!([403, refused(&format!("127.0.0.1:{hidden}"))]));
    assert!(found["private"][1].as_str().unwrap().contains("its name leads to"), "{found}");
    let told = found["secure"].as_str().unwrap();
    assert!(told.contains("403") && told.contains("may not reach unlisted.example:443"), "{told}");
    assert_eq!((&found["direct"], &found["name"]), (&json!("ECONNREFUSED"), &json!("no name")), "{found}");
    assert_eq!(found["raw"], "ENETUNREACH");

    let records = passages(&site, "web", 9);
    let of = |target: &str| {
        let found = records.iter().filter(|record| record["target"] == *target);
        found.map(|record| record["decision"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of(&format!("localhost:{port}")), ["allow"; 4]);
    assert_eq!((of("unlisted.example:80"), of("unlisted.example:443")), (vec!["deny"], vec!["deny"]));
    // That was looked up, so it was recorded before that.
    assert_eq!(of(&format!("localhost:{hidden}")), ["allow", "deny"]);
    let why = records.iter().find(|record| record["target"] == "unlisted.example:80").unwrap();
    assert!(why["reason"].as_str().unwrap().contains("may not reach unlisted.example:80"), "{why}");
    let shown = site.server("web");
    assert_eq!(shown["reach"][1], format!("localhost:{port}"));
    assert_eq!(shown["instances"][0]["egress"]["refused"], 4);
}

#[test]
fn a_guard_that_ends_takes_its_server_along_and_the_next_call_has_both_anew() {
    let (granted, other) = (echo("127.0.0.1:0", "granted"), echo("127.0.0.1:0", "other"));
    let site = Site::new(&dialler("db", &format!("host_ports = [{granted}]")));
    let mut serving = site.open();
    let ways = format!("found = [reach('127.0.0.1', {granted}), reach('127.0.0.1', {other}), reach('1.1.1.1', 443)]");
    let expected = json!(["open", "ECONNREFUSED", "ENETUNREACH"]);
    assert_eq!(found(&mut serving, "db", &ways), expected);
    let gateway = site.gateway();
    let [guard] = &of_role(&gateway, "guard")[..] else { panic!("one guard") };
    let [server] = &of_role(&gateway, "server")[..] else { panic!("one server") };

    let sleeping = serving.ask_tool("db__sleep", json!({ "ms": 50_000 }));
    wait_until("the call under way", PATIENCE, || site.records("intent").len() == 2);
    docker(&["kill", guard]);
    let answer = serving.answer(sleeping).to_string();
    assert!(answer.contains("the guard of its network has ended: exit code 137"), "{answer}");

    assert_eq!(found(&mut serving, "db", &ways), expected, "the policy is the same after it");
    let left = [of_role(&gateway, "guard"), of_role(&gateway, "server")].concat();
    assert!(left.len() == 2 && !left.contains(guard) && !left.contains(server), "{left:?}");
    let crashed = site.records("server").into_iter().find(|record| record["event"] == "crashed").unwrap();
    assert!(crashed["reason"].as_str().unwrap().contains("the guard of its network has ended"), "{crashed}");

    // The other way round: a server's end is its guard's.
    let before = of_role(&gateway, "guard");
    serving.failure("db__crash", json!({}));
    wait_until("the end of its guard", PATIENCE, || of_role(&gateway, "guard").iter().all(|id| !before.contains(id)));
    assert!(serving.close().status.success());
    assert_eq!(engine::servers(&gateway), [""; 0]);
}

#[test]
fn kill_9_leaves_neither_a_server_nor_its_guard() {
    let port = echo("127.0.0.1:0", "granted");
    let site = Site::alone(&dialler("db", &format!("host_ports = [{port}]")));
    let mut serving = site.open();
    assert_eq!(found(&mut serving, "db", &format!("found = reach('127.0.0.1', {port})")), "open");
    let gateway = site.gateway();
    assert_eq!(containers(&gateway).len(), 2);
    serving.kill();
    wait_until("nothing of it", PATIENCE, || containers(&gateway).is_empty());
}

#[test]
fn a_connection_that_cannot_be_recorded_is_not_made() {
    let port = echo("127.0.0.1:0", "granted");
    let site = Site::new(&dialler("db", &format!("host_ports = [{port}]")));
    let mut serving = site.open();
    let program = format!(
        r#"
import threading, time
attempts = []
def later():
    time.sleep(3)
    try:
        attempts.append(talk("127.0.0.1", {port}, "hello"))
    except OSError as e:
        attempts.append(type(e).__name__)
threading.Thread(target=later).start()
import builtins
builtins.attempts = attempts
found = "begun"
"#
    );
    assert_eq!(found(&mut serving, "db", &program), "begun");
    // A file that is gone is never begun anew.
    let (file, aside) = (site.audit_file(), site.path("aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(5));
    std::fs::rename(&aside, &file).unwrap();
    let attempts = wait_for("the audit again", PATIENCE, || {
        let call = serving.call("db__run", json!({ "program": "import builtins\nfound = builtins.attempts" }));
        (call["isError"] != true).then(|| call["structuredContent"].clone())
    });
    assert!(attempts == json!([""]) || attempts == json!(["ConnectionResetError"]), "{attempts}");
    assert!(site.records("egress").iter().all(|record| record["decision"] != "allow"));
}

#[test]
fn a_connection_that_is_open_at_the_end_has_its_record() {
    let port = echo("127.0.0.1:0", "granted");
    let site = Site::new(&dialler("db", &format!("host_ports = [{port}]")));
    let mut serving = site.open();
    let hold = format!(
        "import builtins\nbuiltins.held = socket.create_connection(('127.0.0.1', {port}))\n\
         builtins.held.sendall(b'hello')\nfound = 'held'"
    );
    assert_eq!(found(&mut serving, "db", &hold), "held");
    wait_until("the open connection", PATIENCE, || site.server("db")["instances"][0]["egress"]["open"] == 1);
    assert!(serving.close().status.success());
    let records = passages(&site, "db", 2);
    assert_eq!((&records[1]["connection"], &records[1]["bytes_out"]), (&records[0]["connection"], &json!(5)));
}

#[test]
fn a_server_that_does_not_start_leaves_no_guard() {
    let site = Site::new(&dialler("broken", "host_ports = [1]\nargs = [\"--exit-at-start\", \"3\"]"));
    let mut serving = site.open();
    let told = serving.failure("broken__run", json!({ "program": "" }));
    assert!(told.contains("told to exit at start") && told.contains("exit code 3"), "{told}");
    let gateway = site.gateway();
    wait_until("nothing of it", PATIENCE, || containers(&gateway).is_empty());
    let guards = site.records("server").into_iter().filter(|r| r["reason"] == "the guard of its network");
    assert!(guards.clone().count() > 0 && guards.into_iter().all(|record| record["event"] == "proven"));
}

#[test]
fn a_server_that_asks_for_nothing_has_no_guard() {
    let site = Site::new(&contained("fx", &[]));
    let mut serving = site.open();
    serving.text("fx__count", json!({}));
    assert_eq!(of_role(&site.gateway(), "guard"), [""; 0]);
    assert_eq!(site.server("fx")["instances"][0]["guard"], Value::Null);
}
