//! What can be reached, cell by cell: each way a server may be configured, against all that there is to reach, by each way
//! there is to try it. A server on the host tries the same, so that what is not reached from a container is there to be
//! reached.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::dialling::{Neighbour, Network, dialler, dialler_on_host, found, of_role, passages, service};
use crate::support::engine::{self, docker};
use crate::support::namespaces::{Names, hindrance};
use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, skipped, wait_until};

/// The servers, by the first line of the table: `{…}` in what they may reach is a port of [`Surroundings`]. One more is a
/// line here and a column there.
const SERVERS: [(&str, Option<&str>); 6] = [
    ("none", Some("")),
    ("egress", Some("egress = [\"allowed.example:{web}\"]")),
    ("ports", Some("host_ports = [{granted}]")),
    ("both", Some("egress = [\"allowed.example:{web}\"]\nhost_ports = [{granted}]")),
    ("bridge", Some("network = \"bridge\"")),
    // Not in a container at all.
    ("host", None),
];

/// What comes of each attempt: the name of the service that answered, or what kept it from that. `by proxy` is each of
/// [`BY_PROXY`], and one word where all come to the same. Where the first cell is empty it is the one above; `*` is
/// whatever it is on the machine of the tests, and `-` is not tried. On a bridge the test's public services are silent,
/// since the engine keeps its networks apart; that others answer is shown elsewhere.
const TABLE: &str = "
target                                 | way        | none           | egress         | ports          | both           | bridge         | host
its own service on its loopback        | raw        | itself         | itself         | itself         | itself         | itself         | itself
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
its own proxy                          | open       | refused        | open           | refused        | open           | refused        | *
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
another server's loopback              | raw        | refused        | refused        | refused        | refused        | refused        | refused
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
a container of others (private)        | raw        | no route       | no route       | no route       | no route       | forbidden      | private
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 0.0.0.0, by 127.0.0.1      | raw        | refused        | refused        | refused        | refused        | refused        | everywhere
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 0.0.0.0, by the bridge     | raw        | no route       | no route       | no route       | no route       | forbidden      | everywhere
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 0.0.0.0, by its others     | raw        | no route       | no route       | no route       | no route       | forbidden      | everywhere
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 0.0.0.0, by IPv6           | raw        | no route       | no route       | no route       | no route       | no route       | everywhere
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 127.0.0.1, granted port    | raw        | refused        | refused        | granted        | granted        | refused        | granted
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host on 127.0.0.1, another port    | raw        | refused        | refused        | refused        | refused        | refused        | other
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
metadata, 169.254.169.254              | open       | no route       | no route       | no route       | no route       | forbidden      | open
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
an allowed name                        | raw        | no name        | no name        | no name        | no name        | no name        | public
                                       | by proxy   | no proxy       | public         | no proxy       | public         | no proxy       | no proxy
an allowed name, another port          | raw        | no name        | no name        | no name        | no name        | no name        | public
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the address of an allowed name         | raw        | no route       | no route       | no route       | no route       | silence        | public
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
a name that is not allowed             | raw        | no name        | no name        | no name        | no name        | no name        | public
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the engine's resolver, 127.0.0.11      | udp        | refused        | refused        | refused        | refused        | answered       | refused
                                       | raw        | refused        | refused        | refused        | refused        | closed         | refused
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
the host's resolver                    | dns udp    | nothing        | nothing        | nothing        | nothing        | *              | answered
                                       | dns tcp    | nothing        | nothing        | nothing        | nothing        | *              | *
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
a resolver elsewhere                   | udp        | no route       | no route       | no route       | no route       | silence        | answered
                                       | dns tcp    | nothing        | nothing        | nothing        | nothing        | nothing        | answered
                                       | by proxy   | no proxy       | denied         | no proxy       | denied         | no proxy       | no proxy
                                       | SOCKS UDP  | no proxy       | no such command| no proxy       | no such command| no proxy       | no proxy
anywhere public                        | route      | no route       | no route       | no route       | no route       | a route        | a route
                                       | raw        | no route       | no route       | no route       | no route       | -              | -
                                       | udp        | no route       | no route       | no route       | no route       | -              | -
anywhere else                          | route      | no route       | no route       | no route       | no route       | forbidden      | a route
                                       | raw        | no route       | no route       | no route       | no route       | forbidden      | -
                                       | udp        | no route       | no route       | no route       | no route       | forbidden      | -
past all routes                        | packets    | forbidden      | forbidden      | forbidden      | forbidden      | forbidden      | *
its interfaces and routes              | interfaces | lo, 0 routes   | lo, 0 routes   | lo, 0 routes   | lo, 0 routes   | *              | *
";

/// All ways of the table.
const WAYS: [&str; 10] =
    ["raw", "open", "by proxy", "SOCKS UDP", "udp", "route", "dns udp", "dns tcp", "packets", "interfaces"];

/// The ways of a proxy.
const BY_PROXY: [&str; 3] = ["CONNECT", "GET", "SOCKS"];

/// Public addresses. Who has a route there does not send anything.
const PUBLIC: [&str; 2] = ["1.1.1.1", "8.8.8.8"];

/// Addresses of each other kind, none of them of this machine.
const ANYWHERE: [&str; 7] =
    ["10.0.0.1", "10.255.255.254", "100.64.0.1", "172.31.255.1", "192.168.0.1", "198.51.100.1", "203.0.113.1"];

/// The file of the secret that every server has.
const SECRET: &str = "secret";

/// After what the whole table must be the same.
#[derive(Clone, Copy, Debug)]
enum After {
    /// The first start of every server.
    Start,
    /// The containers were killed, guards and fences and all, and the gateway has started others.
    Killed,
    /// The gateway has ended, and another one has started.
    Ended,
    /// All servers could reach more, and did, and a reload has taken it away again.
    Reloaded,
    /// A reload of the same configuration, when the secret of every server has another value.
    Rotated,
}

const ROUNDS: [After; 5] = [After::Start, After::Killed, After::Reloaded, After::Rotated, After::Ended];

/// More than any server of the table may reach.
const WIDE: &str = "egress = [\"allowed.example:{web}\", \"other.example:{web}\"]\nhost_ports = [{granted}, {other}]";

/// All that there is to be reached.
struct Surroundings {
    ports: BTreeMap<&'static str, u16>,
    bridge: String,
    private: Neighbour,
    public: Neighbour,
    _metadata: Option<Neighbour>,
    others: Vec<String>,
    resolver: String,
    names: Names,
    _networks: Vec<Network>,
}

impl Surroundings {
    /// `None`, and the reason noted, where it cannot be had.
    fn new() -> Option<Self> {
        if let Some(why) = hindrance() {
            skipped(&format!("names of its own: {why}"));
            return None;
        }
        // A network that answers for reverse names of private addresses, and that nobody needs for a minute (RFC 7535).
        let public: Vec<String> = (0..32).map(|n| format!("192.175.48.{}/29", n * 8)).collect();
        let public = Network::at("public", &public).expect("a public network that is not in use");
        let web = "serve(named('public'), '0.0.0.0', 80)\nserve(named('public'), '0.0.0.0', 81)\n\
                   answer_datagrams(lambda asked: b'answer')\n\
                   serve_dns = socket.create_server(('0.0.0.0', 53))\n\
                   threading.Thread(target=lambda: [serve_dns.accept()[0].sendall(b'answer') for _ in iter(int, 1)], \
                   daemon=True).start()";
        let public_web = Neighbour::on(&public.name, &[], web);
        let private = Neighbour::on("bridge", &[], "serve(named('private'), '0.0.0.0', 80)");
        // Where there is one, it is a cloud's, and not to be hidden.
        let there = std::net::TcpStream::connect_timeout(
            &"169.254.169.254:80".parse().unwrap(),
            std::time::Duration::from_secs(2),
        );
        let mut networks = vec![public];
        let metadata = there.is_err().then(|| {
            let network = Network::at("metadata", &["169.254.169.252/30".to_owned()]).expect("a link-local network");
            let what = "serve(named('metadata'), '0.0.0.0', 80)";
            let metadata = Neighbour::on(&network.name, &["--ip", "169.254.169.254"], what);
            networks.push(network);
            metadata
        });
        let bridge = docker(&["exec", &private.container, "python3", "-c", GATEWAY]);
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ports = BTreeMap::from([
            ("web", 80),
            ("granted", service("127.0.0.1:0", "granted")),
            ("other", service("127.0.0.1:0", "other")),
            ("everywhere", service("[::]:0", "everywhere")),
            ("peer", free()),
        ]);
        let mut others = addresses_of_host();
        others.retain(|address| *address != bridge);
        others.push(docker(&["exec", &public_web.container, "python3", "-c", GATEWAY]));
        let hosts = format!("127.0.0.1 localhost\n{0} allowed.example\n{0} other.example\n", public_web.address);
        Some(Surroundings {
            ports,
            bridge,
            private,
            public: public_web,
            _metadata: metadata,
            others,
            resolver: resolver(),
            names: Names::new(&[("/etc/hosts", &hosts)]),
            _networks: networks,
        })
    }

    /// The configuration, of a state of which every server has a word in its environment; each in a container may reach what
    /// the table says, or these lines instead.
    fn config(&self, site: &Site, state: &str, instead: Option<&str>) -> String {
        let filled = |lines: &str| {
            self.ports
                .iter()
                .fold(lines.to_owned(), |text, (name, port)| text.replace(&format!("{{{name}}}"), &port.to_string()))
        };
        let entries = SERVERS.iter().map(|(name, lines)| match lines {
            Some(lines) => dialler(name, &filled(instead.unwrap_or(lines))),
            None => dialler_on_host(name),
        });
        let secret = format!("file:{}", site.path(SECRET).display());
        let given = format!("env = {{ STATE = {state:?} }}\nsecrets = {{ SECRET = {secret:?} }}\n");
        let entries = entries.chain([dialler("peer", "")]).map(|entry| entry + &given);
        entries.chain([NO_LIMITS.to_owned()]).collect()
    }

    /// Every other address of the host, of one family.
    fn of_host(&self, six: bool) -> Vec<(String, u16)> {
        let of_family = self.others.iter().filter(|address| address.contains(':') == six);
        of_family.map(|address| (address.clone(), self.ports["everywhere"])).collect()
    }

    /// Hosts and ports of a target of the table.
    fn places(&self, target: &str) -> Vec<(String, u16)> {
        let port = |name: &str| self.ports[name];
        let one = |host: &str, port: u16| vec![(host.to_owned(), port)];
        match target {
            // Port 0 is for whoever dials.
            "its own service on its loopback" => one("127.0.0.1", 0),
            "its own proxy" => one("127.0.0.1", 3128),
            "another server's loopback" => one("127.0.0.1", port("peer")),
            "a container of others (private)" => one(&self.private.address, 80),
            "the host on 0.0.0.0, by 127.0.0.1" => one("127.0.0.1", port("everywhere")),
            "the host on 0.0.0.0, by the bridge" => one(&self.bridge, port("everywhere")),
            "the host on 0.0.0.0, by its others" => self.of_host(false),
            "the host on 0.0.0.0, by IPv6" => self.of_host(true),
            "the host on 127.0.0.1, granted port" => one("127.0.0.1", port("granted")),
            "the host on 127.0.0.1, another port" => one("127.0.0.1", port("other")),
            "metadata, 169.254.169.254" => one("169.254.169.254", 80),
            "an allowed name" => one("allowed.example", 80),
            "an allowed name, another port" => one("allowed.example", 81),
            "the address of an allowed name" => one(&self.public.address, 80),
            "a name that is not allowed" => one("other.example", 80),
            "the engine's resolver, 127.0.0.11" => one("127.0.0.11", 53),
            "the host's resolver" => one(&self.resolver, 53),
            "a resolver elsewhere" => one(&self.public.address, 53),
            "anywhere public" => PUBLIC.iter().map(|address| ((*address).to_owned(), 443)).collect(),
            "anywhere else" => ANYWHERE.iter().map(|address| ((*address).to_owned(), 443)).collect(),
            "past all routes" | "its interfaces and routes" => one("", 1),
            _ => panic!("no such target: {target}"),
        }
    }
}

/// Prints a container's way out: where containers on its network find the host.
const GATEWAY: &str = "import socket, struct\n\
    routes = [line.split() for line in open('/proc/net/route')]\n\
    print(*[socket.inet_ntoa(struct.pack('<L', int(r[2], 16))) for r in routes if r[1] == '00000000'])";

/// The addresses of the host's interfaces that lead elsewhere. What else there is may be other tests', and come and go.
fn addresses_of_host() -> Vec<String> {
    let lines = |args: &[&str]| {
        let shown = engine::output_of(Command::new("ip").args(args)).unwrap();
        let words = shown.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        words.collect::<Vec<_>>()
    };
    let routes =
        lines(&["-4", "route", "show", "default"]).into_iter().chain(lines(&["-6", "route", "show", "default"]));
    let after = |words: Vec<String>| words.iter().position(|word| word == "dev").map(|at| words[at + 1].clone());
    let out: BTreeSet<String> = routes.filter_map(after).collect();
    let shown = lines(&["-oneline", "address", "show", "scope", "global"]);
    let own = shown.into_iter().filter(|words| out.contains(words[1].trim_end_matches(':')));
    own.map(|words| words[3].split('/').next().unwrap().to_owned()).collect()
}

/// Who the host asks for names.
fn resolver() -> String {
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap();
    let mut servers = conf.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim);
    servers.find(|server| server.parse::<std::net::Ipv4Addr>().is_ok()).expect("a resolver").to_owned()
}

// === the table ===

type Rows = Vec<Vec<String>>;

/// The cells of the table, each row with its target.
fn read(text: &str) -> Rows {
    let mut rows: Rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        if cells[0].is_empty() {
            cells[0] = rows.last().unwrap()[0].clone();
        }
        rows.push(cells);
    }
    rows
}

fn written(rows: &Rows) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            write!(text, "{cell:width$} | ").unwrap();
        }
        text.push('\n');
    }
    text
}

/// One attempt of a server's, and what came of it.
struct Attempt {
    way: &'static str,
    host: String,
    port: u16,
    word: String,
}

/// All that a server tries for a column of the table, row by row.
fn tried(serving: &mut Serving, server: &str, expected: &Rows, around: &Surroundings) -> Vec<Vec<Attempt>> {
    let column = expected[0].iter().position(|name| name == server).expect("a column of that server");
    let ways = |way: &'static str| if way == "by proxy" { BY_PROXY.to_vec() } else { vec![way] };
    let mut rows: Vec<Vec<Attempt>> = Vec::new();
    for row in &expected[1..] {
        let way = WAYS.into_iter().find(|way| *way == row[1]).unwrap_or_else(|| panic!("no such way: {}", row[1]));
        let places = if row[column] == "-" { Vec::new() } else { around.places(&row[0]) };
        let each = places.into_iter().flat_map(|(host, port)| {
            ways(way).into_iter().map(move |way| Attempt { way, host: host.clone(), port, word: String::new() })
        });
        rows.push(each.collect());
    }
    let asked: Vec<Value> = rows.iter().flatten().map(|a| json!([a.way, a.host, a.port])).collect();
    let found = found(serving, server, &format!("found = [dial({}), own_port()]", Value::from(asked)));
    let (mut words, own) = (found[0].as_array().unwrap().iter(), found[1].as_u64().unwrap() as u16);
    for attempt in rows.iter_mut().flatten() {
        attempt.word = words.next().unwrap().as_str().unwrap().to_owned();
        if attempt.port == 0 {
            attempt.port = own;
        }
    }
    rows
}

/// What stands in a cell for these attempts.
fn cell(attempts: &[Attempt]) -> String {
    let words: BTreeSet<&str> = attempts.iter().map(|attempt| attempt.word.as_str()).collect();
    match words.len() {
        0 => "-".to_owned(),
        1 => words.into_iter().collect(),
        _ => {
            let each = attempts.iter().map(|a| format!("{} {}:{} {}", a.way, a.host, a.port, a.word));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The cells that are not as they should be, if there are any; what may be anything is made to be as it should.
fn differing(expected: &Rows, actual: &mut Rows) -> Option<String> {
    let mut told = String::new();
    for (wanted, got) in expected.iter().zip(actual) {
        for (column, (cell, is)) in wanted.iter().zip(got.iter_mut()).enumerate() {
            // Not every machine has the newer family.
            if cell == "*" || is == "-" && wanted[0].ends_with("IPv6") {
                is.clone_from(cell);
            }
            if cell != is {
                writeln!(told, "{}, {}, {}: {is:?}, not {cell:?}", wanted[0], wanted[1], expected[0][column]).unwrap();
            }
        }
    }
    (!told.is_empty()).then_some(told)
}

/// What the attempts of a server must have left in the audit: target and decision, sorted.
fn recorded(attempts: &[Vec<Attempt>]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for attempt in attempts.iter().flatten() {
        let host = if attempt.host.contains(':') { format!("[{}]", attempt.host) } else { attempt.host.clone() };
        let target = format!("{host}:{}", attempt.port);
        match attempt.word.as_str() {
            "denied" => all.push((target, "deny".to_owned())),
            "no such command" => all.push((String::new(), "malformed".to_owned())),
            "public" | "granted" => all.extend([(target.clone(), "allow".to_owned()), (target, "allow".to_owned())]),
            _ => {}
        }
    }
    all.sort();
    all
}

// === the rounds ===

/// How much a server has left in the audit.
fn records_of(site: &Site, server: &str) -> usize {
    site.records("egress").into_iter().filter(|record| record["server"] == *server).count()
}

/// Makes the state in which the table is to hold.
fn bring(after: After, site: &Site, around: &Surroundings, serving: Option<Serving>) -> Serving {
    let open = || {
        let mut serving = Serving::start(around.names.command(site, &["serve"]));
        serving.initialize();
        serving
    };
    match (after, serving) {
        (After::Start, _) => open(),
        (After::Killed, Some(mut serving)) => {
            let gateway = site.gateway();
            let all = || ["guard", "fence", "server"].map(|role| of_role(&gateway, role)).concat();
            let before = all();
            docker(&[&["kill"], before.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
            serving.failure("host__crash", json!({}));
            wait_until("the end of all that was killed", PATIENCE, || {
                let running = |(name, _): &(&str, _)| site.server(name)["instances"][0].is_object();
                all().is_empty() && !SERVERS.iter().chain(&[("peer", None)]).any(running)
            });
            serving
        }
        (After::Reloaded, Some(mut serving)) => {
            site.reload_with(&serving, &around.config(site, "wide", Some(WIDE)));
            let more = format!("found = [by_get('other.example', 80), raw('127.0.0.1', {})]", around.ports["other"]);
            for (server, _) in SERVERS.iter().filter(|(_, lines)| lines.is_some()) {
                let before = records_of(site, server);
                assert_eq!(found(&mut serving, server, &more), json!(["public", "other"]), "{server}");
                passages(site, server, before + 4);
            }
            site.reload_with(&serving, &around.config(site, "reloaded", None));
            serving
        }
        (After::Rotated, Some(mut serving)) => {
            std::fs::write(site.path(SECRET), "another one").unwrap();
            let told = site.reload(&serving);
            let changed: Vec<&str> = SERVERS.iter().map(|(name, _)| *name).chain(["peer"]).collect();
            let words = told["changes"].to_string();
            assert!(changed.iter().all(|name| words.contains(name)), "{told}");
            for (server, _) in SERVERS {
                assert_eq!(found(&mut serving, server, "found = os.environ['SECRET']"), "another one", "{server}");
            }
            serving
        }
        (After::Ended, Some(serving)) => {
            assert!(serving.close().status.success());
            open()
        }
        (after, None) => panic!("nothing runs {after:?}"),
    }
}

/// The whole table once more, with the records of each attempt.
fn holds(after: After, serving: &mut Serving, site: &Site, around: &Surroundings) {
    let peer = around.ports["peer"];
    let listening = format!("serve(named('peer'), '127.0.0.1', {peer})\nfound = raw('127.0.0.1', {peer})");
    assert_eq!(found(serving, "peer", &listening), "peer");
    let expected = read(TABLE);
    let mut actual: Rows = expected.iter().map(|row| row[..2].to_vec()).collect();
    let mut left = Vec::new();
    for (server, _) in SERVERS {
        let before = records_of(site, server);
        let attempts = tried(serving, server, &expected, around);
        actual[0].push(server.to_owned());
        for (row, attempts) in actual[1..].iter_mut().zip(&attempts) {
            row.push(cell(attempts));
        }
        // What is on the host goes past the gateway.
        let wanted = if server == "host" { Vec::new() } else { recorded(&attempts) };
        left.push((server, before, wanted));
    }
    if let Some(differing) = differing(&expected, &mut actual) {
        panic!("after {after:?}\n\nexpected:\n{}\nfound:\n{}\n{differing}", written(&expected), written(&actual));
    }
    for (server, before, wanted) in left {
        let records = passages(site, server, before + wanted.len()).split_off(before);
        let word = |record: &Value, key: &str| record[key].as_str().unwrap().to_owned();
        let mut got: Vec<_> = records.iter().map(|r| (word(r, "target"), word(r, "decision"))).collect();
        got.sort();
        assert_eq!(got, wanted, "{server}, after {after:?}");
        let silent = |r: &&Value| r["decision"] != "allow" && r["reason"].as_str().is_none_or(str::is_empty);
        assert_eq!(records.iter().find(silent), None, "{server} is not told why");
    }
}

#[test]
fn what_is_not_granted_is_not_reached_by_any_way_whatever_has_happened_before() {
    let Some(around) = Surroundings::new() else { return };
    let site = Site::new("");
    std::fs::write(site.path(SECRET), "a value").unwrap();
    site.configure(&around.config(&site, "first", None));
    let mut serving = None;
    for after in ROUNDS {
        let mut now = bring(after, &site, &around, serving.take());
        holds(after, &mut now, &site, &around);
        serving = Some(now);
    }
    assert!(serving.unwrap().close().status.success());
}
