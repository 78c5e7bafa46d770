//! How much a server may do with what it may reach, and for how long: kept, told to whoever runs into it, counted, shown,
//! and recorded with the reason.

use serde_json::{Value, json};

use crate::support::dialling::{dialler, found, passages};
use crate::support::world::World;
use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, wait_until};

/// A site that may be reached, a name that nobody answers for, and one that leads to an address that swallows everything.
fn zone() -> Value {
    json!({ "site.example": [["93.184.216.34"]], "unknown.example": null, "silent.example": [["93.184.216.200"]] })
}

/// What the programs begin with.
const PRELUDE: &str = r#"
GET = "GET http://site.example{} HTTP/1.1\r\n\r\n"

def tunnel():
    s = connected(proxy())
    s.sendall(b"CONNECT site.example:80 HTTP/1.1\r\n\r\n")
    assert head(s).startswith(b"HTTP/1.1 200 ")
    return s

def end(s):
    "How a connection ends that says nothing."
    try:
        got = s.recv(65536)
        return repr(got) if got else "closed"
    except OSError as e:
        return WORDS.get(e.errno, str(e))
"#;

fn open(world: &World, name: &str, lines: &str) -> (Site, Serving) {
    let site = Site::new(&[dialler(name, lines), NO_LIMITS.to_owned()].concat());
    let serving = world.open(&site);
    (site, serving)
}

fn find(serving: &mut Serving, server: &str, program: &str) -> Value {
    found(serving, server, &format!("{PRELUDE}\n{program}"))
}

/// Decisions and reasons of records, without the ones that say only that a connection is about to be made.
fn ends(records: &[Value]) -> Vec<(&str, &str)> {
    let ended = records.iter().filter(|record| record["ms"].is_u64());
    ended.map(|record| (record["decision"].as_str().unwrap(), record["reason"].as_str().unwrap_or_default())).collect()
}

#[test]
fn connections_beyond_the_limit_are_refused_until_another_one_ends() {
    let Some(world) = World::new(&zone()) else { return };
    let lines = "egress = [\"site.example:80\"]\nhost_ports = [81]\negress_limits = { connections = 2 }";
    let (site, mut serving) = open(&world, "few", lines);
    let program = r#"
held = [tunnel(), connected(("127.0.0.1", 81))]
import time
time.sleep(1)
found = [tried(lambda: said(GET.format("/"))), tried(lambda: raw("127.0.0.1", 81))]
import builtins
builtins.held = held
"#;
    let why = "may not have more than 2 connections at a time";
    let refused = json!([format!("503 bulkhead: server few {why}"), "reset"]);
    assert_eq!(find(&mut serving, "few", program), refused);
    let records = passages(&site, "few", 4);
    assert_eq!(ends(&records), [("limit", why), ("limit", why)], "{records:?}");
    let used = &site.server("few")["instances"][0]["egress"];
    assert_eq!((&used["open"], &used["limits"]["connections"], &used["refused"]), (&json!(2), &json!(2), &json!(2)));
    let shown = site.prints(&["status"]);
    assert!(shown.contains("2 connections (2 of 2 open, 2 refused, 0 cut)"), "{shown}");

    find(&mut serving, "few", "import builtins\nbuiltins.held.pop().close()\nfound = 'closed'");
    wait_until("room for one more", PATIENCE, || site.server("few")["instances"][0]["egress"]["open"] == 1);
    let reached = "world 93.184.216.34:80 as site.example";
    assert_eq!(find(&mut serving, "few", "found = said(GET.format('/'))"), reached);
}

/// Also where many more come at once than are told so: whoever has to wait gets his turn, and nobody is forgotten.
#[test]
fn a_burst_of_connections_is_answered_to_the_last_and_leaves_nothing_behind() {
    let Some(world) = World::new(&zone()) else { return };
    let lines = "egress = [\"site.example:80\"]\negress_limits = { connections = 4 }";
    let (_site, mut serving) = open(&world, "burst", lines);
    let program = r#"
import collections, threading, time
found = collections.Counter()

def leave():
    with connected(proxy()):
        time.sleep(0.2)

def ask():
    with connected(proxy()) as s:
        s.sendall(b"CONNECT site.example:80 HTTP/1.1\r\n\r\n")
        found[head(s).split()[1].decode()] += 1

def all(what):
    threads = [threading.Thread(target=what) for _ in range(100)]
    [t.start() for t in threads]
    [t.join(30) for t in threads]

all(leave)
all(ask)
found["answered"] = found["200"] + found["503"]
del found["200"], found["503"]
"#;
    assert_eq!(find(&mut serving, "burst", program), json!({ "answered": 100 }));
    let reached = "world 93.184.216.34:80 as site.example";
    assert_eq!(find(&mut serving, "burst", "found = said(GET.format('/'))"), reached);
}

#[test]
fn bytes_of_a_day_are_counted_for_the_server_and_not_for_its_instance() {
    let Some(world) = World::new(&zone()) else { return };
    let lines = "egress = [\"site.example:80\"]\negress_limits = { bytes_per_day = \"64k\" }";
    let (site, mut serving) = open(&world, "little", lines);
    let all = find(&mut serving, "little", "found = len(said(GET.format('/big?20000')))");
    assert_eq!(all, 20_000);
    // More comes than may: the answer is cut off, which the client sees.
    let much = "found = tried(lambda: len(exchanged(tunnel(), request('/big?200000', 'a'))))";
    assert_eq!(find(&mut serving, "little", much), "reset");
    let next = "found = tried(lambda: said(GET.format('/'))).partition(';')[0]";
    let refused = "503 bulkhead: server little may not send and receive more than 65536 bytes a day";
    assert_eq!(find(&mut serving, "little", next), refused);
    let records = passages(&site, "little", 5);
    let cut = "cut: it would have been more than 65536 bytes a day";
    let ended = ends(&records);
    assert_eq!(ended[..2], [("allow", ""), ("allow", cut)], "{records:?}");
    assert!(ended[2].0 == "limit" && ended[2].1.contains("65536 bytes a day; the next begins in 14"), "{records:?}");
    let carried: u64 = records.iter().filter_map(|r| Some(r["bytes_in"].as_u64()? + r["bytes_out"].as_u64()?)).sum();
    let used = site.server("little")["instances"][0]["egress"].clone();
    assert_eq!((&used["bytes_today"], &used["limits"]["bytes_per_day"]), (&json!(carried), &json!(65536)), "{used}");
    assert_eq!((&used["connections"], &used["refused"], &used["cut"]), (&json!(2), &json!(1), &json!(1)), "{used}");

    // A server cannot begin its day anew: what it ends is only the instance.
    serving.failure("little__crash", json!({}));
    assert_eq!(find(&mut serving, "little", next), refused);
    let anew = site.server("little")["instances"][0]["egress"].clone();
    assert_eq!((&anew["bytes_today"], &anew["connections"]), (&json!(carried), &json!(0)), "{anew}");
    let shown = site.prints(&["status"]);
    assert!(shown.contains(&format!("({carried} of 65536 today)")), "{shown}");
}

#[test]
fn who_says_nothing_in_time_does_not_keep_a_connection() {
    let Some(world) = World::new(&zone()) else { return };
    let lines = "egress = [\"site.example:80\", \"unknown.example:80\", \"silent.example:80\"]\n\
                 egress_limits = { connect = \"1s\", request = \"1s\", idle = \"5s\" }";
    let (site, mut serving) = open(&world, "quick", lines);
    let program = r#"
import time
found = {}

def begun(words):
    with connected(proxy()) as s:
        s.sendall(words)
        return status_and_text(everything(s))

found["a head"] = tried(lambda: begun(b"GET http://site.example/ HTTP/1.1\r\nX"))
found["socks"] = tried(lambda: begun(b"\5\1\0\5\1\0\3\x0csite"))
found["nothing"] = tried(lambda: begun(b""))
found["a name"] = tried(lambda: said("CONNECT unknown.example:80 HTTP/1.1\r\n\r\n"))
found["an address"] = tried(lambda: said("CONNECT silent.example:80 HTTP/1.1\r\n\r\n"))
found["no answer"] = tried(lambda: said(GET.format("/never")))
found["quiet"] = end(tunnel())
with tunnel() as s:
    for _ in range(40):
        s.sendall(b"X-A: b\r\n" if _ else b"GET / HTTP/1.1\r\n")
        time.sleep(0.2)
    found["slow"] = exchanged(s, b"\r\n")
"#;
    let found = find(&mut serving, "quick", program);
    let told = |status: u16, text: &str| format!("{status} bulkhead: server quick {text}");
    let expected = json!({
        "a head": told(400, "sent no whole request in time"),
        "socks": "reset",
        "nothing": "reset",
        "a name": told(504, "cannot reach unknown.example:80: its name cannot be resolved"),
        "an address": told(504, "cannot reach silent.example:80: nobody answered in time"),
        "no answer": told(502, "had no answer from site.example:80: nothing came in time"),
        "quiet": "reset",
        "slow": "world 93.184.216.34:80 as ",
    });
    assert_eq!(found, expected);
    let records = passages(&site, "quick", 3 + 2 * 5);
    let late = ("malformed", "sent no whole request in time");
    let ended = ends(&records);
    assert_eq!(ended[..3], [late; 3], "{records:?}");
    assert!(ended[3].0 == "timeout" && ended[3].1.contains("its name cannot be resolved: timed out"), "{records:?}");
    assert!(ended[4].0 == "timeout" && ended[4].1.contains("nobody answered in time"), "{records:?}");
    let cut = [("allow", "cut: nothing came for 5s"), ("allow", "cut: nothing passed for 5s"), ("allow", "")];
    assert_eq!(ended[5..], cut, "{records:?}");
    let used = &site.server("quick")["instances"][0]["egress"];
    assert_eq!((&used["cut"], &used["refused"], &used["open"]), (&json!(2), &json!(5), &json!(0)), "{used}");
    let limits = json!({
        "connections": 64, "bytes_per_day": null, "connect_ms": 1000, "request_ms": 1000, "idle_ms": 5000,
    });
    assert_eq!(used["limits"], limits);
}
