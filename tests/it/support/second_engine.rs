//! An engine of a test's own, which may be killed: in namespaces of its own, with its data and its sockets in memory.
//! When the test ends, in whatever way, a pipe closes, the namespaces go, and all that ran or was mounted in them with
//! them. Knows no behaviour.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

use super::engine::{FIXTURE_SERVER, build_fixture_server, command_succeeds, output_of};
use super::skipped;
use super::{PATIENCE, wait_until};

/// What runs first in the namespaces: it starts and ends the engine as it is told, and with its end everything ends.
/// The address is not in /run, which is hidden to keep the engine away from another one's runtime files.
const HOLDER: &str = r#"
mount -t tmpfs -o mode=755 none /run && mount -t tmpfs -o mode=711 none "$PLACE/data" || exit
ip link set lo up
while read -r order; do
    case $order in
    start)
        rm -f /run/docker.pid
        dockerd --host "unix://$PLACE/docker.sock" --data-root "$PLACE/data" --pidfile /run/docker.pid \
            --bridge none --iptables=false --ip6tables=false \
            --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "$CGROUPS" </dev/null >>"$PLACE/log" 2>&1 &
        engine=$!
        ;;
    kill) kill -KILL "$engine"; wait "$engine" 2>/dev/null ;;
    term) kill -TERM "$engine"; wait "$engine" 2>/dev/null ;;
    processes)
        for process in /proc/[0-9]*; do
            { read -r stat <"$process/stat" && echo "$stat"; } 2>/dev/null
        done
        ;;
    esac
    echo done
done
"#;

/// What runs of an engine that runs nothing. A containerd that was killed may have left what was to start a container, and
/// has not: no program of the container's runs in it yet.
const ITS_OWN: [&str; 5] = ["bash", "dockerd", "containerd", "containerd-shim", "runc:[2:INIT]"];

/// Names the cgroups of an engine, followed by the process id of its holder.
const CGROUPS: &str = "bulkhead-tests-";

/// How an engine is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With no chance to do anything.
    Kill,
    /// As the system stops it: it ends its containers.
    Term,
}

/// The engine.
pub struct SecondEngine {
    place: TempDir,
    holder: Child,
    orders: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl SecondEngine {
    /// Starts one, with the images that servers need. `None`, and the reason noted, where that cannot be done.
    pub fn start() -> Option<Self> {
        if let Some(why) = hindrance() {
            skipped(&format!("an engine of its own: {why}"));
            return None;
        }
        build_fixture_server();
        sweep(None);
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("data")).unwrap();
        let mut holder = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "bash", "-c", HOLDER])
            .env("PLACE", place.path())
            .env("CGROUPS", format!("/{CGROUPS}{}", std::process::id()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(place.path().join("holder")).unwrap())
            .spawn()
            .unwrap();
        let orders = Mutex::new((holder.stdin.take().unwrap(), BufReader::new(holder.stdout.take().unwrap())));
        let engine = SecondEngine { place, holder, orders };
        engine.begin();
        engine.load(&["bulkhead/probe", FIXTURE_SERVER]);
        Some(engine)
    }

    /// Where it answers.
    pub fn socket(&self) -> PathBuf {
        self.place.path().join("docker.sock")
    }

    /// Starts it again and waits until it answers.
    pub fn begin(&self) {
        self.order("start");
        wait_until(&format!("the second engine: {}", self.log()), PATIENCE, || self.try_docker(&["version"]).is_ok());
    }

    /// Ends it, and returns once it has ended.
    pub fn end(&self, how: End) {
        self.order(match how {
            End::Kill => "kill",
            End::Term => "term",
        });
    }

    /// Runs the docker command at this engine; `Err` is what it wrote to standard error.
    pub fn try_docker(&self, args: &[&str]) -> Result<String, String> {
        output_of(self.command().args(args))
    }

    /// The lines that the docker command writes at this engine.
    pub fn lines(&self, args: &[&str]) -> Vec<String> {
        let text = self.try_docker(args).unwrap_or_else(|error| panic!("docker {args:?}: {error}"));
        text.lines().map(str::to_owned).collect()
    }

    /// Its containers, running or not, each in that format of `docker ps`. One that was killed and begun again may go on
    /// listing a container that it has removed, or half removed: whoever would look at it, start it or remove it is told that
    /// there is none. What runs is found by [`Self::processes`] in any case.
    pub fn containers(&self, filters: &[&str], format: &str) -> Vec<String> {
        let format = format!("{{{{.ID}}}} {format}");
        let listed = self.lines(&[&["ps", "--all", "--no-trunc", "--format", &format], filters].concat());
        let shown = listed.iter().filter_map(|line| {
            let (id, rest) = line.split_once(' ').unwrap();
            match self.try_docker(&["container", "inspect", id]) {
                Err(error) if error.contains("No such container") => {
                    let _ = writeln!(std::io::stderr(), "listed, though removed: {line}");
                    None
                }
                _ => Some(rest.to_owned()),
            }
        });
        shown.collect()
    }

    /// What runs in its containers, or is about to. A line as in
    /// /proc/PID/stat each: process id, name, state, parent.
    pub fn processes(&self) -> Vec<String> {
        let mut all = self.order("processes");
        all.retain(|stat| {
            let name = stat.split(['(', ')']).nth(1).unwrap_or_default();
            // One that has ended, and whose parent has not asked how, does not run.
            !ITS_OWN.contains(&name) && !stat.contains(") Z ")
        });
        all
    }

    /// What it says of itself, to be shown with a failure.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.env_remove("DOCKER_CONTEXT").env("DOCKER_HOST", format!("unix://{}", self.socket().display()));
        command
    }

    /// Copies images from the engine that the tests use.
    fn load(&self, images: &[&str]) {
        let mut saving = Command::new("docker").arg("save").args(images).stdout(Stdio::piped()).spawn().unwrap();
        let saved = saving.stdout.take().unwrap();
        let loaded = output_of(self.command().args(["load", "--quiet"]).stdin(saved));
        assert!(saving.wait().unwrap().success(), "docker save {images:?}");
        loaded.unwrap_or_else(|error| panic!("docker load: {error}"));
    }

    /// Gives an order and returns what was said until it was carried out.
    fn order(&self, order: &str) -> Vec<String> {
        let mut orders = self.orders.lock().unwrap();
        let (told, said) = &mut *orders;
        writeln!(told, "{order}").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = said.read_line(&mut line).unwrap();
            assert!(read > 0, "{order}: {:?}", fs::read_to_string(self.place.path().join("holder")));
            match line.trim_end() {
                "done" => return lines,
                line => lines.push(line.to_owned()),
            }
        }
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        // The namespaces go with their first process, which goes with this one.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        sweep(Some(std::process::id()));
    }
}

/// Removes the cgroups of an engine that is gone, which nothing else does: of the one that this process had, or of all
/// whose process is no more.
fn sweep(own: Option<u32>) {
    let at = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let root = Path::new("/sys/fs/cgroup");
    for dir in at(root).flat_map(|controller| at(&controller)).chain(at(root)) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(CGROUPS).and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if own.map_or_else(|| !Path::new("/proc").join(pid.to_string()).exists(), |own| own == pid) {
            remove_cgroup(&dir);
        }
    }
}

fn remove_cgroup(dir: &Path) {
    let below = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| remove_cgroup(&path));
    // What has just ended may be in it for another moment.
    for _ in 0..50 {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

/// Why no second engine can be started here.
fn hindrance() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("only Linux has namespaces for it".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("only root may start it".to_owned());
    }
    let asked = [("dockerd", "--version"), ("unshare", "--version"), ("bash", "--version"), ("ip", "-V")];
    let missing = asked.into_iter().find(|(program, version)| !command_succeeds(Command::new(program).arg(version)));
    missing.map(|(program, _)| format!("{program} is not installed"))
}
