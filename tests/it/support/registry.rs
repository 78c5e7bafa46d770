//! Registries of a test's own, which containers reach on the host's address of the engine's default network: packages for
//! npm and for PyPI, logins, and all that was asked. Serves as a proxy, too. Knows nothing of how packages are baked.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256, Sha512};
use tempfile::TempDir;

use super::engine::docker;

/// Writes a wheel of one module and one program to its output; what it needs comes as further arguments.
const WHEEL: &str = r#"
import io, sys, zipfile, base64, hashlib
name, version, said, *requires = sys.argv[1:]
info = f"{name}-{version}.dist-info"
files = {
    f"{name}.py": f"def main():\n    print({said!r})\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
}
def hashed(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
record = "".join(f"{path},sha256={hashed(text)},{len(text)}\n" for path, text in files.items())
files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
whole = io.BytesIO()
with zipfile.ZipFile(whole, "w") as wheel:
    for path, text in files.items():
        wheel.writestr(zipfile.ZipInfo(path), text)
sys.stdout.buffer.write(whole.getvalue())
"#;

/// Ends TLS before a registry, with a certificate and its key, and says at which port.
const TLS: &str = r#"
import contextlib, socket, ssl, sys, threading
certificate, key, host, port = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)

def carry(source, sink):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)

def serve(stream):
    with contextlib.suppress(OSError):
        outer, inner = context.wrap_socket(stream, server_side=True), socket.create_connection((host, int(port)))
        threading.Thread(target=carry, args=(outer, inner), daemon=True).start()
        carry(inner, outer)
        outer.close()

listener = socket.create_server((host, 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// Makes a certificate authority, and a certificate of it for an address.
const CERTIFICATES: &str = r#"
set -e
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.pem -subj "/CN=a test's own" -days 2
openssl req -new $key -keyout key.pem -out request.pem -subj "/CN=packages"
echo "subjectAltName=IP:$1" >extensions
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions -out cert.pem -days 2
"#;

/// A registry that is reached by TLS.
pub struct Tls {
    /// Its address, without a path.
    pub url: String,
    /// The certificate that is to be trusted, as a file.
    pub ca: PathBuf,
    process: Child,
    _folder: TempDir,
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One request: what was asked for, and the login that was shown.
#[derive(Clone, Debug)]
pub struct Asked {
    pub target: String,
    pub login: Option<String>,
}

#[derive(Default)]
struct State {
    /// What `Authorization` must be.
    login: Option<String>,
    /// Whether it is reached by TLS.
    tls: bool,
    /// By name and version, what npm is told of it.
    npm: BTreeMap<String, BTreeMap<String, Value>>,
    /// By name, the wheels with the hashes that the index tells.
    pypi: BTreeMap<String, BTreeMap<String, String>>,
    /// By path.
    files: BTreeMap<String, Vec<u8>>,
    asked: Vec<Asked>,
}

/// A registry that listens. Its thread goes with the test's process.
pub struct FakeRegistry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeRegistry {
    /// One that lets everybody in.
    pub fn open() -> Self {
        let listener = TcpListener::bind((host(), 0)).expect("the engine's default network has a host here");
        let registry =
            FakeRegistry { address: listener.local_addr().unwrap(), state: Arc::new(Mutex::new(State::default())) };
        let state = registry.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        registry
    }

    /// One that answers only who shows that login: `Bearer …`, `Basic …`.
    pub fn asking(login: &str) -> Self {
        let registry = Self::open();
        registry.state().login = Some(login.to_owned());
        registry
    }

    /// Is reached by TLS from now on, with a certificate that nobody trusts by himself.
    pub fn behind_tls(&self) -> Tls {
        let folder = tempfile::tempdir().unwrap();
        let host = self.address.ip().to_string();
        let made =
            Command::new("sh").args(["-c", CERTIFICATES, "sh", &host]).current_dir(folder.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let of = |name: &str| folder.path().join(name);
        let mut command = Command::new("python3");
        command.args(["-c", TLS]).args([of("cert.pem"), of("key.pem")]).args([&host, &self.address.port().to_string()]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        self.state().tls = true;
        Tls { url: format!("https://{host}:{}", port.trim()), ca: of("ca.pem"), process, _folder: folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address for npm.
    pub fn npm(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Its address for PyPI.
    pub fn pypi(&self) -> String {
        format!("http://{}/simple", self.address)
    }

    /// All that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// Whether something of a package was asked for.
    pub fn was_asked_for(&self, name: &str) -> bool {
        self.asked().iter().any(|asked| asked.target.contains(name))
    }

    /// Has a package for npm, whose program says something, and which needs others. One that is there is replaced.
    pub fn publish_npm(&self, name: &str, version: &str, said: &str, needs: &[(&str, &str)]) {
        self.publish_npm_program(name, version, &format!("console.log({said:?})"), needs);
    }

    /// The same with a program of the test's own.
    pub fn publish_npm_program(&self, name: &str, version: &str, program: &str, needs: &[(&str, &str)]) {
        let needs: Map<String, Value> = needs.iter().map(|(name, range)| ((*name).to_owned(), json!(range))).collect();
        let short = name.rsplit('/').next().unwrap();
        let mut told = json!({"name": name, "version": version, "dependencies": needs, "bin": {short: "main.js"}});
        let package = told.to_string();
        let tarball = tar(&[("package/package.json", &package), ("package/main.js", program)]);
        let path = format!("/-/{}-{version}.tgz", name.replace('/', "-"));
        let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest(&tarball)));
        // Where it is, is told to whoever asks, in the words in which it is asked.
        told["dist"] = json!({"tarball": path, "integrity": integrity});
        let mut state = self.state();
        state.files.insert(path, tarball);
        state.npm.entry(name.to_owned()).or_default().insert(version.to_owned(), told);
    }

    /// Changes the bytes of a package for npm, and tells what it told before.
    pub fn swap_npm(&self, name: &str, version: &str, said: &str) {
        let told = self.state().npm[name][version].clone();
        self.publish_npm(name, version, said, &[]);
        self.state().npm.get_mut(name).unwrap().insert(version.to_owned(), told);
    }

    /// Changes what is told of a package for npm.
    pub fn retell_npm(&self, name: &str, version: &str, change: impl FnOnce(&mut Value)) {
        change(self.state().npm.get_mut(name).unwrap().get_mut(version).unwrap());
    }

    /// Has a wheel, whose program says something, and which needs others. One that is there is replaced.
    pub fn publish_pypi(&self, name: &str, version: &str, said: &str, needs: &[&str]) {
        let python = Command::new("python3").args(["-c", WHEEL, name, version, said]).args(needs).output().unwrap();
        assert!(python.status.success(), "{python:?}");
        let file = format!("{name}-{version}-py3-none-any.whl");
        let hash = Sha256::digest(&python.stdout).iter().map(|byte| format!("{byte:02x}")).collect();
        let mut state = self.state();
        state.files.insert(format!("/files/{file}"), python.stdout);
        state.pypi.entry(name.to_owned()).or_default().insert(file, hash);
    }

    /// Changes the bytes of a wheel, and tells what it told before.
    pub fn swap_pypi(&self, name: &str, version: &str, said: &str) {
        let told = self.state().pypi[name].clone();
        self.publish_pypi(name, version, said, &[]);
        self.state().pypi.insert(name.to_owned(), told);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn answer(&self, host: &str, path: &str) -> Option<(&'static str, Vec<u8>)> {
        if let Some(file) = self.files.get(path) {
            return Some(("application/octet-stream", file.clone()));
        }
        if let Some(wheels) = path.strip_prefix("/simple/").and_then(|name| self.pypi.get(name.trim_end_matches('/'))) {
            let links =
                wheels.iter().map(|(file, hash)| format!("<a href=\"/files/{file}#sha256={hash}\">{file}</a>\n"));
            return Some(("text/html", links.collect::<String>().into_bytes()));
        }
        let name = path.trim_start_matches('/').replace("%2f", "/").replace("%2F", "/");
        let mut versions = self.npm.get(&name)?.clone();
        for told in versions.values_mut() {
            let path = told["dist"]["tarball"].as_str().unwrap_or_default();
            told["dist"]["tarball"] = json!(format!("{}://{host}{path}", if self.tls { "https" } else { "http" }));
        }
        let latest = versions.keys().next_back()?.clone();
        let all = json!({"name": name, "dist-tags": {"latest": latest}, "versions": versions});
        Some(("application/json", all.to_string().into_bytes()))
    }
}

/// The host's address on the engine's default network: told, or else the first one.
fn host() -> Ipv4Addr {
    let told = |field: &str| {
        let format = format!("{{{{with index .IPAM.Config 0}}}}{{{{.{field}}}}}{{{{end}}}}");
        docker(&["network", "inspect", "bridge", "--format", &format])
    };
    told("Gateway").parse().unwrap_or_else(|_| {
        let subnet = told("Subnet");
        let network: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        Ipv4Addr::from_bits(network.to_bits() + 1)
    })
}

/// One request a connection.
fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let Some(first) = lines.next() else { return };
    let headers: Vec<String> = lines.collect();
    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = |name: &str| {
        let fields = headers.iter().filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let login = header("authorization");
    // A proxy is asked for whole addresses.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.split_once('/').map(|(_, path)| format!("/{path}")).unwrap_or_default(),
        None => target.clone(),
    };
    let (status, kind, body) = {
        let mut state = state.lock().unwrap();
        state.asked.push(Asked { target, login: login.clone() });
        match state.answer(&header("host").unwrap_or_default(), &path) {
            _ if state.login.is_some() && state.login != login => ("401 Unauthorized", "text/plain", Vec::new()),
            Some((kind, body)) => ("200 OK", kind, body),
            None => ("404 Not Found", "text/plain", Vec::new()),
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         WWW-Authenticate: Basic realm=\"packages\"\r\n\r\n",
        body.len()
    );
    let mut stream = &stream;
    let _ = stream.write_all(head.as_bytes());
    if !first.starts_with("HEAD ") {
        let _ = stream.write_all(&body);
    }
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}
