//! A configuration with a directory and a state of its own, and the commands of the program over it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{PATIENCE, SecondEngine, Serving, Turn, engine, repository, wait_for, wait_until};

/// The program under test.
pub const BULKHEAD: &str = env!("CARGO_BIN_EXE_bulkhead");

/// The entry of a fixture server in a container.
pub fn contained(name: &str, flags: &[&str]) -> String {
    engine::build_fixture_server();
    format!("[servers.{name}]\nimage = \"{}\"\nargs = {flags:?}\n", engine::FIXTURE_SERVER)
}

/// The entry of a fixture server on the host, for what has nothing to do with containers.
pub fn on_host(name: &str, flags: &[&str]) -> String {
    let server = repository("tests/fixture/server.py");
    format!(
        "[servers.{name}]\nunisolated = \"a test\"\ncommand = [\"python3\", \"-u\", {server:?}]\nargs = {flags:?}\n"
    )
}

/// What a command ended with.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A directory with a configuration, a state directory, and the environment of whatever is run over them.
pub struct Site {
    dir: TempDir,
    env: BTreeMap<String, String>,
    /// None where it has an engine of its own.
    turn: Option<Turn>,
}

impl Site {
    /// A site beside those of other tests.
    pub fn new(config: &str) -> Self {
        Self::in_turn(config, Some(Turn::shared()))
    }

    /// A site of a test that has the engine for itself.
    pub fn alone(config: &str) -> Self {
        Self::in_turn(config, Some(Turn::alone()))
    }

    /// A site at an engine that no other test uses.
    pub fn at(engine: &SecondEngine, config: &str) -> Self {
        let mut site = Self::in_turn(config, None);
        site.use_engine(&engine.socket());
        site
    }

    /// A second site of the same test.
    pub fn another(&self, config: &str) -> Self {
        Self::in_turn(config, self.turn.clone())
    }

    fn in_turn(config: &str, turn: Option<Turn>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Nothing of the environment of the tests but what finds programs and the engine.
        let kept =
            ["PATH", "DOCKER_HOST"].into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
        let home = ("HOME".to_owned(), dir.path().to_str().unwrap().to_owned());
        let site = Site { env: kept.chain([home]).collect(), dir, turn };
        site.configure(config);
        site
    }

    /// Replaces the configuration, whole: a gateway may read it at any moment.
    pub fn configure(&self, config: &str) {
        let aside = self.path("bulkhead.toml.new");
        std::fs::write(&aside, config).unwrap();
        std::fs::rename(aside, self.config()).unwrap();
    }

    /// Sets a variable of everything that is run from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.insert(name.to_owned(), value.into());
    }

    /// Points everything that is run from now on to another engine.
    pub fn use_engine(&mut self, socket: &Path) {
        self.set("DOCKER_HOST", format!("unix://{}", socket.display()));
    }

    /// A path of the site.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.path("bulkhead.toml")
    }

    /// The audit file.
    pub fn audit_file(&self) -> PathBuf {
        self.path("state/audit.jsonl")
    }

    /// The command line of a subcommand, after the program.
    pub fn line(&self, args: &[&str]) -> Vec<String> {
        let own = |path: PathBuf| path.to_str().unwrap().to_owned();
        let places = ["--config".to_owned(), own(self.config()), "--state".to_owned(), own(self.path("state"))];
        args.iter().map(|a| (*a).to_owned()).chain(places).collect()
    }

    /// A subcommand with the environment of the site.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.with_environment(BULKHEAD);
        command.args(self.line(args));
        command
    }

    /// Another program with the environment of the site.
    pub fn with_environment(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.env).current_dir(self.dir.path());
        command
    }

    /// Runs a subcommand to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args))
    }

    /// Runs a subcommand that has to succeed, for what it prints.
    pub fn prints(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
        ran.stdout
    }

    /// Starts the gateway.
    pub fn serve(&self) -> Serving {
        self.serve_with(&[])
    }

    /// Starts the gateway with further arguments.
    pub fn serve_with(&self, args: &[&str]) -> Serving {
        let args: Vec<_> = ["serve"].into_iter().chain(args.iter().copied()).collect();
        Serving::start(self.command(&args))
    }

    /// Starts the gateway and makes the handshake.
    pub fn open(&self) -> Serving {
        let mut serving = self.serve();
        serving.initialize();
        serving
    }

    /// The one gateway that runs here, as `status --json` shows it.
    pub fn status(&self) -> Value {
        wait_for("a gateway in the status", PATIENCE, || {
            let status: Value = serde_json::from_str(&self.prints(&["status", "--json"])).unwrap();
            status["gateways"].get(0).cloned()
        })
    }

    /// One server of the status.
    pub fn server(&self, name: &str) -> Value {
        let status = self.status();
        let found = status["servers"].as_array().unwrap().iter().find(|s| s["name"] == *name);
        found.unwrap_or_else(|| panic!("no server {name}: {status}")).clone()
    }

    /// Waits until a server is in a state, and shows it.
    pub fn server_in(&self, name: &str, state: &str) -> Value {
        wait_for(&format!("server {name} in state {state}"), PATIENCE, || {
            Some(self.server(name)).filter(|server| server["state"] == *state)
        })
    }

    /// The name of the gateway that runs here.
    pub fn gateway(&self) -> String {
        self.status()["instance"].as_str().unwrap().to_owned()
    }

    /// Tells the gateway to read its configuration anew, and waits until it says what became of that: the record of it.
    pub fn reload(&self, serving: &Serving) -> Value {
        let reloads = || self.records("gateway").into_iter().filter(|record| record["event"] == "reload");
        let (count, before) = (reloads().count(), self.status()["reload"].clone());
        serving.signal(Signal::HUP);
        wait_until("what became of the reload", PATIENCE, || self.status()["reload"] != before);
        wait_until("its record", PATIENCE, || reloads().count() > count);
        reloads().next_back().unwrap()
    }

    /// The same with another configuration, which has to be taken.
    pub fn reload_with(&self, serving: &Serving, config: &str) -> Value {
        self.configure(config);
        let record = self.reload(serving);
        assert_eq!(record["reason"], Value::Null, "{record}");
        record
    }

    /// Every audit record so far; one that is being written is none yet.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.audit_file()).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The records of one kind.
    pub fn records(&self, kind: &str) -> Vec<Value> {
        self.audit().into_iter().filter(|record| record["kind"] == *kind).collect()
    }

    /// The intent and the outcome of every call to an exposed name, once the last has both.
    pub fn calls_of(&self, exposed: &str) -> Vec<(Value, Value)> {
        wait_for(&format!("outcomes of {exposed}"), PATIENCE, || {
            let outcomes = self.records("outcome");
            let intents = self.records("intent").into_iter().filter(|intent| intent["exposed"] == *exposed);
            intents
                .map(|intent| {
                    let outcome = outcomes.iter().find(|outcome| outcome["call"] == intent["call"])?.clone();
                    Some((intent, outcome))
                })
                .collect::<Option<Vec<_>>>()
                .filter(|calls| !calls.is_empty())
        })
    }

    /// The words for how the calls to an exposed name ended.
    pub fn outcomes_of(&self, exposed: &str) -> Vec<String> {
        self.calls_of(exposed).iter().map(|(_, outcome)| outcome["outcome"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Site {
    /// Whatever a test did to its gateways, nothing of them stays at the engine.
    fn drop(&mut self) {
        // An engine of its own goes as a whole.
        if self.turn.is_none() {
            return;
        }
        let started = self.records("server").into_iter().filter(|record| record["container"].is_string());
        let gateways: BTreeSet<String> = started.filter_map(|r| r["gateway"].as_str().map(str::to_owned)).collect();
        for gateway in gateways {
            engine::remove(&gateway);
        }
    }
}

/// Runs a command to its end, with nothing on its standard input.
pub fn ran(mut command: Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Lets everybody read these, and go through those that are directories.
pub fn open_to_all(paths: &[&Path]) {
    use std::os::unix::fs::PermissionsExt as _;
    for path in paths {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}
