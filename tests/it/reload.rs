//! SIGHUP: another configuration in force, all at once or not at all. What is unchanged goes on, what is another is
//! started anew, what is tightened holds at once, and what is refused changes nothing.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bridge::networks;
use crate::network::{PRELUDE, found};
use crate::support::dialling::dialler;
use crate::support::engine::{self, Cable, containers, docker, try_docker};
use crate::support::serving::text_of;
use crate::support::site::open_to_all;
use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, contained, on_host, wait_for, wait_until};

const CHANGED: &str = "notifications/tools/list_changed";

/// The container in which a call ran, by its intent; the last one of that tool.
fn container_of(site: &Site, exposed: &str) -> String {
    let (intent, _) = site.calls_of(exposed).pop().unwrap();
    intent["instance"].as_str().unwrap_or_else(|| panic!("{intent}")).to_owned()
}

fn count(serving: &mut Serving, server: &str) -> u64 {
    let text = serving.text(&format!("{server}__count"), json!({}));
    serde_json::from_str::<Value>(&text).unwrap()["calls"].as_u64().unwrap()
}

fn succeeded(answer: &Value) {
    assert!(answer["error"].is_null() && answer["result"]["isError"] != true, "{answer}");
}

/// How often a notification has come up to now.
fn notices(serving: &mut Serving) -> usize {
    serving.settled().iter().filter(|message| message["method"] == CHANGED).count()
}

/// A directory that servers see at /gate, with a pipe for each: a call that reads it is in flight until something is
/// written.
struct Gate(PathBuf);

impl Gate {
    fn of(site: &Site, servers: &[&str]) -> Self {
        let folder = site.path("gate");
        fs::create_dir(&folder).unwrap();
        open_to_all(&[&folder]);
        for server in servers {
            assert!(Command::new("mkfifo").arg(folder.join(server)).status().unwrap().success());
            open_to_all(&[&folder.join(server)]);
        }
        Gate(folder)
    }

    fn line(&self) -> String {
        format!("mounts = [{{ host = {:?}, at = \"/gate\" }}]\n", self.0)
    }

    /// Begins a call that stays in flight.
    fn ask(&self, site: &Site, serving: &mut Serving, server: &str) -> u64 {
        let before = site.records("intent").len();
        let id = serving.ask_tool(&format!("{server}__read"), json!({ "path": format!("/gate/{server}") }));
        wait_until("the call on its way", PATIENCE, || site.records("intent").len() > before);
        id
    }

    /// Lets it end.
    fn open(&self, server: &str) {
        // A pipe can be opened for writing once somebody reads it.
        let mut pipe = wait_for("somebody who reads", PATIENCE, || {
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            fs::OpenOptions::new().write(true).custom_flags(flags).open(self.0.join(server)).ok()
        });
        pipe.write_all(b"through").unwrap();
    }
}

#[test]
fn what_is_unchanged_goes_on_and_what_is_another_is_started_anew() {
    let [same, gone, new] = ["same", "gone", "new"].map(|name| contained(name, &[]));
    let other = |lines: &str| contained("other", &[]) + lines;
    let site = Site::new(
        &[&same, &gone, &other("pids = 64\nenv = { WORD = \"old\", LOST = \"1\" }\n")].map(String::as_str).concat(),
    );
    let mut serving = site.open();
    for server in ["same", "gone", "other"] {
        assert_eq!(count(&mut serving, server), 1);
    }
    let before = ["same", "gone", "other"].map(|server| container_of(&site, &format!("{server}__count")));
    let old = site.status();

    let lines = "pids = 33\nmemory = \"200m\"\nenv = { WORD = \"new\" }\n";
    let record = site.reload_with(&serving, &[&new, &same, &other(lines)].map(String::as_str).concat());
    let now = site.status();
    let digests = ["old_config_digest", "config_digest", "old_policy_digest", "policy_digest"].map(|key| &record[key]);
    assert_eq!(digests, [&old["config_digest"], &now["config_digest"], &old["policy_digest"], &now["policy_digest"]]);
    assert!(digests[0] != digests[1] && digests[2] != digests[3] && digests.iter().all(|d| d.is_string()), "{record}");
    let told = "added: new; removed: gone; changed: other; 1 server as before";
    assert_eq!((&record["changes"], &record["reason"]), (&json!(told), &Value::Null));
    assert!(now["reload"]["last"].is_string() && now["reload"]["refused"].is_null(), "{}", now["reload"]);

    assert_eq!(count(&mut serving, "same"), 2, "it remembers");
    assert_eq!(container_of(&site, "same__count"), before[0]);
    assert_eq!((count(&mut serving, "other"), count(&mut serving, "new")), (1, 1));
    let another = container_of(&site, "other__count");
    assert_ne!(another, before[2]);
    serving.unknown("gone__count");
    let tools = serving.tools();
    assert!(
        tools.iter().all(|name| !name.starts_with("gone__")) && tools.contains(&"new__echo".to_owned()),
        "{tools:?}"
    );

    let environment: Value = serde_json::from_str(&serving.text("other__env", json!({}))).unwrap();
    assert_eq!((&environment["WORD"], &environment["LOST"]), (&json!("new"), &Value::Null), "{environment}");
    let shown = site.server("other");
    let instance = &shown["instances"][0];
    assert_eq!((&instance["container"], &shown["isolation"]), (&json!(another), &json!("proven")));
    for (control, value) in [("pids", "33".to_owned()), ("memory", (200 << 20).to_string())] {
        let controls = instance["evidence"]["controls"].as_array().unwrap();
        let seen = controls.iter().find(|seen| seen["control"] == control).unwrap();
        assert_eq!(["asked", "engine", "inside"].map(|key| &seen[key]), [&value; 3].map(|v| v.as_str()), "{control}");
    }
    wait_until("nothing of what is no more", PATIENCE, || {
        let ids: Vec<String> = containers(&site.gateway()).into_iter().map(|container| container.id).collect();
        ids.contains(&before[0]) && !ids.contains(&before[1]) && !ids.contains(&before[2])
    });
    for (container, why) in
        [(&before[1], "it is no longer configured: "), (&before[2], "its configuration has changed: ")]
    {
        let stopped = wait_for("the record of its end", PATIENCE, || {
            let all = site.records("server").into_iter();
            all.into_iter().find(|r| r["event"] == "stopped" && r["container"] == **container)
        });
        assert!(stopped["reason"].as_str().unwrap().starts_with(why), "{stopped}");
    }
    assert_eq!(site.status()["leaving"], json!([]));
    let ended = serving.close();
    assert!(ended.stderr.contains(&format!("configuration reloaded: {told}")), "{}", ended.stderr);
    assert!(site.prints(&["audit", "verify"]).contains("whole"));
}

#[test]
fn a_call_in_flight_ends_where_it_began_while_new_ones_go_to_what_is_new() {
    let site = Site::new("");
    let gate = Gate::of(&site, &["a", "b"]);
    let server = |name: &str, lines: &str| contained(name, &[]) + &gate.line() + lines;
    site.configure(&(server("a", "") + &server("b", "")));
    let mut serving = site.open();
    assert_eq!((count(&mut serving, "a"), count(&mut serving, "b")), (1, 1));
    let (old, removed) = (container_of(&site, "a__count"), container_of(&site, "b__count"));
    let flights = [gate.ask(&site, &mut serving, "a"), gate.ask(&site, &mut serving, "b")];

    site.reload_with(&serving, &server("a", "pids = 50\n"));
    assert_eq!(count(&mut serving, "a"), 1);
    serving.unknown("b__count");
    let new = container_of(&site, "a__count");
    assert_ne!(new, old);
    let leaving = site.status()["leaving"].clone();
    let mut shown: Vec<&str> = leaving.as_array().unwrap().iter().map(|i| i["container"].as_str().unwrap()).collect();
    let mut expected = [old.as_str(), &removed];
    shown.sort_unstable();
    expected.sort_unstable();
    assert_eq!(shown, expected, "{leaving}");
    assert!(leaving[0]["evidence"]["controls"].is_array(), "what runs is shown with what confines it");

    // Longer than a server has that is to end.
    std::thread::sleep(Duration::from_secs(5));
    for (server, flight) in ["a", "b"].into_iter().zip(flights) {
        gate.open(server);
        assert_eq!(text_of(&serving.answer(flight)["result"]), "through");
    }
    wait_until("the end of what is no more", PATIENCE, || {
        let ids: Vec<String> = containers(&site.gateway()).into_iter().map(|container| container.id).collect();
        ids == [new.clone()]
    });
    assert_eq!(site.outcomes_of("a__read"), ["ok"]);
    assert_eq!(site.outcomes_of("b__read"), ["ok"]);
}

/// A port of the host's loopback, and the connections to it.
struct Port(TcpListener);

impl Port {
    fn new() -> Self {
        Port(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn number(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// The connection that somebody has made and said hello on.
    fn taken(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"hello");
        stream
    }
}

/// Whether a connection has ended by now, without waiting for it.
fn is_cut(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// A call that opens a connection, says hello and waits for its end; then it tries another one.
fn holding(serving: &mut Serving, server: &str, open: &str, again: &str) -> u64 {
    let program = format!(
        "{PRELUDE}\n{TUNNEL}\ns = {open}\ns.settimeout(60)\ns.sendall(b'hello')\ntry:\n    \
         end = 'closed' if s.recv(1) == b'' else 'words'\nexcept OSError as e:\n    end = 'closed' if e.errno else 'late'\n\
         found = [end, {again}]\n"
    );
    serving.ask_tool(&format!("{server}__run"), json!({ "program": program }))
}

const TUNNEL: &str = r#"
def through(port):
    proxy = os.environ["https_proxy"].rpartition(":")[2]
    s = socket.create_connection(("127.0.0.1", int(proxy)), 20)
    s.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = s.recv(1)
        if not piece:
            raise OSError("no answer")
        head += piece
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise OSError(head.split(b"\r\n")[0].decode())
    return s

def tried(port):
    try:
        through(port)
        return "open"
    except OSError as e:
        return "refused"
"#;

#[test]
fn a_way_out_that_is_taken_away_is_cut_before_the_reload_is_acknowledged() {
    let (direct, named, kept) = (Port::new(), Port::new(), Port::new());
    let (d, n, k) = (direct.number(), named.number(), kept.number());
    let db = |ports: &str| dialler("db", &format!("host_ports = {ports}"));
    let web = |more: &str| dialler("web", &format!("egress = [\"127.0.0.1:{k}\"{more}]"));
    let site = Site::new(&(db(&format!("[{d}, {k}]")) + &web(&format!(", \"127.0.0.1:{n}\""))));
    let mut serving = site.open();
    let connect = format!("socket.create_connection(('127.0.0.1', {d}), 20)");
    let first = holding(&mut serving, "db", &connect, &format!("[reach('127.0.0.1', {d}), reach('127.0.0.1', {k})]"));
    let second = holding(&mut serving, "web", &format!("through({n})"), &format!("[tried({n}), tried({k})]"));
    let (one, two) = (direct.taken(), named.taken());
    assert!(!is_cut(&one) && !is_cut(&two));
    let before = ["db", "web"].map(|server| site.server(server)["instances"][0]["container"].clone());

    site.reload_with(&serving, &(db(&format!("[{k}]")) + &web("")));
    assert!(is_cut(&one) && is_cut(&two), "whoever is told of the reload finds it cut");
    let cut =
        || site.records("egress").into_iter().filter(|r| r["reason"] == "cut: the configuration was changed").count();
    wait_until("both in the audit, with the reason", PATIENCE, || cut() == 2);
    // The calls go on to their end, with no way out at all.
    for call in [first, second] {
        let result = serving.answer(call)["result"].clone();
        let found: Value = serde_json::from_str(&text_of(&result)).unwrap_or_else(|e| panic!("{e}: {result}"));
        assert_eq!(found[0], "closed", "{found}");
        assert!(found[1].as_array().unwrap().iter().all(|way| way != "open"), "{found}");
    }

    let ways = format!("found = [reach('127.0.0.1', {d}), reach('127.0.0.1', {k})]");
    assert_eq!(found(&mut serving, "db", &ways), json!(["ECONNREFUSED", "open"]));
    let ways = format!("{TUNNEL}\nfound = [tried({n}), tried({k})]");
    assert_eq!(found(&mut serving, "web", &ways), json!(["refused", "open"]));
    for (server, before) in ["db", "web"].into_iter().zip(before) {
        assert_ne!(site.server(server)["instances"][0]["container"], before);
    }
    wait_until("two servers and two guards", PATIENCE, || containers(&site.gateway()).len() == 4);
    // Every connection has its end recorded.
    assert!(serving.close().status.success());
    let verified = site.prints(&["audit", "verify"]);
    assert!(verified.contains("whole") && !verified.contains("no end"), "{verified}");
}

#[test]
fn what_is_gone_or_has_not_come_up_yet_reaches_nothing_any_more_either() {
    let (gone, coming) = (Port::new(), Port::new());
    let entry = |ports: &str| {
        let program = format!(
            "import socket, time\ns = socket.create_connection(('127.0.0.1', {}))\ns.sendall(b'hello')\ntime.sleep(600)",
            coming.number()
        );
        let image = engine::FIXTURE_SERVER;
        format!("[servers.coming]\nimage = \"{image}\"\ncommand = [\"python3\", \"-c\", {program:?}]\n{ports}\n")
    };
    let db = dialler("db", &format!("host_ports = [{}]", gone.number()));
    let site = Site::new(&(db + &entry(&format!("host_ports = [{}]", coming.number()))));
    let mut serving = site.open();
    let connect = format!("socket.create_connection(('127.0.0.1', {}), 20)", gone.number());
    let call = holding(&mut serving, "db", &connect, "reach('127.0.0.1', 1)");
    // It never says a word, and is waited for.
    let (one, two) = (gone.taken(), coming.taken());
    assert!(!is_cut(&one) && !is_cut(&two));
    site.reload_with(&serving, &entry(""));
    assert!(is_cut(&one) && is_cut(&two));
    assert!(text_of(&serving.answer(call)["result"]).starts_with("[\"closed\""), "it ends by itself");
    serving.unknown("db__run");
}

#[test]
fn a_bridge_that_is_taken_away_ends_what_ran_on_it_before_the_reload_is_acknowledged() {
    let fx = |lines: &str| contained("fx", &[]) + lines;
    let site = Site::new(&fx("network = \"bridge\"\n"));
    let mut serving = site.open();
    assert_eq!(count(&mut serving, "fx"), 1);
    let gateway = site.gateway();
    let (old, on) = (containers(&gateway), networks(&gateway));
    assert_eq!((old.len(), on.len()), (2, 1), "a server, its fence and its network");
    let flight = serving.ask_tool("fx__sleep", json!({ "ms": 600_000 }));
    wait_until("the call on its way", PATIENCE, || site.records("intent").len() == 2);

    let record = site.reload_with(&serving, &fx(""));
    assert_eq!(record["changes"], "changed: fx; 0 servers as before");
    // A bridge cannot be taken from a server that runs on it, whatever it has in flight.
    let left = || containers(&gateway).into_iter().filter(|now| old.iter().any(|then| then.id == now.id));
    let running: Vec<_> = left().filter(|container| container.state == "running").collect();
    assert_eq!(running, []);
    assert_eq!(serving.answer(flight)["result"]["isError"], true);
    wait_until("nothing of it", PATIENCE, || left().count() == 0 && networks(&gateway).is_empty());

    assert_eq!(count(&mut serving, "fx"), 1);
    let shown = site.server("fx");
    assert_eq!((&shown["network"], &shown["isolation"]), (&json!("none"), &json!("proven")));
    assert_eq!(shown["instances"][0]["fence"], Value::Null);
    let [new] = &containers(&gateway)[..] else { panic!("{:?}", containers(&gateway)) };
    assert_eq!(shown["instances"][0]["container"], new.id);
    assert_eq!(docker(&["inspect", "--format", "{{.HostConfig.NetworkMode}}", &new.id]), "none");
    assert_eq!(networks(&gateway), [""; 0]);
}

#[test]
fn a_way_out_that_is_kept_is_not_cut_by_what_else_is_changed() {
    let port = Port::new();
    let db = |more: &str| dialler("db", &format!("host_ports = [{}]\n{more}", port.number()));
    let site = Site::new(&db(""));
    let mut serving = site.open();
    let connect = format!("socket.create_connection(('127.0.0.1', {}), 20)", port.number());
    let call = holding(&mut serving, "db", &connect, "'done'");
    let mut held = port.taken();
    site.reload_with(&serving, &db("pids = 77"));
    assert!(!is_cut(&held));
    held.set_nonblocking(false).unwrap();
    held.write_all(b"x").unwrap();
    assert_eq!(text_of(&serving.answer(call)["result"]), r#"["words","done"]"#);
}

#[test]
fn a_way_out_that_may_carry_less_is_cut_and_one_that_may_carry_more_is_not() {
    let port = Port::new();
    let db = |most: u32| {
        dialler("db", &format!("host_ports = [{}]\negress_limits = {{ connections = {most} }}", port.number()))
    };
    let site = Site::new(&db(3));
    let mut serving = site.open();
    let connect = format!("socket.create_connection(('127.0.0.1', {}), 20)", port.number());
    let call = holding(&mut serving, "db", &connect, "'done'");
    let held = port.taken();
    site.reload_with(&serving, &db(4));
    assert!(!is_cut(&held));
    // It is leaving, and is held to what is in force all the same.
    site.reload_with(&serving, &db(2));
    assert!(is_cut(&held), "what has left before is cut, too");
    assert!(text_of(&serving.answer(call)["result"]).starts_with("[\"closed\""));

    let call = holding(&mut serving, "db", &connect, "'done'");
    let held = port.taken();
    site.reload_with(&serving, &db(1));
    assert!(is_cut(&held), "whoever is told of the reload finds it cut");
    assert!(text_of(&serving.answer(call)["result"]).starts_with("[\"closed\""));
}

#[test]
fn rules_and_limits_hold_for_the_next_call_and_nothing_is_started_anew() {
    let limits = |n: u32| format!("[limits]\nrate = \"1/min\"\nburst = {n}\n");
    let fx = |lines: &str| contained("fx", &[]) + lines;
    let site = Site::new(&(limits(9) + &fx("")));
    let mut serving = site.open();
    assert_eq!(count(&mut serving, "fx"), 1);
    let container = container_of(&site, "fx__count");
    let old = site.status();
    assert!(serving.tools().contains(&"fx__env".to_owned()));

    let record = site.reload_with(&serving, &(limits(9) + &fx("tools = { deny = [\"env\"] }\nidle_stop = \"9m\"\n")));
    assert_eq!(record["changes"], "other rules for: fx; 0 servers as before");
    assert_ne!(site.status()["policy_digest"], old["policy_digest"]);
    serving.unknown("fx__env");
    serving.notification(CHANGED);
    assert!(!serving.tools().contains(&"fx__env".to_owned()));
    assert_eq!(count(&mut serving, "fx"), 2);

    site.reload_with(&serving, &(limits(9) + &fx("min_role = \"admin\"\n")));
    serving.unknown("fx__count");
    assert_eq!(serving.tools(), [""; 0]);
    // Who is behind the pipe may be somebody else's business by now.
    let admin = "[front.stdio]\nrole = \"admin\"\n";
    site.reload_with(&serving, &(limits(9) + admin + &fx("min_role = \"admin\"\n")));
    assert_eq!(count(&mut serving, "fx"), 3);
    let (intent, _) = site.calls_of("fx__count").pop().unwrap();
    assert_eq!(intent["role"], "admin");
    site.reload_with(&serving, &(limits(9) + &fx("min_role = \"admin\"\n")));
    serving.unknown("fx__count");

    site.reload_with(&serving, &(limits(9) + &fx("")));
    assert_eq!((count(&mut serving, "fx"), container_of(&site, "fx__count")), (4, container));
}

#[test]
fn a_call_that_was_not_sent_yet_is_decided_anew() {
    let site = Site::new(&contained("fx", &[]));
    let gate = Gate::of(&site, &["fx"]);
    // It starts once it is let through.
    let command = ["sh", "-c", "cat /gate/fx >/dev/null; exec python3 -u /srv/server.py"];
    let image = engine::FIXTURE_SERVER;
    let fx = |lines: &str| format!("[servers.fx]\nimage = \"{image}\"\ncommand = {command:?}\n{}{lines}", gate.line());
    site.configure(&fx(""));
    // So that its tools are known before it runs.
    std::thread::scope(|beside| {
        beside.spawn(|| gate.open("fx"));
        site.prints(&["lock", "--yes"]);
    });
    let mut serving = site.open();
    let (denied, allowed) = (serving.ask_tool("fx__env", json!({})), serving.ask_tool("fx__count", json!({})));
    site.server_in("fx", "starting");
    site.reload_with(&serving, &fx("tools = { deny = [\"env\"] }\n"));
    assert_eq!(site.server("fx")["state"], "starting", "nothing was sent by now");
    gate.open("fx");
    let answer = serving.answer(denied);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(text_of(&serving.answer(allowed)["result"]), r#"{"calls":1}"#);
    assert_eq!(
        (site.outcomes_of("fx__env"), site.outcomes_of("fx__count")),
        (vec!["denied".into()], vec!["ok".into()])
    );
    let (intent, _) = site.calls_of("fx__env").pop().unwrap();
    assert_eq!((&intent["decision"], &intent["policy"]), (&json!("deny"), &json!(["tools-deny"])));
}

#[test]
fn a_reload_fills_no_bucket() {
    let limits = "[limits]\nrate = \"1/min\"\nburst = 3\n";
    let fx = |lines: &str| on_host("fx", &[]) + "limits = { rate = \"1/min\", burst = 2 }\n" + lines;
    let site = Site::new(&(limits.to_owned() + &fx("")));
    let mut serving = site.open();
    assert_eq!((count(&mut serving, "fx"), count(&mut serving, "fx")), (1, 2));
    for lines in ["timeout = \"9s\"\n", "env = { A = \"1\" }\n", ""] {
        site.reload_with(&serving, &(limits.to_owned() + &fx(lines)));
        let refusal = serving.failure("fx__count", json!({}));
        assert!(refusal.contains("\"me\" on server \"fx\": at most 1/min"), "{refusal}");
    }
    // Of the general ones one is left.
    let free = on_host("free", &[]);
    site.reload_with(&serving, &(limits.to_owned() + &free));
    assert_eq!(count(&mut serving, "free"), 1);
    assert!(serving.failure("free__count", json!({})).contains("rate limit of \"me\": at most 1/min"));
    site.reload_with(&serving, &("[limits]\nrate = \"1/min\"\nburst = 4\n".to_owned() + &free));
    assert_eq!(count(&mut serving, "free"), 2, "another limit begins anew");
}

#[test]
fn a_secret_that_is_rotated_is_the_new_one_inside_and_neither_is_written_anywhere() {
    let site = Site::new("");
    let file = site.path("secret");
    let fx = contained("fx", &[]) + &format!("secrets = {{ KEY = \"file:{}\" }}\n", file.display());
    let (old, new, newest) = ("s3cret-0f-yesterday", "s3cret-0f-t0day", "s3cret-0f-t0morr0w");
    fs::write(&file, old).unwrap();
    site.configure(&(fx.clone() + &contained("same", &[])));
    let mut serving = site.open();
    let inside = |serving: &mut Serving| {
        let environment: Value = serde_json::from_str(&serving.text("fx__env", json!({}))).unwrap();
        environment["KEY"].as_str().unwrap().to_owned()
    };
    assert_eq!((inside(&mut serving), count(&mut serving, "same")), (old.to_owned(), 1));
    let before = container_of(&site, "fx__env");

    // What is the same is the same, read anew or not.
    let record = site.reload(&serving);
    assert_eq!(record["changes"], "nothing changed; 2 servers as before");
    assert_eq!((inside(&mut serving), container_of(&site, "fx__env")), (old.to_owned(), before.clone()));
    fs::write(&file, new).unwrap();
    let record = site.reload(&serving);
    assert_eq!(record["changes"], "changed: fx; 1 server as before");
    assert_eq!(record["old_config_digest"], record["config_digest"]);
    fs::write(&file, newest).unwrap();
    let command = format!("[\"sh\", \"-c\", \"echo {new} {newest} >&2; exit 3\"]");
    let loud = format!("[servers.loud]\nimage = {:?}\ncommand = {command}\n", engine::FIXTURE_SERVER);
    site.reload_with(&serving, &(fx.clone() + &contained("same", &[]) + &loud));
    let (old, new) = (new, newest);
    assert_eq!((inside(&mut serving), count(&mut serving, "same")), (new.to_owned(), 2));
    assert_ne!(container_of(&site, "fx__env"), before);
    // Whatever says them, in whatever words.
    for word in [old, new] {
        let id = serving.ask_tool("fx__rpc_error", json!({ "message": format!("told {word} to") }));
        assert!(serving.answer(id)["error"]["message"].as_str().unwrap().contains(word), "answers pass unchanged");
        serving.unknown(&format!("fx__{word}"));
    }
    let said = serving.failure("loud__x", json!({}));
    assert!(said.contains("[redacted]"), "{said}");
    let ended = serving.close();
    let audit = fs::read_to_string(site.audit_file()).unwrap();
    for word in [old, new] {
        assert!(!audit.contains(word) && !ended.stderr.contains(word) && !said.contains(word), "{word}");
    }
    assert!(audit.matches("[redacted]").count() >= 4, "they were to be written");
}

#[test]
fn a_reload_that_is_refused_changes_nothing() {
    let site = Site::new("");
    let secret = site.path("secret");
    fs::write(&secret, "s3cret-0f-mine").unwrap();
    let fx = contained("fx", &[]) + &format!("secrets = {{ KEY = \"file:{}\" }}\n", secret.display());
    site.configure(&fx);
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    assert_eq!(count(&mut serving, "fx"), 1);
    let (container, status) = (container_of(&site, "fx__count"), site.status());
    let (config, lock) = (site.config(), site.path("bulkhead.lock"));
    let good = fs::read_to_string(&lock).unwrap();
    let place = |line: u32, column: u32| format!("{}:{line}:{column}: ", config.display());

    type Harm<'a> = (&'a dyn Fn(), String);
    let harms: [Harm<'_>; 7] = [
        (&|| site.configure(&format!("{fx}bogus = 1\n")), place(5, 1) + "unknown key \"bogus\" in servers.fx"),
        (&|| fs::remove_file(&secret).unwrap(), place(4, 13) + "servers.fx.secrets.KEY needs the file"),
        (
            &|| site.configure(&format!("[audit]\npath = \"other.jsonl\"\n{fx}")),
            "audit.path cannot be changed while".into(),
        ),
        (&|| site.configure(&format!("[front.stdio]\nid = \"you\"\n{fx}")), "front.stdio.id cannot be changed".into()),
        (&|| fs::remove_file(&config).unwrap(), "does not exist".into()),
        (&|| fs::write(&lock, "{}").unwrap(), "bulkhead.lock".into()),
        (&|| site.configure("[servers.fx]\nimage = \"fx\"\npids = \"many\"\n"), place(3, 8) + "servers.fx.pids"),
    ];
    for (harm, told) in harms {
        harm();
        let record = site.reload(&serving);
        assert!(record["reason"].as_str().unwrap().contains(&told), "{told}: {record}");
        assert_eq!([&record["config_digest"], &record["old_config_digest"]], [&status["config_digest"]; 2]);
        let now = site.status();
        for key in ["config_digest", "policy_digest"] {
            assert_eq!(now[key], status[key]);
        }
        assert!(now["reload"]["refused"]["reason"].as_str().unwrap().contains(&told), "{}", now["reload"]);
        assert!(now["reload"]["refused"]["time"].is_string() && now["reload"]["last"].is_null());
        // Back to what is good, without a reload.
        fs::write(&secret, "s3cret-0f-mine").unwrap();
        fs::write(&lock, &good).unwrap();
        site.configure(&fx);
    }
    assert_eq!(count(&mut serving, "fx"), 2);
    assert_eq!(container_of(&site, "fx__count"), container);
    assert_eq!(notices(&mut serving), 0);
    assert!(site.prints(&["status"]).contains("a reload was refused "));
    assert_eq!(site.reload(&serving)["changes"], "nothing changed; 1 server as before");
    let said = serving.close().stderr;
    assert!(said.contains("what was in force stays in force") && said.contains(&place(5, 1)), "{said}");
    assert!(!said.contains("s3cret-0f-mine"));
}

#[test]
fn clients_hear_of_tools_that_change_for_them_and_of_nothing_else() {
    let fx = |lines: &str| on_host("fx", &[]) + lines;
    let site = Site::new(&(on_host("a", &[]) + &fx("")));
    let mut serving = site.open();
    serving.wait_for_tool("a__echo");
    serving.wait_for_tool("fx__echo");
    notices(&mut serving);
    // Nothing, a server that is started anew with the same tools, a rule that hides nothing, a server nobody here may see.
    let unseen = on_host("unseen", &[]) + "min_role = \"admin\"\n";
    for config in [fx(""), fx("env = { A = \"1\" }\n"), fx("tools = { deny = [\"nothing\"] }\n"), fx("") + &unseen] {
        site.reload_with(&serving, &(on_host("a", &[]) + &config));
        assert!(serving.tools().contains(&"fx__echo".to_owned()));
        count(&mut serving, "fx");
        // Longer than it takes to gather what is told at once.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(notices(&mut serving), 0, "{config}");
    }
    for (config, seen) in [
        (fx("tools = { deny = [\"env\"] }\n"), false),
        (fx(""), true),
        (String::new(), false),
        (fx("args = [\"--tools\", \"1\"]\n").replacen("args = []\n", "", 1), true),
    ] {
        site.reload_with(&serving, &(on_host("a", &[]) + &config));
        serving.notification(CHANGED);
        let listed = || -> bool { config.contains("--tools") };
        if listed() {
            // It has come back with what was pinned of it, and one tool that nobody has seen yet.
            count(&mut serving, "fx");
            assert!(serving.failure("fx__dummy_0001", json!({})).contains("is new since approval"));
            site.prints(&["approve", "--yes", "fx"]);
            serving.notification(CHANGED);
        }
        wait_until("the new list", PATIENCE, || {
            let tools = serving.tools();
            tools.contains(&"fx__env".to_owned()) == seen && tools.contains(&"fx__dummy_0001".to_owned()) == listed()
        });
    }
    // Each was told once.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(notices(&mut serving), 0);
}

#[test]
fn what_is_approved_is_read_anew() {
    // The digest of a configuration is of what is written.
    let fx = on_host("fx", &["--tools", "${TOOLS}"]);
    let mut site = Site::new(&fx);
    let locked = |site: &mut Site, tools: &str| {
        site.set("TOOLS", tools);
        site.prints(&["lock", "--yes"]);
        fs::read_to_string(site.path("bulkhead.lock")).unwrap()
    };
    let (fewer, more) = (locked(&mut site, "1"), locked(&mut site, "2"));
    site.configure(&on_host("fx", &["--tools", "1"]));
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    assert!(serving.tools().contains(&"fx__dummy_0001".to_owned()));
    site.configure(&fx);
    fs::write(site.path("bulkhead.lock"), more).unwrap();
    site.reload(&serving);
    serving.notification(CHANGED);
    assert!(serving.tools().contains(&"fx__dummy_0002".to_owned()), "by the lock alone");
    assert_eq!(site.server("fx")["state"], "idle");
    assert_eq!(serving.text("fx__dummy_0002", json!({})), "dummy_0002");

    // Another approval of the very same configuration, and what runs goes on.
    let before = count(&mut serving, "fx");
    fs::write(site.path("bulkhead.lock"), fewer).unwrap();
    let record = site.reload(&serving);
    assert_eq!(record["reason"], Value::Null, "{record}");
    serving.notification(CHANGED);
    assert!(serving.failure("fx__dummy_0002", json!({})).contains("is new since approval"));
    assert_eq!((count(&mut serving, "fx"), site.server("fx")["state"].clone()), (before + 1, json!("changed")));
}

#[test]
fn kill_9_right_after_a_reload_leaves_nothing() {
    let port = Port::new();
    let db = |more: &str| dialler("db", &format!("host_ports = [{}]\n{more}", port.number()));
    let site = Site::alone(&(db("") + &contained("fx", &[])));
    let mut serving = site.open();
    count(&mut serving, "fx");
    found(&mut serving, "db", "found = 1");
    let gateway = site.gateway();
    assert_eq!(containers(&gateway).len(), 3);
    site.reload_with(
        &serving,
        &("[gateway]\nstart = \"eager\"\n".to_owned() + &db("pids = 60") + &contained("fx", &["--tools", "1"])),
    );
    serving.kill();
    // What has run ends by itself; what was just being made is removed by whoever looks.
    wait_until("nothing of it that runs", PATIENCE, || containers(&gateway).iter().all(|c| c.state != "running"));
    site.prints(&["reap"]);
    assert_eq!(engine::servers(&gateway), [""; 0]);
}

#[test]
fn however_many_hangups_come_the_last_configuration_is_in_force() {
    let fx = |n: u32| contained("fx", &[]) + &format!("timeout = \"{n}s\"\n");
    let site = Site::new(&fx(30));
    // While the server starts, too.
    let mut serving = site.serve();
    site.status();
    serving.initialize();
    let waiting = serving.ask_tool("fx__count", json!({}));
    for n in 0..200 {
        if n % 10 == 0 {
            site.configure(&fx(31 + n));
        }
        serving.signal(Signal::HUP);
    }
    assert_eq!(text_of(&serving.answer(waiting)["result"]), r#"{"calls":1}"#);
    site.reload_with(&serving, &fx(600));
    assert_eq!(count(&mut serving, "fx"), 2, "one start for all of them");
    let reloads = site.records("gateway").iter().filter(|record| record["event"] == "reload").count();
    assert!((2..200).contains(&reloads), "{reloads}");
    let started = site.records("server").iter().filter(|record| record["event"] == "started").count();
    assert_eq!((started, containers(&site.gateway()).len()), (1, 1));
}

#[test]
fn who_waits_for_a_server_that_is_changed_meanwhile_is_served_by_what_is_new() {
    let site = Site::new(&contained("fx", &["--slow-init", "600000"]));
    let mut serving = site.open();
    let waiting = serving.ask_tool("fx__count", json!({}));
    let gateway = site.gateway();
    wait_until("the container runs", PATIENCE, || containers(&gateway).iter().any(|c| c.state == "running"));
    let [old] = &containers(&gateway)[..] else { panic!("one container") };
    site.reload_with(&serving, &contained("fx", &[]));
    assert_eq!(text_of(&serving.answer(waiting)["result"]), r#"{"calls":1}"#);
    assert_ne!(container_of(&site, "fx__count"), old.id);
    wait_until("nothing of the old one", PATIENCE, || containers(&gateway).iter().all(|c| c.id != old.id));
    assert_eq!(site.outcomes_of("fx__count"), ["ok"]);
}

#[test]
fn a_reload_while_it_stops_does_not_keep_it_from_stopping() {
    let site = Site::new(&contained("fx", &[]));
    let mut serving = site.open();
    let call = serving.ask_tool("fx__sleep", json!({ "ms": 600_000 }));
    wait_until("the call on its way", PATIENCE, || !site.records("intent").is_empty());
    let gateway = site.gateway();
    site.configure(&contained("fx", &["--tools", "1"]));
    serving.signal(Signal::HUP);
    serving.signal(Signal::TERM);
    for _ in 0..20 {
        serving.signal(Signal::HUP);
    }
    assert_eq!(serving.answer(call)["result"]["isError"], true);
    let ended = serving.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(engine::servers(&gateway), [""; 0]);
    assert!(site.prints(&["audit", "verify"]).contains("whole"));
}

#[test]
fn without_an_engine_the_new_configuration_is_taken_and_serves_when_the_engine_is_back() {
    let mut site = Site::new(&contained("fx", &[]));
    let cable = Cable::at(&site.path("engine.sock"));
    site.use_engine(&site.path("engine.sock"));
    let mut serving = site.open();
    assert_eq!(count(&mut serving, "fx"), 1);
    let old = container_of(&site, "fx__count");
    cable.cut();
    let record = site.reload_with(&serving, &(contained("fx", &[]) + "pids = 60\n"));
    assert_eq!(record["changes"], "changed: fx; 0 servers as before");
    let told = serving.failure("fx__count", json!({}));
    assert!(told.contains("container engine"), "{told}");
    cable.plug();
    wait_until("the server again", PATIENCE, || serving.call("fx__count", json!({}))["isError"] != true);
    assert_ne!(container_of(&site, "fx__count"), old);
    // The engine was away when the old one was to be removed.
    wait_until("nothing of the old one", PATIENCE, || try_docker(&["inspect", &old]).is_err());
}

#[test]
fn where_there_is_room_for_one_the_new_one_waits_for_the_old_one() {
    let fx = |lines: &str| "[limits.total]\ninstances = 1\n".to_owned() + &contained("fx", &[]) + lines;
    let site = Site::new(&fx(""));
    let mut serving = site.open();
    assert_eq!(count(&mut serving, "fx"), 1);
    for lines in ["pids = 60\n", "pids = 61\n"] {
        site.reload_with(&serving, &fx(lines));
        assert_eq!(count(&mut serving, "fx"), 1, "{lines}");
    }
}

#[test]
fn no_call_is_lost_or_made_twice_however_often_the_configuration_changes() {
    let fx = |n: usize| format!("{NO_LIMITS}{}env = {{ N = \"{n}\" }}\n", on_host("fx", &[]));
    let site = Site::new(&fx(0));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    let mut asked = Vec::new();
    for n in 1..=12 {
        site.configure(&fx(n));
        serving.signal(Signal::HUP);
        for k in 0..25 {
            asked.push(serving.ask_tool("fx__echo", json!({ "n": n, "k": k })));
        }
        // Some of them are under way while the next configuration comes.
        let first = asked.swap_remove(asked.len() - 25);
        succeeded(&serving.answer(first));
    }
    for id in asked {
        succeeded(&serving.answer(id));
    }
    let outcomes = site.outcomes_of("fx__echo");
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "ok").count(), 12 * 25);
    // What went on under another name was not sent under the first.
    for (_, outcome) in site.calls_of("fx__echo").iter().filter(|(_, outcome)| outcome["outcome"] != "ok") {
        assert!(outcome["detail"].as_str().unwrap().starts_with("not sent, since the configuration has changed"));
    }
    assert!(serving.close().status.success());
    let verified = site.prints(&["audit", "verify"]);
    assert!(verified.contains("whole") && !verified.contains("no outcome"), "{verified}");
}
