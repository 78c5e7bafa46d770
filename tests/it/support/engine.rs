//! The engine seen from beside the gateway: its images and containers by the docker command, and engines that are not
//! there, that hang, or that can be cut off.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use sha2::{Digest as _, Sha256};

use super::{lock_file, repository};

/// The image of `tests/fixture`.
pub const FIXTURE_SERVER: &str = "bulkhead/fixture-server";

/// Label: what an image was made of, as `scripts/setup` writes it.
const INPUTS: &str = "org.bulkhead.inputs";

/// Runs the docker command; `Err` is what it wrote to standard error.
pub fn try_docker(args: &[&str]) -> Result<String, String> {
    output_of(Command::new("docker").args(args).env("BUILDX_BUILDER", "default"))
}

/// Whether a program can be run and succeeds.
pub fn command_succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a command for what it writes; `Err` is what it wrote to standard error.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Runs the docker command, which has to succeed.
pub fn docker(args: &[&str]) -> String {
    try_docker(args).unwrap_or_else(|error| panic!("docker {args:?}: {error}"))
}

// === images ===

/// Makes sure that the image of the fixture server is there and of the present sources.
pub fn build_fixture_server() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let lock = lock_file("fixture-server");
        lock.lock().unwrap();
        let folder = repository("tests/fixture");
        let mut inputs = Sha256::new();
        inputs.update(docker(&["image", "inspect", "--format", "{{.Id}}", "bulkhead/fixture"]));
        for file in ["Dockerfile", "server.py"] {
            inputs.update(std::fs::read(folder.join(file)).unwrap());
        }
        let inputs = bulkhead::hex(&inputs.finalize());
        let label = format!("{{{{index .Config.Labels \"{INPUTS}\"}}}}");
        if try_docker(&["image", "inspect", "--format", &label, FIXTURE_SERVER]).as_ref() != Ok(&inputs) {
            let label = format!("{INPUTS}={inputs}");
            docker(&["build", "--quiet", "--label", &label, "--tag", FIXTURE_SERVER, folder.to_str().unwrap()]);
        }
    });
}

// === containers ===

/// A container of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub server: String,
    /// `running`, `exited`, …
    pub state: String,
}

/// Every container of a gateway, running or not.
pub fn containers(gateway: &str) -> Vec<Container> {
    let label = format!("label=org.bulkhead.gateway={gateway}");
    let shown = r#"{{.ID}} {{.Label "org.bulkhead.server"}} {{.State}}"#;
    let listed = docker(&["ps", "--all", "--no-trunc", "--filter", &label, "--format", shown]);
    let container = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Container { id: words[0].to_owned(), server: words[1].to_owned(), state: words[2].to_owned() }
    };
    listed.lines().map(container).collect()
}

/// The names of a gateway's servers that have a container, sorted.
pub fn servers(gateway: &str) -> Vec<String> {
    let mut names: Vec<String> = containers(gateway).into_iter().map(|container| container.server).collect();
    names.sort();
    names
}

/// Removes what there is of a gateway.
pub fn remove(gateway: &str) {
    for container in containers(gateway) {
        // Somebody else may have been quicker.
        let _ = try_docker(&["rm", "--force", "--volumes", &container.id]);
    }
    let label = format!("label=org.bulkhead.gateway={gateway}");
    for network in docker(&["network", "ls", "--quiet", "--filter", &label]).lines() {
        let _ = try_docker(&["network", "rm", network]);
    }
}

/// The real engine at a port of the loopback, as if it were elsewhere.
pub fn over_tcp() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = UnixStream::connect(real_socket()).unwrap();
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                carry(near, &far);
                let _ = far.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                carry(far_too, &near_too);
                let _ = near_too.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

// === engines that fail ===

/// An engine whose socket takes connections and never answers.
pub struct Hung(#[expect(dead_code, reason = "held open")] UnixListener);

impl Hung {
    /// Listens at a path; nothing is ever accepted, which looks the same to whoever connects.
    pub fn at(path: &Path) -> Self {
        Hung(UnixListener::bind(path).unwrap())
    }
}

/// The real engine behind a socket of ours, which can be cut off and put back.
pub struct Cable {
    path: PathBuf,
    plugged: Mutex<Option<Arc<Plugged>>>,
}

/// Connections as long as the cable is plugged in.
struct Plugged {
    listener: UnixListener,
    ends: Mutex<Vec<UnixStream>>,
}

impl Cable {
    /// A cable to the real engine, plugged in.
    pub fn at(path: &Path) -> Self {
        let cable = Cable { path: path.to_owned(), plugged: Mutex::default() };
        cable.plug();
        cable
    }

    /// Lets connections through.
    pub fn plug(&self) {
        let plugged = Arc::new(Plugged { listener: UnixListener::bind(&self.path).unwrap(), ends: Mutex::default() });
        *self.plugged.lock().unwrap() = Some(plugged.clone());
        std::thread::spawn(move || {
            while let Ok((near, _)) = plugged.listener.accept() {
                plugged.connect(near);
            }
        });
    }

    /// Breaks every connection and lets no new one through.
    pub fn cut(&self) {
        std::fs::remove_file(&self.path).unwrap();
        let plugged = self.plugged.lock().unwrap().take().unwrap();
        for end in plugged.ends.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Plugged {
    fn connect(&self, near: UnixStream) {
        let far = UnixStream::connect(real_socket()).unwrap();
        self.ends.lock().unwrap().extend([&near, &far].map(|end| end.try_clone().unwrap()));
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                carry(from, &to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    }
}

/// Carries bytes one way.
fn carry(mut from: impl Read, mut to: impl Write) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
}

/// The socket of the engine that the tests use.
fn real_socket() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    let path = host.strip_prefix("unix://");
    PathBuf::from(path.unwrap_or_else(|| panic!("only an engine behind a unix socket can be cut off, not {host}")))
}
