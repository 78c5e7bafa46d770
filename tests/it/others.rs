//! Servers of others behind their guards: a real database on the host's loopback, a real page over TLS. Needs the registries.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::support::engine::command_succeeds;
use crate::support::{PATIENCE, Site, site, skipped, wait_until};

/// Nobody's account, since a database does not run as root.
const NOBODY: u32 = 65534;

/// A PostgreSQL on 127.0.0.1, gone with this value.
struct Database {
    port: u16,
    server: Child,
    _data: TempDir,
}

/// Where PostgreSQL's programs are, also where they are not among the others.
fn postgres(program: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(program)).find(|path| path.exists());
    found.or_else(|| command_succeeds(Command::new(program).arg("--version")).then(|| program.into()))
}

/// A program as somebody who may start a database.
fn unprivileged(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={NOBODY}")).arg(format!("--regid={NOBODY}")).arg("--clear-groups").arg(program);
    command
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Database {
    /// `None`, and the reason noted, where there is no PostgreSQL.
    fn start() -> Option<Self> {
        let (Some(initdb), Some(server), Some(psql)) = (postgres("initdb"), postgres("postgres"), postgres("psql"))
        else {
            skipped("PostgreSQL: it is not installed");
            return None;
        };
        let data = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            chown(data.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let (place, port) = (data.path().join("db"), free_port());
        let made = unprivileged(&initdb).arg("-D").arg(&place).args(["-A", "trust", "-U", "me"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let server = unprivileged(&server)
            .arg("-D")
            .arg(&place)
            .args(["-c", "listen_addresses=127.0.0.1", "-p", &port.to_string(), "-k"])
            .arg(data.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let database = Database { port, server, _data: data };
        let fill = "create table notes as select 7 as number, 'from the host'::text as words";
        let at = ["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "me", "postgres", "-c", fill].map(str::to_owned);
        wait_until("the database", PATIENCE, || command_succeeds(Command::new(&psql).args(&at)));
        Some(database)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // It ends its other processes by itself.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.server), rustix::process::Signal::INT);
        let _ = self.server.wait();
    }
}

#[test]
fn a_database_on_the_hosts_loopback_is_queried_by_who_has_its_port_alone() {
    let Some(database) = Database::start() else { return };
    let port = database.port;
    let entry = |name: &str, more: &str| {
        format!(
            "[servers.{name}]\npackage = \"npx:@modelcontextprotocol/server-postgres@0.6.2\"\n\
             args = [\"postgresql://me@127.0.0.1:{port}/postgres\"]\n{more}\n"
        )
    };
    let config = [
        entry("db", &format!("host_ports = [{port}]")),
        entry("second", ""),
        entry("beside", &format!("host_ports = [{}]", free_port())),
    ];
    let site = Site::new(&config.concat());
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    let query = json!({ "sql": "select words from notes where number = 7" });
    assert!(serving.text("db__query", query.clone()).contains("from the host"));
    for server in ["second", "beside"] {
        let id = serving.ask_tool(&format!("{server}__query"), query.clone());
        let answer = serving.answer(id).to_string();
        assert!(answer.contains("ECONNREFUSED"), "{server}: {answer}");
    }
    let said = site.run(&["check"]).stdout;
    assert!(said.contains(&format!("host_ports = [{port}]")), "{said}");
}

/// A site over TLS with an authority of its own, gone with this value.
struct Page {
    port: u16,
    server: Child,
    folder: TempDir,
}

const PAGE: &str = r#"
import http.server, ssl, sys
port, folder = int(sys.argv[1]), sys.argv[2]

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"the page of this host"
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "https://elsewhere.example/")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{folder}/ca.pem", f"{folder}/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

impl Page {
    /// `None`, and the reason noted, where no certificate can be made.
    fn start() -> Option<Self> {
        if !command_succeeds(Command::new("openssl").arg("version")) {
            skipped("openssl: it is not installed");
            return None;
        }
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "ca.pem"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        // What the server sees is the certificate alone, as somebody else.
        let shown = folder.path().join("shown");
        std::fs::create_dir(&shown).unwrap();
        std::fs::copy(folder.path().join("ca.pem"), shown.join("ca.pem")).unwrap();
        site::open_to_all(&[folder.path(), &shown, &shown.join("ca.pem")]);
        let server = Command::new("python3")
            .args(["-c", PAGE, &port.to_string()])
            .arg(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the page", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Page { port, server, folder })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_page_over_tls_is_fetched_from_an_allowed_host_and_from_no_other() {
    let Some(page) = Page::start() else { return };
    let (port, shown) = (page.port, page.folder.path().join("shown"));
    // Usually nothing goes to the proxy that is for `localhost`, which here is the name that is allowed.
    let config = format!(
        r#"
[servers.web]
package = "uvx:mcp-server-fetch"
with = ["mcp<2"]
args = ["--ignore-robots-txt", "--allow-private-ips"]
egress = ["localhost:{port}", "127.0.0.1:{port}"]
env = {{ NO_PROXY = "none", SSL_CERT_FILE = "/ca/ca.pem" }}
mounts = [{{ host = {shown:?}, at = "/ca" }}]
"#
    );
    let site = Site::new(&config);
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    let mut fetch = |url: &str| {
        let id = serving.ask_tool("web__fetch", json!({ "url": url, "raw": true }));
        serving.answer(id).to_string()
    };
    let said = fetch(&format!("https://localhost:{port}/"));
    assert!(said.contains("the page of this host"), "{said}");
    for (url, target) in [
        (format!("https://localhost:{port}/away"), "elsewhere.example:443"),
        ("https://unlisted.example/".to_owned(), "unlisted.example:443"),
    ] {
        let said = fetch(&url);
        assert!(said.contains(&format!("bulkhead: server web may not reach {target}")), "{url}: {said}");
        let denied = site.records("egress").into_iter().filter(|r| r["target"] == target && r["decision"] == "deny");
        assert_eq!(denied.count(), 1, "{target}");
    }
}
