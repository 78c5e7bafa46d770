//! A server on a bridge: it reaches public addresses and nothing of the host, of other containers and of private networks,
//! whatever its program tries; told in status and audit, and gone without a trace.

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::dialling::of_role;
use crate::support::engine::{self, FIXTURE_SERVER, containers, docker, try_docker};
use crate::support::{PATIENCE, Serving, Site, skipped, wait_until};

/// The fixture server with one tool more, which runs what it is told.
const RUNNING: &str = r#"
import sys
sys.path.insert(0, "/srv")
import server

@server.tool("Runs a program, and shows what it calls `found`.", program="string")
def run(call):
    names = {}
    exec(call.arg("program", ""), names)
    return server.shown(names["found"])

server.main()
"#;

/// What the programs begin with.
const PRELUDE: &str = r#"
import errno, fcntl, ipaddress, socket, struct

route = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
out = [r for r in route if r[1] == "00000000" and r[7] == "00000000"][0]
gateway = str(ipaddress.ip_address(struct.pack("<I", int(out[2], 16))))
card = out[0]

def own():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("1.1.1.1", 9))
    return s.getsockname()[0]

def outcome(attempt):
    try:
        return attempt()
    except TimeoutError:
        return "timeout"
    except socket.gaierror:
        return "no name"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))

def bound(s, how):
    if how == "card":
        s.setsockopt(socket.SOL_SOCKET, 25, card.encode())
    if how == "interface":
        s.setsockopt(socket.IPPROTO_IP, 50, struct.pack("!I", socket.if_nametoindex(card)))
    if how == "address":
        s.bind((own(), 0))

def tcp(host, port, how=None):
    def attempt():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as s:
            s.settimeout(2)
            bound(s, how)
            s.connect((host, port))
            return "open"
    return outcome(attempt)

def udp(host, port, how=None):
    def attempt():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(2)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            bound(s, how)
            s.sendto(b"hello", (host, port))
            return s.recv(99).decode()
    return outcome(attempt)
"#;

/// The entry of a server on a bridge.
fn bridged(name: &str, lines: &str) -> String {
    engine::build_fixture_server();
    let command = format!("[\"python3\", \"-u\", \"-c\", {RUNNING:?}]");
    format!("[servers.{name}]\nimage = \"{FIXTURE_SERVER}\"\ncommand = {command}\nnetwork = \"bridge\"\n{lines}\n")
}

/// What a program on a server finds.
fn found(serving: &mut Serving, server: &str, program: &str) -> Value {
    let text = serving.text(&format!("{server}__run"), json!({ "program": format!("{PRELUDE}\n{program}") }));
    serde_json::from_str(&text).unwrap()
}

/// The networks of a gateway.
pub fn networks(gateway: &str) -> Vec<String> {
    let label = format!("label=org.bulkhead.gateway={gateway}");
    let listed = docker(&["network", "ls", "--no-trunc", "--quiet", "--filter", &label]);
    listed.lines().map(str::to_owned).collect()
}

/// What listens in the town: whoever connects or sends is answered with the name of the service, and every name is one of
/// its public address.
const SERVICES: &str = r#"
import socket, struct, sys, threading
public, private, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def streams():
    l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("0.0.0.0", port)); l.listen()
    while True:
        l.accept()[0].close()
def datagrams():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", port))
    while True:
        _, whence = s.recvfrom(99); s.sendto(b"town", whence)
def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((private, 53))
    while True:
        q, whence = s.recvfrom(999)
        end = q.index(b"\0", 12) + 5
        four = q[end - 4:end - 2] == b"\0\1"
        head = q[:2] + b"\x81\x80" + b"\0\1" + (b"\0\1" if four else b"\0\0") + b"\0\0\0\0"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(public) if four else b""
        s.sendto(head + q[12:end] + answer, whence)
for f in (streams, datagrams, names):
    threading.Thread(target=f, daemon=True).start()
print("open", flush=True)
sys.stdin.read()
"#;

/// A network of this machine's own behind a link, with services at a public and at a private address. Both lead nowhere
/// else: they are routed to it.
struct Town {
    name: String,
    /// This machine's own address on the link, a public one.
    here: String,
    public: String,
    private: String,
    port: u16,
    services: Child,
}

impl Town {
    /// None where this machine lets nobody make one.
    fn build() -> Option<Self> {
        let id = std::process::id();
        let (a, b) = (id >> 8 & 0xff, id & 0xff);
        let name = format!("bh{id}");
        let (here, public, private) = (format!("11.{a}.{b}.1"), format!("11.{a}.{b}.2"), format!("10.{a}.{b}.2"));
        let lines = [
            format!("netns add {name}"),
            format!("link add {name} type veth peer name town netns {name}"),
            format!("addr add {here}/24 dev {name}"),
            format!("link set {name} up"),
            format!("-n {name} link set lo up"),
            format!("-n {name} addr add {public}/24 dev town"),
            format!("-n {name} addr add {private}/32 dev town"),
            format!("-n {name} link set town up"),
            format!("-n {name} route add default via {here}"),
            format!("route add {private}/32 via {public}"),
        ];
        let mut town = None;
        for line in lines {
            let done = Command::new("ip").args(line.split(' ')).output();
            if !done.is_ok_and(|done| done.status.success()) {
                demolish(&name);
                skipped(&format!("a network namespace: ip {line}"));
                return None;
            }
        }
        let port = 7007;
        let mut services = Command::new("ip")
            .args(["netns", "exec", &name, "python3", "-c", SERVICES, &public, &private, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 4];
        services.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        town.replace(Town { name, here, public, private, port, services });
        town
    }

    /// A gateway on a machine whose name server is the town's, at its private address.
    fn serve(&self, site: &Site) -> Serving {
        let names = site.path("resolv.conf");
        std::fs::write(&names, format!("nameserver {}\nsearch corp.example\n", self.private)).unwrap();
        let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
        let mut command = site.with_environment("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(names).arg(crate::support::site::BULKHEAD);
        command.args(site.line(&["serve"]));
        let mut serving = Serving::start(command);
        serving.initialize();
        serving
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = self.services.kill();
        let _ = self.services.wait();
        demolish(&self.name);
    }
}

fn demolish(name: &str) {
    for line in [format!("link del {name}"), format!("netns del {name}")] {
        let _ = Command::new("ip").args(line.split(' ')).output();
    }
}

/// A service of the host's that takes connections, and one that answers datagrams, both at one port.
fn service(address: &str) -> u16 {
    let listener = TcpListener::bind(format!("{address}:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = UdpSocket::bind(format!("{address}:{port}")).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(drop));
    std::thread::spawn(move || {
        let mut piece = [0; 99];
        while let Ok((_, whence)) = socket.recv_from(&mut piece) {
            let _ = socket.send_to(b"host", whence);
        }
    });
    port
}

/// A container beside, which listens; removed at its end.
struct Beside(String);

impl Beside {
    fn on(network: &str, port: u16) -> Self {
        let script =
            format!("import socket\nl = socket.create_server(('0.0.0.0', {port}))\nwhile True: l.accept()[0].close()");
        let arguments = ["run", "--detach", "--rm", "--label", "org.bulkhead.test=bridge", "--network", network];
        let program = ["bulkhead/fixture", "python3", "-c", &script];
        Beside(docker(&[&arguments[..], &program].concat()))
    }

    fn address(&self) -> String {
        let all = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        docker(&["inspect", "--format", all, &self.0])
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = try_docker(&["rm", "--force", "--volumes", &self.0]);
    }
}

/// The address that this machine has on its main link.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent.
    socket.connect("1.1.1.1:9").unwrap();
    socket.local_addr().unwrap().ip().to_string()
}

#[test]
fn it_reaches_public_addresses_and_names_and_nothing_else_whatever_is_tried() {
    let Some(town) = Town::build() else { return };
    let (everywhere, loopback) = (service("0.0.0.0"), service("127.0.0.1"));
    let site = Site::new(&[bridged("web", ""), bridged("second", "")].concat());
    let mut serving = town.serve(&site);
    let on_the_network_of = |serving: &mut Serving, server: &str| {
        assert_eq!(found(serving, server, "found = 'runs'"), "runs");
        Beside::on(site.server(server)["instances"][0]["fence"]["network"]["name"].as_str().unwrap(), 7008)
    };
    // One that has come to its own network since it was proven, one on another's, and one on the engine's own.
    let neighbour = on_the_network_of(&mut serving, "web");
    let (beyond, stranger) = (on_the_network_of(&mut serving, "second"), Beside::on("bridge", 7008));
    let gateway = site.gateway();
    let program = format!(
        r#"
import threading
here = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: [here.accept() for _ in range(9)], daemon=True).start()
with socket.socket() as s:
    mask = fcntl.ioctl(s, 0x891b, struct.pack("256s", card.encode()))[20:24]
last = str(ipaddress.ip_address(int(ipaddress.ip_address(own())) | 0xffffffff ^ int.from_bytes(mask, "big")))
town, private, port = "{public}", "{private}", {port}
everywhere, host = {everywhere}, "{host}"
found = {{
    "own loopback": tcp("127.0.0.1", here.getsockname()[1]),
    "public": tcp(town, port), "public by datagram": udp(town, port), "public by its card": tcp(town, port, "card"),
    "name": outcome(lambda: socket.gethostbyname("any.example")), "named": tcp("any.example", port),
    "names by stream": tcp(private, 53),
    "host's loopback": tcp("127.0.0.1", {loopback}),
    "gateway": tcp(gateway, everywhere), "gateway by its card": tcp(gateway, everywhere, "card"),
    "gateway from its address": tcp(gateway, everywhere, "address"),
    "host": tcp(host, everywhere), "host by its card": tcp(host, everywhere, "card"),
    "host's public address": tcp("{here}", everywhere), "that by its card": tcp("{here}", everywhere, "card"),
    "gateway by datagram": udp(gateway, everywhere), "gateway by datagram and card": udp(gateway, everywhere, "card"),
    "gateway by datagram and interface": udp(gateway, everywhere, "interface"),
    "everybody": udp("255.255.255.255", everywhere), "everybody by its card": udp("255.255.255.255", everywhere, "card"),
    "everybody from its address": udp("255.255.255.255", everywhere, "address"),
    "everybody of the link": udp(last, everywhere), "everybody of the link by its card": udp(last, everywhere, "card"),
    "many": udp("224.0.0.1", everywhere, "address"),
    "neighbour": tcp("{neighbour}", 7008), "neighbour by its card": tcp("{neighbour}", 7008, "card"),
    "beyond": tcp("{beyond}", 7008), "beyond by its card": tcp("{beyond}", 7008, "card"),
    "stranger": tcp("{stranger}", 7008), "stranger by its card": tcp("{stranger}", 7008, "card"),
    "private": tcp(private, port), "private by its card": tcp(private, port, "card"),
    "private by datagram and card": udp(private, port, "card"),
    "loopback by datagram and card": udp("127.0.0.1", everywhere, "card"),
    "metadata": tcp("169.254.169.254", 80), "metadata by its card": tcp("169.254.169.254", 80, "card"),
    "other names": tcp("10.9.8.7", 53), "gateway's names": tcp(gateway, 53),
    "six": tcp("2606:4700:4700::1111", 443),
    "raw": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and "open"),
    "packet": outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and "open"),
    "search": [l for l in open("/etc/resolv.conf") if "corp" in l],
}}
"#,
        public = town.public,
        private = town.private,
        port = town.port,
        here = town.here,
        host = own_address(),
        neighbour = neighbour.address(),
        beyond = beyond.address(),
        stranger = stranger.address(),
    );
    let seen = found(&mut serving, "web", &program);
    let expected = json!({
        "own loopback": "open",
        "public": "open", "public by datagram": "town", "public by its card": "open",
        "name": town.public, "named": "open",
        // The way is open, and nobody listens there.
        "names by stream": "ECONNREFUSED",
        "host's loopback": "ECONNREFUSED",
        "gateway": "EACCES", "gateway by its card": "timeout", "gateway from its address": "EACCES",
        "host": "EACCES", "host by its card": "timeout",
        "host's public address": "EACCES", "that by its card": "timeout",
        "gateway by datagram": "EACCES", "gateway by datagram and card": "EPERM",
        "gateway by datagram and interface": "EPERM",
        "everybody": "EACCES", "everybody by its card": "EPERM", "everybody from its address": "EPERM",
        "everybody of the link": "EACCES", "everybody of the link by its card": "EPERM",
        "many": "EPERM",
        "neighbour": "EACCES", "neighbour by its card": "timeout",
        "beyond": "EACCES", "beyond by its card": "timeout",
        "stranger": "EACCES", "stranger by its card": "timeout",
        "private": "EACCES", "private by its card": "timeout", "private by datagram and card": "EPERM",
        "loopback by datagram and card": "EPERM",
        "metadata": "EACCES", "metadata by its card": "timeout",
        "other names": "EACCES", "gateway's names": "EACCES",
        "six": seen["six"],
        "raw": "EPERM", "packet": "EPERM",
        "search": [],
    });
    assert_eq!(seen, expected);
    let six = seen["six"].as_str().unwrap();
    assert!(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EACCES"].contains(&six), "{six}");

    // The same from a container that is on a bridge without a fence: there is something to be kept from.
    let open = unfenced(&town, everywhere);
    assert_eq!(open, json!(["open", "open", "host", "open"]), "gateway, host, everybody, private");

    let shown = site.server("web");
    assert_eq!((&shown["network"], &shown["isolation"]), (&json!("bridge"), &json!("proven")));
    let names = format!("the name server {}:53", town.private);
    assert_eq!(shown["reach"], json!(["lo", "the internet (public IPv4 addresses)", names]));
    let text = site.prints(&["status", "web"]);
    assert!(text.contains("the internet (public IPv4 addresses)") && text.contains(&names), "{text}");
    assert!(text.contains("29 of 29 controls proven"), "{text}");
    assert!(text.contains("cannot reach the host, other containers, private and link-local networks"), "{text}");
    let instance = &shown["instances"][0];
    let controls = |of: &Value| of["evidence"]["controls"].as_array().unwrap().clone();
    for all in [controls(instance), controls(&instance["fence"])] {
        assert!(all.len() == 29 && all.iter().all(|control| control["holds"] == true), "{all:?}");
    }
    let fence = instance["fence"]["container"].as_str().unwrap();
    let network = controls(instance).into_iter().find(|control| control["control"] == "network").unwrap();
    assert_eq!(network["engine"], format!("none but within the fence {fence:.12}"));
    assert!(instance["fence"]["refused"].as_array().unwrap().contains(&json!("169.254.0.0/16")), "{instance}");
    let proven = site.records("server").into_iter().filter(|record| record["event"] == "proven");
    let fences = proven.filter_map(|record| record["reason"].as_str().map(str::to_owned)).collect::<Vec<_>>();
    assert!(fences.len() == 2 && fences.iter().all(|why| why.contains("can reach: the internet")), "{fences:?}");

    assert_eq!((of_role(&gateway, "fence").len(), of_role(&gateway, "server").len()), (2, 2));
    assert_eq!(networks(&gateway).len(), 2);
    drop((neighbour, beyond));
    assert!(serving.close().status.success());
    assert_eq!((engine::servers(&gateway), networks(&gateway)), (vec![], vec![]));
}

/// What a container on a bridge of the engine's reaches.
fn unfenced(town: &Town, everywhere: u16) -> Value {
    let script = format!(
        "{PRELUDE}\nimport json\nprint(json.dumps([tcp(gateway, {everywhere}), tcp('{}', {everywhere}), \
         udp('255.255.255.255', {everywhere}, 'address'), tcp('{}', {})]))",
        own_address(),
        town.private,
        town.port
    );
    let said = docker(&["run", "--rm", "--network", "bridge", "bulkhead/fixture", "python3", "-c", &script]);
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_fence_that_ends_takes_its_server_along_and_the_next_call_has_both_anew() {
    let site = Site::new(&bridged("web", ""));
    let mut serving = site.open();
    let attempt = "found = tcp(gateway, 80)";
    assert_eq!(found(&mut serving, "web", attempt), "EACCES");
    let gateway = site.gateway();
    let before = networks(&gateway);
    let [fence] = &of_role(&gateway, "fence")[..] else { panic!("one fence") };
    let sleeping = serving.ask_tool("web__sleep", json!({ "ms": 50_000 }));
    wait_until("the call under way", PATIENCE, || site.records("intent").len() == 2);
    docker(&["kill", fence]);
    let answer = serving.answer(sleeping).to_string();
    assert!(answer.contains("the fence of its network has ended: exit code 137"), "{answer}");
    assert_eq!(found(&mut serving, "web", attempt), "EACCES");
    assert!(!of_role(&gateway, "fence").contains(fence));
    wait_until("the end of its network", PATIENCE, || {
        let now = networks(&gateway);
        now.len() == 1 && now != before
    });

    // The other way round: a server's end is its fence's, and its network's.
    let before = networks(&gateway);
    serving.failure("web__crash", json!({}));
    wait_until("the end of its network", PATIENCE, || networks(&gateway).iter().all(|id| !before.contains(id)));
    assert!(serving.close().status.success());
    assert_eq!((engine::servers(&gateway), networks(&gateway)), (vec![], vec![]));
}

#[test]
fn kill_9_leaves_nothing_after_the_next_start() {
    let site = Site::alone(&bridged("web", ""));
    let mut serving = site.open();
    assert_eq!(found(&mut serving, "web", "found = 1"), 1);
    let gateway = site.gateway();
    assert_eq!((containers(&gateway).len(), networks(&gateway).len()), (2, 1));
    serving.kill();
    wait_until("no container of it", PATIENCE, || containers(&gateway).is_empty());
    let _next = site.open();
    wait_until("no network of it", PATIENCE, || networks(&gateway).is_empty());
}

#[test]
fn a_server_that_does_not_start_leaves_neither_fence_nor_network() {
    let site = Site::new(&bridged("broken", "args = [\"--exit-at-start\", \"3\"]"));
    let mut serving = site.open();
    let told = serving.failure("broken__run", json!({ "program": "" }));
    assert!(told.contains("exit code 3"), "{told}");
    let gateway = site.gateway();
    wait_until("nothing of it", PATIENCE, || containers(&gateway).is_empty() && networks(&gateway).is_empty());
}

#[test]
fn what_is_not_known_of_an_engine_elsewhere_is_said() {
    let Some(town) = Town::build() else { return };
    let mut site = Site::new(&bridged("web", ""));
    site.set("DOCKER_HOST", format!("tcp://127.0.0.1:{}", engine::over_tcp()));
    let mut serving = site.open();
    let everywhere = service("0.0.0.0");
    // Names may be anywhere there; nothing else is, nor anything of the network itself. And which public addresses are the
    // host's nobody knows.
    let program = format!(
        "found = [tcp('{private}', 53), tcp('{private}', {port}), tcp(gateway, 53), tcp('169.254.169.254', 53), \
         tcp(gateway, {everywhere}), tcp('{here}', {everywhere})]",
        private = town.private,
        port = town.port,
        here = town.here,
    );
    let expected = json!(["ECONNREFUSED", "EACCES", "EACCES", "EACCES", "EACCES", "open"]);
    assert_eq!(found(&mut serving, "web", &program), expected);
    let words = [
        "lo",
        "the internet (public IPv4 addresses)",
        "name servers on private networks (port 53)",
        "host services on the host's public addresses",
    ];
    let shown = site.server("web");
    assert_eq!((&shown["reach"], &shown["instances"][0]["fence"]["host_addresses"]), (&json!(words), &Value::Null));
    let text = site.prints(&["status", "web"]);
    assert!(text.contains("cannot reach the host by its private addresses, other containers"), "{text}");
}

#[test]
fn check_says_what_is_reached_and_looks_for_the_fence_only_where_it_is_needed() {
    let told = |config: &str| {
        let told: Value = serde_json::from_str(&Site::new(config).run(&["check", "--json"]).stdout).unwrap();
        let told = told.to_string();
        (told.contains("image bulkhead/fence"), told.contains("can reach the internet"))
    };
    assert_eq!(told(&bridged("web", "")), (true, true));
    assert_eq!(told(&bridged("web", "").replace("network = \"bridge\"", "")), (false, false));
}
