//! Who dials, and who is dialled: servers that say what they can reach, from within their containers or from the host, and
//! services beside them that say who they are. Knows no rule of what may be reached.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::engine::{self, FIXTURE_SERVER, docker, try_docker};
use super::{PATIENCE, Serving, Site, repository, wait_for};

/// The functions that dial, and those that answer.
pub const DIAL: &str = include_str!("dial.py");

/// The fixture server with one tool more, which runs what it is told with those functions at hand.
const TOOL: &str = r#"
import server

@server.tool("Runs a program, and shows what it calls `found`.", program="string")
def run(call):
    names = dict(globals())
    exec(call.arg("program", ""), names)
    return server.shown(names["found"])

server.main()
"#;

/// The entry of a server in a container that may reach what the lines say.
pub fn dialler(name: &str, lines: &str) -> String {
    engine::build_fixture_server();
    let program = format!("import sys\nsys.path.insert(0, \"/srv\")\n{DIAL}\n{TOOL}");
    format!(
        "[servers.{name}]\nimage = \"{FIXTURE_SERVER}\"\ncommand = [\"python3\", \"-u\", \"-c\", {program:?}]\n{lines}\n"
    )
}

/// The entry of the same server on the host, where nothing holds it.
pub fn dialler_on_host(name: &str) -> String {
    let program = format!("import sys\nsys.path.insert(0, {:?})\n{DIAL}\n{TOOL}", repository("tests/fixture"));
    format!("[servers.{name}]\nunisolated = \"a test\"\ncommand = [\"python3\", \"-u\", \"-c\", {program:?}]\n")
}

/// What a program on a server finds.
pub fn found(serving: &mut Serving, server: &str, program: &str) -> Value {
    let text = serving.text(&format!("{server}__run"), json!({ "program": program }));
    serde_json::from_str(&text).unwrap()
}

/// A service of the host's at an address, which answers every request with its name; returns its port.
pub fn service(address: &str, name: &'static str) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
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
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    port
}

/// A container that has nothing to do with the gateway, and runs a program of the same functions. Gone with this value.
pub struct Neighbour {
    /// Its id.
    pub container: String,
    /// Its address on its network.
    pub address: String,
}

impl Neighbour {
    /// On a network, with further arguments of `docker run`; the program ends with a call of `stay`. Returns once it says
    /// that it is ready.
    pub fn on(network: &str, arguments: &[&str], program: &str) -> Self {
        let program = format!("{DIAL}\n{program}\nprint('ready', flush=True)\nstay(900)\n");
        let run = ["run", "--detach", "--rm", "--network", network];
        let what = ["bulkhead/fixture", "python3", "-u", "-c", &program];
        let container = docker(&[&run, arguments, &what].concat());
        let mut neighbour = Neighbour { container, address: String::new() };
        wait_for("a container of its own", PATIENCE, || {
            let said = try_docker(&["logs", &neighbour.container]);
            said.unwrap_or_else(|why| panic!("{why}")).contains("ready").then_some(())
        });
        let shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        neighbour.address = docker(&["inspect", "--format", shown, &neighbour.container]);
        neighbour
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = try_docker(&["rm", "--force", &self.container]);
    }
}

/// What a network of a test is called, followed by the process id of that test.
const NETWORK: &str = "bulkhead-tests-";

/// A network of a test's own. Gone with this value, and, where that came to nothing, with the next one of any test.
pub struct Network {
    /// Its name.
    pub name: String,
}

impl Network {
    /// The first of these networks that does not lie over another one; `None` where all do.
    pub fn at(kind: &str, subnets: &[String]) -> Option<Self> {
        Self::sweep();
        let name = format!("{NETWORK}{}-{kind}", std::process::id());
        let made = |subnet: &&String| try_docker(&["network", "create", "--subnet", subnet, &name]).is_ok();
        subnets.iter().find(made).map(|_| Network { name })
    }

    fn sweep() {
        let listed = docker(&["network", "ls", "--filter", &format!("name={NETWORK}"), "--format", "{{.Name}}"]);
        for name in listed.lines() {
            let pid = name.strip_prefix(NETWORK).and_then(|rest| rest.split('-').next());
            if pid.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
                let _ = try_docker(&["network", "rm", name]);
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = try_docker(&["network", "rm", &self.name]);
    }
}

/// The containers of a gateway that have a role, sorted.
pub fn of_role(gateway: &str, role: &str) -> Vec<String> {
    let filters = [format!("label=org.bulkhead.gateway={gateway}"), format!("label=org.bulkhead.role={role}")];
    let listed = docker(&["ps", "--no-trunc", "--quiet", "--filter", &filters[0], "--filter", &filters[1]]);
    let mut found: Vec<_> = listed.lines().map(str::to_owned).collect();
    found.sort();
    found
}

/// The records of what a server reached and did not reach, once there are so many; more are too many.
pub fn passages(site: &Site, server: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} records of {server}"), PATIENCE, || {
        let all: Vec<Value> = site.records("egress").into_iter().filter(|r| r["server"] == *server).collect();
        assert!(all.len() <= count, "{} records instead of {count}: {all:?}", all.len());
        (all.len() == count).then_some(all)
    })
}
