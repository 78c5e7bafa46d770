//! Calls to an idle server through a real gateway, one after the other, with and without another server going wild.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Options;
use super::measure::{median, output, percentile, progress};

/// The fixture server under a name of its own: tests replace theirs.
const IMAGE: &str = "bulkhead/bench-server";
/// How long each phase of a round lasts.
const PHASE: Duration = Duration::from_secs(2);
/// How long the other server has to go wild before anything is measured.
const LEAD: Duration = Duration::from_millis(300);

/// What the other server does: its tool, the arguments besides the time, and lines of its entry.
const STRESS: [(&str, &str, &str, &str); 10] = [
    ("does nothing", "sleep", "", ""),
    ("keeps all processors busy", "spin", "", ""),
    ("forks until refused, for ever", "forks", "", ""),
    ("takes memory until killed, anew", "hog", "", "memory = \"128m\""),
    ("fills its places in memory, anew", "fill", "", ""),
    ("writes one endless line", "flood", "line", ""),
    ("writes noise in long lines", "flood", "lines", ""),
    ("writes noise in short lines", "flood", "short", ""),
    ("writes to standard error", "flood", "stderr", ""),
    ("reports progress without end", "flood", "progress", ""),
];

/// A gateway with both servers, and the client on its pipe.
struct Gateway {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    next: u64,
    _dir: TempDir,
}

impl Gateway {
    fn start(entry: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulkhead.toml");
        let server = |name: &str| format!("[servers.{name}]\nimage = {IMAGE:?}\ntimeout = \"5m\"\n");
        let limits = "[limits]\nrate = \"600000/min\"\nburst = 100000\nconcurrent = 1000\n";
        let config = format!("{limits}{}{entry}\n{}", server("wild"), server("calm"));
        std::fs::write(&path, config).unwrap();
        let kept = ["PATH", "DOCKER_HOST"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
        command.arg("serve").arg("--config").arg(&path).arg("--state").arg(dir.path().join("state"));
        command.env_clear().envs(kept).env("HOME", dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut gateway = Gateway { input: child.stdin.take(), child, lines, next: 1, _dir: dir };
        let info = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let id = gateway.ask("initialize", &hello);
        gateway.answer(id);
        for tool in ["wild__echo", "calm__echo"] {
            while !gateway.tools().contains(tool) {
                std::thread::sleep(Duration::from_millis(50));
            }
            let id = gateway.call(tool, &json!({}));
            assert_eq!(gateway.answer(id)["result"]["content"][0]["text"], "{}");
        }
        gateway
    }

    fn ask(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let input = self.input.as_mut().unwrap();
        input.write_all((line + "\n").as_bytes()).unwrap();
        id
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": self.next } }),
        )
    }

    /// The next answer; notifications are passed over.
    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the gateway has ended");
            // What is measured is the gateway: a notice is passed over unread.
            if !line.contains(r#""method":"notifications/"#) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn tools(&mut self) -> String {
        let id = self.ask("tools/list", &json!({}));
        self.answer(id)["result"].to_string()
    }

    /// Calls the calm server for that time, for what each call took, in ms. `wild` is a call to the other one, which must
    /// not be over before.
    fn calls(&mut self, within: Duration, wild: Option<u64>) -> Vec<f64> {
        let (began, mut took) = (Instant::now(), Vec::new());
        while began.elapsed() < within {
            let sent = Instant::now();
            let n = json!({ "n": took.len() });
            let id = self.call("calm__echo", &n);
            let answer = self.next();
            assert!(wild.is_none_or(|wild| answer["id"] != wild), "it was over too soon: {answer}");
            took.push(sent.elapsed().as_secs_f64() * 1e3);
            assert_eq!((&answer["id"], &answer["result"]["structuredContent"]), (&json!(id), &n));
        }
        took
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Both percentiles of each round.
#[derive(Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
    calls: usize,
}

impl Rounds {
    fn add(&mut self, mut took: Vec<f64>) {
        self.p50.push(percentile(&mut took, 0.50));
        self.p99.push(percentile(&mut took, 0.99));
        self.calls += took.len();
    }
}

/// Every stress, each on a gateway of its own.
pub fn measure(options: &Options) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture");
    output("docker", &["build", "--quiet", "--tag", IMAGE, folder]);
    STRESS
        .iter()
        .filter(|(name, tool, what, _)| options.wants(&format!("{name} {tool} {what}")))
        .map(|stress| one(stress, options))
        .collect()
}

fn one((name, tool, what, entry): &(&str, &str, &str, &str), options: &Options) -> Value {
    let mut gateway = Gateway::start(entry);
    let (mut idle, mut stressed) = (Rounds::default(), Rounds::default());
    // What is first is slower whatever it is.
    gateway.calls(PHASE / 4, None);
    for round in 1..=options.rounds {
        idle.add(gateway.calls(PHASE, None));
        let mut arguments = json!({ "ms": (LEAD + PHASE).as_millis() as u64 + 500 });
        if !what.is_empty() {
            arguments["what"] = json!(what);
        }
        let wild = gateway.call(&format!("wild__{tool}"), &arguments);
        std::thread::sleep(LEAD);
        stressed.add(gateway.calls(PHASE, Some(wild)));
        gateway.answer(wild);
        progress(&format!("{name}: round {round} of {}", options.rounds));
    }
    let shown = |rounds: &Rounds| {
        json!({
            "p50": median(rounds.p50.clone()), "p99": median(rounds.p99.clone()),
            "p50s": rounds.p50, "p99s": rounds.p99, "calls": rounds.calls,
        })
    };
    let ratio = |of: fn(&Rounds) -> &Vec<f64>| median(of(&stressed).clone()) / median(of(&idle).clone());
    json!({
        "stress": name, "idle": shown(&idle), "stressed": shown(&stressed),
        "ratio": { "p50": ratio(|r| &r.p50), "p99": ratio(|r| &r.p99) },
    })
}
