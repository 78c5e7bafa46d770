//! What a person waits for with twenty real servers: from the start of a gateway to its answers, with no container
//! running; from there to the first call of each server; and what it takes to lock them all. The figures are printed
//! beside something measured in the same run, and none is asserted.
//!
//! `cargo bench --bench cold [-- --json] [--dir DIR] [--runs N] [--rounds N] [--bake]`
//!
//! The servers are those of `examples/twenty.toml`. They are locked in DIR (else `$BULKHEAD_BENCH_DIR`, else a folder
//! beside the build) where that has no lock yet: minutes, and 1.4 GB, when nothing is baked. `--bake` measures that: it locks
//! them with one small requirement more, so that no image fits that is there, and removes the images that it made.
//!
//! Needs an engine, the images of `scripts/setup`, npm's registry and PyPI. Exit codes: 0 all is as it should be, 1 a
//! container where none should be, too few servers, or a call that should work and does not.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

mod bare;
mod calls;
mod measure;
mod talk;
mod watch;

use measure::{median, output, percentile, progress, setting};
use talk::Talk;
use watch::{Watch, containers};

const CONFIG: &str = include_str!("../../examples/twenty.toml");
const BULKHEAD: &str = env!("CARGO_BIN_EXE_bulkhead");
/// Fewer servers than this are not what was promised.
const SERVERS: usize = 20;
/// What a first call should take at most, ms; said, not asserted.
const GOAL: f64 = 1500.0;

struct Options {
    json: bool,
    bake: bool,
    dir: Option<PathBuf>,
    runs: usize,
    rounds: usize,
}

impl Options {
    fn read() -> Result<Self, String> {
        let dir = std::env::var_os("BULKHEAD_BENCH_DIR").map(PathBuf::from);
        let mut options = Options { json: false, bake: false, dir, runs: 20, rounds: 3 };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let number = |text: Option<String>| text.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            match word.as_str() {
                // Cargo says so by itself.
                "--bench" => {}
                "--json" => options.json = true,
                "--bake" => options.bake = true,
                "--dir" => options.dir = Some(words.next().ok_or("--dir DIR")?.into()),
                "--runs" => options.runs = number(words.next()).ok_or("--runs N")?,
                "--rounds" => options.rounds = number(words.next()).ok_or("--rounds N")?,
                _ => return Err(format!("unknown argument {word:?}")),
            }
        }
        Ok(options)
    }
}

/// A configuration with its lock, and a state that nobody else has.
struct Site {
    dir: PathBuf,
    state: TempDir,
}

impl Site {
    /// The folder with the configuration in it; another one's is left as it is.
    fn at(dir: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let path = dir.join("bulkhead.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) if text != CONFIG => return Err(format!("{} is not examples/twenty.toml", path.display())),
            Ok(_) => {}
            Err(_) => std::fs::write(&path, CONFIG).map_err(|e| format!("{}: {e}", path.display()))?,
        }
        Ok(Site { dir: dir.to_owned(), state: tempfile::tempdir().unwrap() })
    }

    fn command(&self, name: &str) -> Command {
        let kept = ["PATH", "DOCKER_HOST"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut command = Command::new(BULKHEAD);
        command.arg(name).arg("--config").arg(self.dir.join("bulkhead.toml"));
        command.arg("--state").arg(self.state.path()).env_clear().envs(kept).env("HOME", self.state.path());
        command
    }

    /// The same, where nothing is baked.
    fn unbaked(dir: &Path, servers: &toml::Table) -> Result<Self, String> {
        let mut config: toml::Table = CONFIG.parse().map_err(|e| format!("{e}"))?;
        let mut changed = servers.clone();
        for (_, server) in &mut changed {
            let small =
                if server["package"].as_str().is_some_and(|p| p.starts_with("npx:")) { "is-number" } else { "six" };
            let server = server.as_table_mut().ok_or("a server is a table")?;
            let with = server.entry("with").or_insert_with(|| toml::Value::Array(Vec::new()));
            with.as_array_mut().ok_or("\"with\" is a list")?.push(small.into());
        }
        config.insert("servers".into(), changed.into());
        std::fs::write(dir.join("bulkhead.toml"), config.to_string()).map_err(|e| e.to_string())?;
        Ok(Site { dir: dir.to_owned(), state: tempfile::tempdir().unwrap() })
    }

    /// A gateway that has just been started.
    fn gateway(&self) -> Talk {
        Talk::start(self.command("serve"), &self.state.path().join("serve.log"))
    }

    /// Locks all servers: seconds, and how many images were made.
    fn lock(&self, what: &str) -> Value {
        let before = baked();
        let log = self.dir.join("lock.log");
        let began = Instant::now();
        let mut command = self.command("lock");
        command.arg("--yes").stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let status = command.status().unwrap();
        let seconds = began.elapsed().as_secs_f64();
        let made = baked().difference(&before).count();
        // Said at once: it took minutes, and what comes may fail.
        let _ = writeln!(std::io::stderr(), "bulkhead lock: {what}: {seconds:.1} s, {made} images made, {status}");
        json!({ "what": what, "seconds": seconds, "baked": made, "code": status.code() })
    }
}

/// The images of packages that the engine has.
fn baked() -> BTreeSet<String> {
    let images = ["images", "--quiet", "--no-trunc", "--filter", "label=org.bulkhead.package"];
    output("docker", &images).lines().map(str::to_owned).collect()
}

/// Locks all servers where nothing is baked, and removes the images that this lock names: no one else's.
fn bake(servers: &toml::Table) -> Result<Value, String> {
    let (dir, before) = (tempfile::tempdir().unwrap(), baked());
    let row = Site::unbaked(dir.path(), servers)?.lock("nothing is baked");
    let lock = std::fs::read_to_string(dir.path().join("bulkhead.lock")).unwrap_or_default();
    for image in baked().difference(&before).filter(|image| lock.contains(image.as_str())) {
        output("docker", &["rmi", "--force", image]);
    }
    Ok(row)
}

/// From the start of a gateway to its answers, and the containers there are before, meanwhile and after.
fn cold(site: &Site, watch: &Watch, runs: usize) -> Result<Value, String> {
    let (mut floor, mut hello, mut list) = (Vec::new(), Vec::new(), Vec::new());
    let (mut others, mut own, mut created) = ([0; 3], [0; 2], 0);
    let mut names = Vec::new();
    for run in 1..=runs {
        let began = Instant::now();
        output(BULKHEAD, &["--version"]);
        floor.push(began.elapsed().as_secs_f64() * 1e3);
        others[0] = others[0].max(containers(None).len());
        let mut gateway = site.gateway();
        gateway.hello()?;
        hello.push(gateway.ms());
        names = gateway.tools()?;
        list.push(gateway.ms());
        let pid = gateway.pid();
        others[1] = others[1].max(containers(None).len());
        own[0] += containers(Some(pid)).len();
        gateway.end();
        own[1] += containers(Some(pid)).len();
        others[2] = others[2].max(containers(None).len());
        created += watch.created(pid);
        progress(&format!("cold gateway: {run} of {runs}"));
    }
    let base = median(floor.clone());
    let row = |what: &str, samples: &[f64]| {
        let at = |share| percentile(&mut samples.to_vec(), share);
        json!({ "what": what, "median": at(0.5), "min": at(0.0), "max": at(1.0), "ratio": at(0.5) / base })
    };
    let rows = [
        row("bulkhead --version", &floor),
        row("initialize is answered", &hello),
        row("tools/list is answered", &list),
    ];
    let containers =
        json!({ "before": others[0], "during": others[1], "after": others[2], "own": own, "created": created });
    Ok(json!({ "runs": runs, "rows": rows, "tools": names, "containers": containers }))
}

/// The servers whose tools are listed.
fn locked(servers: &toml::Table, listed: &Value) -> Vec<String> {
    let names = listed.as_array().cloned().unwrap_or_default();
    let has = |name: &str| names.iter().filter_map(Value::as_str).any(|tool| tool.starts_with(&format!("{name}__")));
    servers.keys().filter(|name| has(name)).cloned().collect()
}

/// The first call of a server, from the start of a gateway; and of the same image without one.
fn first_call(site: &Site, watch: &Watch, name: &str, entry: &toml::Value, rounds: usize) -> Result<Value, String> {
    let call = calls::of(name).ok_or("has no call in this benchmark")?;
    let (mut ours, mut bare, mut said) = (Vec::new(), Vec::new(), Value::Null);
    let mut works = true;
    for _ in 0..rounds {
        let mut gateway = site.gateway();
        gateway.hello()?;
        gateway.tools()?;
        let (worked, answer) = gateway.call(&format!("{name}__{}", call.tool), &call.arguments())?;
        ours.push(gateway.ms());
        let running = containers(Some(gateway.pid()));
        // What counts containers must see one where there is one: or their absence above means nothing.
        let [container] = &running[..] else { return Err(format!("is in {} containers", running.len())) };
        if !watch.hears(gateway.pid()) {
            return Err("is in a container that nobody heard of".into());
        }
        let image = output("docker", &["inspect", "--format", "{{.Image}}", container]);
        (works, said) = (works && worked, answer);
        gateway.end();
        bare.push(bare::first_call(&image, entry, call, &site.dir.join("bare.log"))?);
    }
    progress(&format!("first call: {name}"));
    let (took, best, base) = (median(ours.clone()), percentile(&mut ours, 0.0), median(bare));
    let alone = json!({ "server": name, "tool": call.tool, "offline": call.offline, "works": works });
    let mut row =
        json!({ "ms": took, "best": best, "all": ours, "docker_run": base, "ratio": took / base, "answer": said });
    row.as_object_mut().unwrap().extend(alone.as_object().cloned().unwrap());
    Ok(row)
}

fn measure(options: &Options) -> Result<Value, String> {
    let config: toml::Table = CONFIG.parse().map_err(|e| format!("examples/twenty.toml: {e}"))?;
    let servers = config["servers"].as_table().ok_or("examples/twenty.toml has no servers")?;
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cold");
    if options.dir.is_none() && std::fs::read_to_string(own.join("bulkhead.toml")).is_ok_and(|text| text != CONFIG) {
        std::fs::remove_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
    }
    let site = Site::at(options.dir.as_deref().unwrap_or(&own))?;
    let (mut locks, mut wrong) = (Vec::new(), Vec::new());
    if options.bake {
        locks.push(bake(servers)?);
    }
    if !site.dir.join("bulkhead.lock").exists() {
        locks.push(site.lock("here for the first time"));
    }
    let again = tempfile::tempdir().unwrap();
    locks.push(Site::at(again.path())?.lock("all is baked"));

    let watch = Watch::start();
    // So that the watch is surely up, and nothing below is the first of its kind.
    let mut gateway = site.gateway();
    gateway.hello()?;
    let listed = json!(gateway.tools()?);
    let locked = locked(servers, &listed);
    let first = locked.first().and_then(|name| Some((name, calls::of(name)?))).ok_or("no server is locked")?;
    gateway.call(&format!("{}__{}", first.0, first.1.tool), &first.1.arguments())?;
    if !watch.hears(gateway.pid()) {
        return Err("docker events tells nothing of a gateway's container".into());
    }
    gateway.end();

    let cold = cold(&site, &watch, options.runs)?;
    let seen = &cold["containers"];
    if seen["own"] != json!([0, 0]) || seen["created"] != json!(0) {
        wrong.push(format!("a gateway that nobody called had containers: {seen}"));
    }
    if locked.len() < SERVERS {
        wrong.push(format!("only {} servers are locked", locked.len()));
    }
    let mut calls = Vec::new();
    // Where there are containers already, a first call is not what would be measured.
    let cold_indeed = wrong.is_empty();
    for name in locked.iter().filter(|_| cold_indeed) {
        match first_call(&site, &watch, name, &servers[name], options.rounds) {
            Ok(row) => {
                if row["offline"] == true && row["works"] == false {
                    wrong.push(format!("{name}: {}", row["answer"]));
                }
                calls.push(row);
            }
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    Ok(json!({
        "setting": setting(), "servers": servers.len(), "locked": locked, "cold": cold, "calls": calls,
        "locks": locks, "wrong": wrong,
    }))
}

fn print(result: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (setting, cold) = (&result["setting"], &result["cold"]);
    let mut text = format!("bulkhead {}, Docker Engine {}\n", word(&setting["bulkhead"]), word(&setting["engine"]));
    text += &format!("{}, {}\n", word(&setting["machine"]), word(&setting["processor"]));

    let (locked, tools) = (rows(&result["locked"]).len(), rows(&cold["tools"]).len());
    text += &format!("\na cold gateway with {locked} servers and {tools} tools, ms of {} runs\n", cold["runs"]);
    text += &format!("{:<34}{:>10}{:>10}{:>10}{:>8}\n", "from its start until", "median", "min", "max", "ratio");
    for row in rows(&cold["rows"]) {
        let (median, min, max) = (number(&row["median"]), number(&row["min"]), number(&row["max"]));
        let (what, ratio) = (word(&row["what"]), number(&row["ratio"]));
        text += &format!("{what:<34}{median:>10.1}{min:>10.1}{max:>10.1}{ratio:>7.1}x\n");
    }
    let seen = &cold["containers"];
    text += &format!(
        "containers of these gateways: {} while they ran, {} after, {} ever created\n",
        seen["own"][0], seen["own"][1], seen["created"]
    );
    text += &format!(
        "of any gateway at the engine, at most: {} before, {} meanwhile, {} after\n",
        seen["before"], seen["during"], seen["after"]
    );

    let calls = rows(&result["calls"]);
    text += "\nthe first call of each, ms from the start of a gateway; docker run and ratio: medians\n";
    text += &format!(
        "{:<12}{:<25}{:>7}{:>7}{:>11}{:>7}  {}\n",
        "server", "tool", "median", "best", "docker run", "ratio", "answer"
    );
    for row in &calls {
        let (ms, base, ratio) = (number(&row["ms"]), number(&row["docker_run"]), number(&row["ratio"]));
        let best = number(&row["best"]);
        let answers = if row["works"] == true { "result" } else { "error" };
        let (name, tool) = (word(&row["server"]), word(&row["tool"]));
        text += &format!("{name:<12}{tool:<25}{ms:>7.0}{best:>7.0}{base:>11.0}{ratio:>6.2}x  {answers}\n");
    }
    if !calls.is_empty() {
        let of = |key: &str| calls.iter().map(|row| number(&row[key])).collect::<Vec<_>>();
        let (mut ms, mut best, mut base, mut ratio) = (of("ms"), of("best"), of("docker_run"), of("ratio"));
        for (what, share) in [("median", 0.5), ("worst", 1.0)] {
            let at = |samples: &mut Vec<f64>| percentile(samples, share);
            let (ms, best, base, ratio) = (at(&mut ms), at(&mut best), at(&mut base), at(&mut ratio));
            text += &format!("{what:<37}{ms:>7.0}{best:>7.0}{base:>11.0}{ratio:>6.2}x\n");
        }
        let over: Vec<_> = calls.iter().filter(|row| number(&row["ms"]) > GOAL).map(|r| word(&r["server"])).collect();
        text +=
            &format!("over the goal of {GOAL} ms: {}\n", if over.is_empty() { "none".into() } else { over.join(", ") });
    }

    let locks = rows(&result["locks"]);
    let base = locks.last().map_or(f64::NAN, |row| number(&row["seconds"]));
    text += "\nbulkhead lock, of all of them\n";
    text += &format!("{:<34}{:>10}{:>14}{:>8}\n", "when", "seconds", "images made", "ratio");
    for row in &locks {
        let (what, seconds) = (word(&row["what"]), number(&row["seconds"]));
        text += &format!("{what:<34}{seconds:>10.1}{:>14}{:>7.1}x\n", number(&row["baked"]), seconds / base);
    }
    for wrong in rows(&result["wrong"]) {
        text += &format!("\nwrong: {}", word(&wrong));
    }
    text
}

fn main() -> ExitCode {
    let refuse = |why: String, code: u8| {
        let _ = writeln!(std::io::stderr(), "{why}");
        ExitCode::from(code)
    };
    let options = match Options::read() {
        Ok(options) => options,
        Err(why) => return refuse(why, 2),
    };
    let result = match measure(&options) {
        Ok(result) => result,
        Err(why) => return refuse(why, 1),
    };
    let text = if options.json { format!("{result:#}") } else { print(&result) };
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    if result["wrong"].as_array().is_some_and(Vec::is_empty) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
