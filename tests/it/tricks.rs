//! What is written to look like something else: names, addresses and requests through the whole program, before an internet
//! in which every address answers and every name leads where the test says. Nothing of it widens what may be reached.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::dialling::{dialler, found};
use crate::support::world::World;
use crate::support::{NO_LIMITS, PATIENCE, Site, wait_for, wait_until};

const RULES: [&str; 7] = [
    "site.example:80",
    "*.example.org:80",
    "bücher.example:80",
    "*.trap.example:80",
    "named.example:80",
    "10.0.0.7:80",
    "nowhere.example:80",
];

/// Where names lead, the first time that they are looked up, the second, and so on. All that is not allowed leads somewhere
/// where it would be answered.
fn zone() -> Value {
    let anywhere = [
        "evil.example",
        "example.org",
        "evil-example.org",
        "evilexample.org",
        "example.org.evil",
        "a.example.org.evil.example",
        "sub.site.example",
        "localhost.example",
    ];
    let mut zone = json!({
        "site.example": [["93.184.216.34"]],
        "a.example.org": [["93.184.216.35"]],
        "a.b.example.org": [["93.184.216.35"]],
        "xn--bcher-kva.example": [["93.184.216.36"]],
        "named.example": [["10.0.0.7"]],
        "public.trap.example": [["2606:4700:4700::1111"]],
        "loopback.trap.example": [["127.0.0.1"]],
        "six.trap.example": [["::1"]],
        "mapped.trap.example": [["::ffff:127.0.0.1"]],
        "private.trap.example": [["10.0.0.8"]],
        "local.trap.example": [["fd77::1"]],
        "metadata.trap.example": [["169.254.169.254"]],
        "six-metadata.trap.example": [["fd00:ec2::254"]],
        "shared.trap.example": [["100.64.0.1"]],
        "link.trap.example": [["169.254.1.1"]],
        "zero.trap.example": [["0.0.0.0"]],
        "many.trap.example": [["224.0.0.1"]],
        "all.trap.example": [["255.255.255.255"]],
        "translated.trap.example": [["64:ff9b::7f00:1"]],
        "tunnelled.trap.example": [["2002:7f00:1::1"]],
        "compatible.trap.example": [["::127.0.0.1"]],
        "gateway.trap.example": [["11.0.0.9"]],
        "mixed.trap.example": [["10.0.0.8", "127.0.0.1", "93.184.216.37"]],
        "changing.trap.example": [["93.184.216.38"], ["127.0.0.1"], ["10.0.0.8"], ["93.184.216.38"]],
    });
    for name in anywhere {
        zone[name] = json!([["93.184.216.99"]]);
    }
    zone
}

/// What a host in a request means.
#[derive(Clone, Copy)]
enum Means {
    /// That address is reached.
    At(&'static str),
    /// No rule names it.
    Denied,
    /// A rule names it, and it leads where no name may.
    Leads(&'static str),
    /// It is no host.
    Bad(&'static str),
    /// Nobody knows it.
    Unknown,
}
use Means::{At, Bad, Denied, Leads, Unknown};

const NUMBER: &str = "an IPv4 address must be four decimal numbers without leading zeros";
const SIX: &str = "an IPv6 address must be in brackets, without a zone";
const MAPPED: &str = "an IPv4 address within IPv6 must be written as an IPv4 address";
const CHARACTER: &str = "the host has a character that no name has";
const EMPTY: &str = "the host is empty, or a part of it between dots";
const LONG: &str = "the host's name is too long";

/// Hosts as they are written in a request, and what each means whichever way it is asked for.
const HOSTS: &[(&str, Means)] = &[
    // Names, and what only looks like one of them.
    ("site.example", At("93.184.216.34")),
    ("SITE.Example", At("93.184.216.34")),
    ("site.example.", At("93.184.216.34")),
    ("site.example..", Bad(EMPTY)),
    (".site.example", Bad(EMPTY)),
    ("sub.site.example", Denied),
    ("evil.example", Denied),
    ("site.example.evil.example", Denied),
    ("nowhere.example", Unknown),
    ("a.example.org", At("93.184.216.35")),
    ("A.B.EXAMPLE.ORG.", At("93.184.216.35")),
    ("example.org", Denied),
    ("evil-example.org", Denied),
    ("evilexample.org", Denied),
    ("example.org.evil", Denied),
    ("a.example.org.evil.example", Denied),
    ("*.example.org", Bad(CHARACTER)),
    ("xn--bcher-kva.example", At("93.184.216.36")),
    ("XN--BCHER-KVA.example", At("93.184.216.36")),
    ("localhost", Denied),
    ("localhost.example", Denied),
    ("site%2eexample", Bad(SIX)),
    // Names that are allowed, and where they lead.
    ("public.trap.example", At("[2606:4700:4700::1111]")),
    ("mixed.trap.example", At("93.184.216.37")),
    ("loopback.trap.example", Leads("a loopback address")),
    ("six.trap.example", Leads("a loopback address")),
    ("mapped.trap.example", Leads("a loopback address")),
    ("private.trap.example", Leads("a private address")),
    ("local.trap.example", Leads("a private address")),
    ("metadata.trap.example", Leads("a cloud metadata address")),
    ("six-metadata.trap.example", Leads("a cloud metadata address")),
    ("shared.trap.example", Leads("a shared (carrier-grade NAT) address")),
    ("link.trap.example", Leads("a link-local address")),
    ("zero.trap.example", Leads("the unspecified address")),
    ("many.trap.example", Leads("a multicast address")),
    ("all.trap.example", Leads("a reserved address")),
    ("translated.trap.example", Leads("a loopback address")),
    ("tunnelled.trap.example", Leads("an address within another")),
    ("compatible.trap.example", Leads("an address within another")),
    ("gateway.trap.example", Leads("this host")),
    ("named.example", At("10.0.0.7")),
    // Addresses: one is allowed, and in one writing.
    ("10.0.0.7", At("10.0.0.7")),
    ("10.0.0.8", Denied),
    ("10.7", Bad(NUMBER)),
    ("10.0.7", Bad(NUMBER)),
    ("167772167", Bad(NUMBER)),
    ("0xa000007", Bad(NUMBER)),
    ("0xa.0.0.7", Bad(NUMBER)),
    ("012.0.0.7", Bad(NUMBER)),
    ("10.0.0.07", Bad(NUMBER)),
    ("10.0.0.7.", Bad(NUMBER)),
    ("10.0.0.263", Bad(NUMBER)),
    ("[::ffff:10.0.0.7]", Bad(MAPPED)),
    ("[::ffff:a00:7]", Bad(MAPPED)),
    ("127.0.0.1", Denied),
    ("127.1", Bad(NUMBER)),
    ("2130706433", Bad(NUMBER)),
    ("0177.0.0.1", Bad(NUMBER)),
    ("0x7f.1", Bad(NUMBER)),
    ("0x7f000001", Bad(NUMBER)),
    ("0", Bad(NUMBER)),
    ("0.0.0.0", Denied),
    ("[::1]", Denied),
    ("[::]", Denied),
    ("[::ffff:127.0.0.1]", Bad(MAPPED)),
    ("[fd77::1]", Denied),
    ("[fe80::1%25out]", Bad(SIX)),
    ("[fe80::1%out]", Bad(SIX)),
    ("[::1", Bad(SIX)),
    ("[v1.a]", Bad(SIX)),
    ("[10.0.0.7]", Bad(SIX)),
    ("192.0.2.2", Denied),
    ("11.0.0.9", Denied),
    ("169.254.169.254", Denied),
    ("100.64.0.1", Denied),
    ("93.184.216.34", Denied),
];

/// A part of a name that is one longer than it may be.
const LABEL: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Bytes to the proxy, each a character, and what comes of them: the answer, and what is recorded.
fn requests() -> Vec<(&'static str, String, String, String)> {
    let site = |host: &str| format!("world 93.184.216.34:80 as {host}");
    let connect = |target: &str| format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let bytes = |text: &str| text.bytes().map(char::from).collect::<String>();
    let no_target = |why: &str| format!("400 sent a request for no host and port: {why}");
    let no_http = |why: &str| format!("400 sent a request that is no HTTP: {why}");
    // Read as it is sent, byte by byte.
    let no_proxy = bytes("400 sent a request for a server, not for a proxy: CONNECT host:port, or http://host/…");
    let port = "a port from 1 to 65535 must follow the host";
    let denied = |target: &str| format!("403 may not reach {target}; allowed: …");
    let passed = "allow allow site.example:80".to_owned();
    let malformed = "malformed".to_owned();
    let long = [LABEL, LABEL, LABEL, LABEL, "example"].map(|label| &label[..label.len().min(63)]).join(".");
    let mut all = vec![
        (
            "a port that is not allowed",
            connect("site.example:81"),
            denied("site.example:81"),
            "deny site.example:81".to_owned(),
        ),
        ("a port with zeros before it", connect("site.example:0080"), site("tunnel"), passed.clone()),
        (
            "another host in a field",
            "CONNECT site.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n".to_owned(),
            site("tunnel"),
            passed.clone(),
        ),
        (
            "another host in the target",
            "CONNECT evil.example:80 HTTP/1.1\r\nHost: site.example:80\r\n\r\n".to_owned(),
            denied("evil.example:80"),
            "deny evil.example:80".to_owned(),
        ),
        (
            "lines without a carriage return",
            "CONNECT evil.example:80 HTTP/1.1\n\n".to_owned(),
            denied("evil.example:80"),
            "deny evil.example:80".to_owned(),
        ),
        (
            "a URL and another host in a field",
            "GET http://site.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            site("site.example"),
            passed.clone(),
        ),
        (
            "a URL and two hosts in fields",
            "GET http://site.example/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
            site("site.example"),
            passed.clone(),
        ),
        (
            "a URL of another host",
            get("http://evil.example/"),
            denied("evil.example:80"),
            "deny evil.example:80".to_owned(),
        ),
        (
            "a host after a fragment's mark",
            get("http://evil.example#@site.example/"),
            denied("evil.example:80"),
            "deny evil.example:80".to_owned(),
        ),
        (
            "a host after a query's mark",
            get("http://evil.example?@site.example/"),
            denied("evil.example:80"),
            "deny evil.example:80".to_owned(),
        ),
        (
            "a second request behind the first",
            format!("{}{}", get("http://site.example/"), get("http://evil.example/")),
            site("site.example"),
            passed.clone(),
        ),
        (
            "a URL with a port that is not allowed",
            get("http://site.example:81/"),
            denied("site.example:81"),
            "deny site.example:81".to_owned(),
        ),
    ];
    let wrong = [
        ("a user", connect("user@site.example:80"), no_target(CHARACTER)),
        ("a user that is a host", connect("site.example:80@evil.example:80"), no_target(SIX)),
        ("two ports", connect("site.example:80:80"), no_target(SIX)),
        ("two hosts", connect("site.example:80,evil.example:80"), no_target(SIX)),
        ("no port", connect("site.example"), no_target(port)),
        ("port 0", connect("site.example:0"), no_target(port)),
        ("a port that is too large", connect("site.example:65616"), no_target(port)),
        ("a port with a sign", connect("site.example:+80"), no_target(port)),
        ("a URL to connect to", connect("http://site.example:80"), no_target(SIX)),
        ("a path to connect to", connect("site.example:80/"), no_target(port)),
        ("nothing to connect to", connect(":80"), no_target(EMPTY)),
        ("a space in the host", connect("site.example evil.example:80"), no_http("invalid HTTP version")),
        ("a line's end in the host", connect("site.example\r\n:80"), no_http("invalid token")),
        ("a carriage return in the host", connect("site.example\r:80"), no_http("invalid token")),
        ("a zero byte in the host", connect("site.example\0.evil.example:80"), no_http("invalid token")),
        (
            "a zero byte in a field",
            "CONNECT site.example:80 HTTP/1.1\r\nX: a\0b\r\n\r\n".to_owned(),
            no_http("invalid header value"),
        ),
        (
            "a field on two lines",
            "GET http://site.example/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n".to_owned(),
            no_http("invalid header name"),
        ),
        (
            "a space before a colon",
            "GET http://site.example/ HTTP/1.1\r\nHost : evil.example\r\n\r\n".to_owned(),
            no_http("invalid header name"),
        ),
        ("wide dots", connect(&bytes("site。example:80")), no_target(CHARACTER)),
        ("wide letters", connect(&bytes("ｓite.example:80")), no_target(CHARACTER)),
        ("another script's letter", connect(&bytes("ѕite.example:80")), no_target(CHARACTER)),
        ("a name that is allowed, not as it is sent", connect(&bytes("bücher.example:80")), no_target(CHARACTER)),
        ("an invisible character", connect(&bytes("site\u{200b}.example:80")), no_target(CHARACTER)),
        ("a long name", connect(&format!("{long}:80")), no_target(LONG)),
        ("a long part of a name", connect(&format!("{LABEL}.example.org:80")), no_target(LONG)),
        (
            "a long head",
            format!("GET http://site.example/{} HTTP/1.1\r\n\r\n", "x".repeat(70_000)),
            "400 sent a request whose head is too long".to_owned(),
        ),
        ("a request for a server", get("/"), no_proxy.clone()),
        ("a request for a host beside the scheme", get("//site.example/"), no_proxy.clone()),
        ("another scheme", get("https://site.example/"), no_proxy.clone()),
        ("a method in small letters", "connect site.example:80 HTTP/1.1\r\n\r\n".to_owned(), no_proxy),
        ("a URL with a user", get("http://site.example@evil.example/"), no_target(CHARACTER)),
        ("a URL with a user and a password", get("http://site.example:80@evil.example/"), no_target(port)),
        ("a URL with a backslash", get("http://site.example\\@evil.example/"), no_target(CHARACTER)),
        ("a URL with two ports", get("http://site.example:80:80/"), no_target(SIX)),
        ("a URL with an empty port", get("http://site.example:/"), no_target(port)),
        ("a URL without a host", get("http:///site.example/"), no_target(EMPTY)),
        (
            "a body that ends in two places",
            "POST http://site.example/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "400 sent a request whose end can be read in two ways".to_owned(),
        ),
        ("another version of HTTP", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), no_http("invalid HTTP version")),
        ("another version of SOCKS", "\x04\x01\0\x50\n\0\0\x07\0".to_owned(), no_http("invalid token")),
        ("a handshake of TLS", "\x16\x03\x01\0\x05hello".to_owned(), no_http("invalid token")),
    ];
    all.extend(wrong.map(|(what, sent, answer)| (what, sent, answer, malformed.clone())));
    all
}

/// Requests in the bytes of SOCKS, each a character: the kind and the address, the port, the command; then what comes of it.
const SOCKS: &[(&str, &str, u16, u8, &str, &str)] = &[
    ("an address that a rule names", "\x01\n\0\0\x07", 80, 1, "world 10.0.0.7:80 as tunnel", "allow allow 10.0.0.7:80"),
    ("the same as a name", "\x03\x0810.0.0.7", 80, 1, "world 10.0.0.7:80 as tunnel", "allow allow 10.0.0.7:80"),
    ("the same within IPv6", "\x04\0\0\0\0\0\0\0\0\0\0\u{ff}\u{ff}\n\0\0\x07", 80, 1, "denied", "malformed"),
    ("the same within IPv6, as a name", "\x03\x0f::ffff:10.0.0.7", 80, 1, "denied", "malformed"),
    ("another port of it", "\x01\n\0\0\x07", 81, 1, "denied", "deny 10.0.0.7:81"),
    ("the address of a name", "\x01\x5d\u{b8}\u{d8}\x22", 80, 1, "denied", "deny 93.184.216.34:80"),
    ("the loopback", "\x01\x7f\0\0\x01", 80, 1, "denied", "deny 127.0.0.1:80"),
    ("the loopback of IPv6", "\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 80, 1, "denied", "deny [::1]:80"),
    ("the loopback of IPv6 as a name", "\x03\x03::1", 80, 1, "denied", "deny [::1]:80"),
    ("an address with a zone", "\x03\x0bfe80::1%out", 80, 1, "denied", "malformed"),
    ("a zero byte in a name", "\x03\x12site.example\0.evil", 80, 1, "denied", "malformed"),
    ("a line's end in a name", "\x03\x0dsite.example\n", 80, 1, "denied", "malformed"),
    ("a name with its port", "\x03\x0fsite.example:80", 80, 1, "denied", "malformed"),
    ("a name that is no text", "\x03\x0d\u{ff}site.example", 80, 1, "denied", "malformed"),
    ("an empty name", "\x03\0", 80, 1, "denied", "malformed"),
    ("no port", "\x03\x0csite.example", 0, 1, "failed", "malformed"),
    ("to be connected to", "\x03\x0csite.example", 80, 2, "no such command", "malformed"),
    ("datagrams", "\x03\x0csite.example", 80, 3, "no such command", "malformed"),
    ("an unknown command", "\x03\x0csite.example", 80, 9, "no such command", "malformed"),
    ("an unknown kind of address", "\x09", 80, 1, "no such address", "malformed"),
];

/// Where a client that follows a redirect ends, and what is recorded of each of its connections.
const REDIRECTS: &[(&str, &str, &str)] = &[
    ("http://a.example.org/", "world 93.184.216.35:80 as a.example.org", "allow allow a.example.org:80"),
    ("http://evil.example/", "403 may not reach evil.example:80; allowed: …", "deny evil.example:80"),
    ("http://site.example:81/", "403 may not reach site.example:81; allowed: …", "deny site.example:81"),
    ("http://169.254.169.254/latest/", "403 may not reach 169.254.169.254:80; allowed: …", "deny 169.254.169.254:80"),
    (
        "http://[::ffff:10.0.0.7]/",
        "400 sent a request for no host and port: an IPv4 address within IPv6 must be written as an IPv4 address",
        "malformed",
    ),
    (
        "http://2130706433/",
        "400 sent a request for no host and port: an IPv4 address must be four decimal numbers without leading zeros",
        "malformed",
    ),
    (
        "http://private.trap.example/",
        "403 may not reach private.trap.example:80: its name leads to a private address, which only a rule for the address itself allows",
        "allow deny private.trap.example:80",
    ),
    // Such a client does not ask the proxy for it, and finds nothing on its own loopback.
    ("http://127.0.0.1/", "refused", ""),
];

/// One thing that is tried: what, as a program, and what comes of it.
struct Row {
    what: String,
    program: String,
    answer: String,
    /// Decisions and target of each connection.
    audit: Vec<String>,
}

fn text(text: &str) -> Value {
    Value::from(text)
}

fn rows() -> Vec<Row> {
    let one = |audit: &str| vec![audit.to_owned()];
    let mut rows: Vec<Row> = Vec::new();
    for (host, means) in HOSTS {
        let name = host.to_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let target = format!("{name}:80");
        let no_name = format!(
            "may not reach {target}: its name leads to {}, which only a rule for the address itself allows",
            match means {
                Leads(what) => what,
                _ => "",
            }
        );
        let (http, socks, audit) = match means {
            At(address) => (
                format!("world {address}:80 as "),
                format!("world {address}:80 as tunnel"),
                format!("allow allow {target}"),
            ),
            Denied => {
                (format!("403 may not reach {target}; allowed: …"), "denied".to_owned(), format!("deny {target}"))
            }
            Leads(_) => (format!("403 {no_name}"), "denied".to_owned(), format!("allow deny {target}")),
            Bad(why) => {
                (format!("400 sent a request for no host and port: {why}"), "denied".to_owned(), "malformed".to_owned())
            }
            Unknown => (
                format!("502 cannot reach {target}: its name cannot be resolved"),
                "unreachable".to_owned(),
                format!("allow unreachable {target}"),
            ),
        };
        let reached = matches!(means, At(_));
        let with = |host: &str| if reached { format!("{http}{host}") } else { http.clone() };
        let connect = format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n");
        let get = format!("GET http://{host}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        // SOCKS has no brackets.
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|bare| bare.contains(':'));
        let bare = bare.unwrap_or(host);
        let address = format!("\x03{}{bare}", char::from(bare.len() as u8));
        rows.extend([
            Row {
                what: format!("{host} by CONNECT"),
                program: format!("tried(lambda: said({}))", text(&connect)),
                answer: with("tunnel"),
                audit: one(&audit),
            },
            Row {
                what: format!("{host} by GET"),
                program: format!("tried(lambda: said({}))", text(&get)),
                answer: with(name),
                audit: one(&audit),
            },
            Row {
                what: format!("{host} by SOCKS"),
                program: format!("said_in_socks({}, 80)", text(&address)),
                answer: socks,
                audit: one(&audit),
            },
        ]);
    }
    for (what, sent, answer, audit) in requests() {
        rows.push(Row {
            what: what.to_owned(),
            program: format!("tried(lambda: said({}))", text(&sent)),
            answer,
            audit: one(&audit),
        });
    }
    for (what, address, port, command, answer, audit) in SOCKS {
        let program = format!("said_in_socks({}, {port}, {command})", text(address));
        rows.push(Row { what: format!("{what}, by SOCKS"), program, answer: (*answer).to_owned(), audit: one(audit) });
    }
    for (to, answer, audit) in REDIRECTS {
        let program = format!("followed({})", text(&format!("http://site.example/away?{to}")));
        let mut all = one("allow allow site.example:80");
        all.extend((!audit.is_empty()).then(|| (*audit).to_owned()));
        rows.push(Row { what: format!("a redirect to {to}"), program, answer: (*answer).to_owned(), audit: all });
    }
    // What is checked is what is connected to: each connection asks once, and takes what it is told.
    let changing = "said(\"GET http://changing.trap.example/ HTTP/1.1\\r\\n\\r\\n\")";
    let leads = |what: &str| {
        format!(
            "403 may not reach changing.trap.example:80: its name leads to {what}, which only a rule for the address itself allows"
        )
    };
    for (time, answer, audit) in [
        ("first", "world 93.184.216.38:80 as changing.trap.example".to_owned(), "allow allow changing.trap.example:80"),
        ("second", leads("a loopback address"), "allow deny changing.trap.example:80"),
        ("third", leads("a private address"), "allow deny changing.trap.example:80"),
        (
            "fourth",
            "world 93.184.216.38:80 as changing.trap.example".to_owned(),
            "allow allow changing.trap.example:80",
        ),
    ] {
        rows.push(Row {
            what: format!("a name that leads elsewhere each time, the {time} time"),
            program: changing.to_owned(),
            answer,
            audit: one(audit),
        });
    }
    rows
}

/// Decisions and target of each connection in the records, in the order in which they were asked for; and whether each
/// that was not made says why.
fn connections(records: &[Value]) -> Vec<String> {
    let mut ids: Vec<&Value> = Vec::new();
    for record in records {
        if !ids.contains(&&record["connection"]) {
            ids.push(&record["connection"]);
        }
    }
    let told = |id: &Value| {
        let of: Vec<&Value> = records.iter().filter(|record| record["connection"] == *id).collect();
        let words = of.iter().map(|record| match (record["decision"].as_str().unwrap(), record["reason"].as_str()) {
            ("allow", None) => "allow".to_owned(),
            (word, Some(reason)) if word != "allow" && !reason.is_empty() => word.to_owned(),
            (word, reason) => format!("{word} because of {reason:?}"),
        });
        let words = words.collect::<Vec<_>>().join(" ");
        format!("{words} {}", of[0]["target"].as_str().unwrap()).trim().to_owned()
    };
    ids.into_iter().map(told).collect()
}

#[test]
fn nothing_that_looks_like_something_else_widens_what_may_be_reached() {
    let Some(mut world) = World::new(&zone()) else { return };
    let site = Site::new(&[dialler("web", &format!("egress = {RULES:?}")), NO_LIMITS.to_owned()].concat());
    let mut serving = world.open(&site);
    let mut rows = rows();
    if !std::path::Path::new("/proc/net/if_inet6").exists() {
        rows.retain(|row| !row.answer.contains("world ["));
    }
    let mut answers = Vec::new();
    for some in rows.chunks(50) {
        let programs: Vec<_> = some.iter().map(|row| row.program.as_str()).collect();
        answers.extend(
            found(&mut serving, "web", &format!("found = [{}]", programs.join(",\n"))).as_array().unwrap().clone(),
        );
    }
    let wanted: usize =
        rows.iter().flat_map(|row| &row.audit).map(|audit| 1 + usize::from(audit.starts_with("allow "))).sum();
    let all = || site.records("egress");
    wait_until("a record of everything", PATIENCE, || all().len() >= wanted);
    let mut recorded = connections(&all()).into_iter();

    let rules = "; allowed: ".to_owned() + &RULES.join(", ").replace("bücher", "xn--bcher-kva");
    let (mut expected, mut actual) = (String::new(), String::new());
    for (row, answer) in rows.iter().zip(&answers) {
        let own: Vec<_> = recorded.by_ref().take(row.audit.len()).collect();
        let answer = answer.as_str().unwrap().replace("bulkhead: server web ", "").replace(&rules, "; allowed: …");
        writeln!(expected, "{:55} | {} | {}", row.what, row.answer, row.audit.join(", ")).unwrap();
        writeln!(actual, "{:55} | {answer} | {}", row.what, own.join(", ")).unwrap();
    }
    let differing: Vec<_> = expected.lines().zip(actual.lines()).filter(|(e, a)| e != a).collect();
    assert!(differing.is_empty(), "expected:\n{expected}\nfound:\n{actual}\n{differing:#?}");
    assert_eq!(recorded.next(), None);

    // Each connection has looked its name up once, and what no rule names is never looked up.
    let mut looked_up = world.seen();
    let asked = |name: &str| {
        let of = |record: &&Value| record["target"] == format!("{name}:80") && record["ms"].is_u64();
        all().iter().filter(of).count() as u64
    };
    looked_up.retain(|name, _| !name.starts_with("nowhere.example"));
    for (name, count) in looked_up {
        assert!(
            RULES.iter().any(|rule| name.ends_with(rule.trim_start_matches('*').trim_end_matches(":80")))
                || name.starts_with("xn--"),
            "{name}"
        );
        assert_eq!(count, asked(&name), "{name}");
    }
    let used = wait_for("the counters", PATIENCE, || {
        let used = site.server("web")["instances"][0]["egress"].clone();
        (used["open"] == 0).then_some(used)
    });
    let refused = rows.iter().flat_map(|row| &row.audit).filter(|audit| !audit.starts_with("allow allow")).count();
    assert_eq!(used["refused"], refused, "{used}");
    assert_eq!(listening(serving.pid()), [80, 81, 443], "the gateway itself listens nowhere");
}

/// The ports on which anybody listens in the network of a process.
fn listening(pid: u32) -> Vec<u16> {
    let mut ports: Vec<u16> = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A socket that listens, or one of datagrams that has no other end.
            if words[3] == "0A" || table.starts_with("udp") && words[3] == "07" {
                ports.push(u16::from_str_radix(words[1].rsplit(':').next().unwrap(), 16).unwrap());
            }
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}
