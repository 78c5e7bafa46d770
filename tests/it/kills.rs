//! Whoever is killed, and at whatever moment: nothing of it stays, and no call stays unanswered that could be answered.
//! A hundred rounds at random moments, over a server that behaves well, one that is deaf to every request to end, and one
//! whose child holds its streams open. A round that failed tells its number: `BULKHEAD_ROUND=NUMBER` repeats it alone.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{NO_LIMITS, PATIENCE, SecondEngine, Serving, Site, contained, wait_for, wait_until};

mod clients;
mod engines;
mod gateways;

/// How soon the processes of an engine have ended that has no container any more.
const SOON: Duration = Duration::from_secs(20);

/// The servers of every round.
const SERVERS: [&str; 3] = ["tame", "deaf", "forking"];

/// A server that only a kill ends.
const DEAF: [&str; 2] = ["--ignore-eof", "--ignore-term"];

/// The configuration of every round. There is room for three instances and no more: one that is lost must give its
/// share back before another one can take its place.
fn three(deaf: &[&str]) -> String {
    let tame = contained("tame", &[]) + "state = \"/data\"\n";
    let others = contained("deaf", deaf) + &contained("forking", &["--fork"]);
    format!("{NO_LIMITS}[limits.total]\ninstances = 3\n{tame}{others}")
}

// === rounds ===

/// What a round decides by, the same for the same number.
struct Random(u64);

impl Random {
    /// A number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Lets up to so many milliseconds pass.
    fn pause(&mut self, most: u64) {
        std::thread::sleep(Duration::from_millis(self.below(most)));
    }
}

/// Plays rounds, several at once, and fails with the numbers of those that failed. At the end the engine is as bare as
/// one can be that has served.
fn rounds(count: u64, at_once: usize, play: impl Fn(&SecondEngine, &mut Random) + Sync) {
    let Some(engine) = SecondEngine::start() else { return };
    let asked = std::env::var("BULKHEAD_ROUND").ok().map(|number| number.parse::<u64>().unwrap());
    let first = asked.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
    let last = if asked.is_some() { first } else { first + count - 1 };
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number > last {
                        return;
                    }
                    if catch_unwind(AssertUnwindSafe(|| play(&engine, &mut Random(number)))).is_err() {
                        failed.lock().unwrap().push(number);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "BULKHEAD_ROUND = one of {failed:?}; the engine said: {}", engine.log());
    assert_bare(&engine);
}

/// Nothing is left at the engine but what is meant to stay.
fn assert_bare(engine: &SecondEngine) {
    let began = Instant::now();
    assert_eq!(engine.containers(&[], "{{.Names}}"), [""; 0]);
    let left = wait_for("the processes to end", PATIENCE, || {
        let left = engine.processes();
        (left.is_empty() || began.elapsed() > SOON).then_some(left)
    });
    assert_eq!(left, [""; 0], "the engine said: {}", engine.log());
    assert_eq!(engine.lines(&["network", "ls", "--filter", "label=org.bulkhead.role", "--quiet"]), [""; 0]);
    assert_eq!(engine.lines(&["network", "ls", "--format", "{{.Name}}"]), ["host", "none"]);
    // By their names: an engine that ends while it makes a volume may forget its labels.
    let volumes = engine.lines(&["volume", "ls", "--format", "{{.Name}}"]);
    let (probes, states) = ("bulkhead-probe-", "bulkhead-state-tame-");
    let meant = |volume: &&String| volume.starts_with(probes) || volume.starts_with(states);
    assert_eq!(volumes.iter().filter(|volume| !meant(volume)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(volumes.iter().filter(|volume| volume.starts_with(probes)).count(), 1, "{volumes:?}");
}

/// The containers of the gateway with that process id: the server's name and the state of each.
fn containers(engine: &SecondEngine, gateway: u32) -> Vec<String> {
    let label = format!("label=org.bulkhead.owner.pid={gateway}");
    let shown = r#"{{.Label "org.bulkhead.server"}} {{.State}}"#;
    engine.containers(&["--filter", &label], shown)
}

/// The audit is whole; tells how many calls have no outcome.
fn interrupted(site: &Site) -> usize {
    let verified = site.prints(&["audit", "verify"]);
    assert!(verified.contains("the chain is whole"), "{verified}");
    verified.lines().filter(|line| line.starts_with("interrupted")).count()
}

// === the client ===

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The gateway has just been started.
    Begun,
    /// It was greeted, and has perhaps not answered yet.
    Greeted,
    /// Each server was called, none had been running.
    Called,
    /// Each server has answered, and holds calls that take long.
    InFlight,
    /// The same, and the client has closed its end.
    Closed,
}

/// A client that keeps in mind what it asked.
struct Client {
    serving: Serving,
    asked: BTreeSet<u64>,
}

impl Client {
    fn new(serving: Serving) -> Self {
        Client { serving, asked: BTreeSet::new() }
    }

    /// Goes on to a moment, and a little beyond it.
    fn reach(&mut self, moment: Moment, random: &mut Random) {
        if moment == Moment::Begun {
            return random.pause(200);
        }
        self.greet();
        if moment == Moment::Greeted {
            return random.pause(400);
        }
        self.call_all("echo", &json!({}));
        if moment == Moment::Called {
            return random.pause(2500);
        }
        self.until_all_serve();
        for _ in 0..=random.below(3) {
            self.call_all("sleep", &json!({"ms": 600_000}));
            self.call_all("big", &json!({"bytes": random.below(1 << 20)}));
        }
        if moment == Moment::InFlight {
            return random.pause(300);
        }
        self.serving.shut();
        random.pause(5000);
    }

    fn greet(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"},
        });
        self.asked.insert(self.serving.ask("initialize", &params.to_string()));
        self.serving.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self.asked.insert(self.serving.ask("tools/list", "{}"));
    }

    /// Calls that tool of each server, and waits for nothing.
    fn call_all(&mut self, tool: &str, arguments: &Value) {
        for server in SERVERS {
            self.asked.insert(self.serving.ask_tool(&format!("{server}__{tool}"), arguments.clone()));
        }
    }

    /// Waits until each server has given a result.
    fn until_all_serve(&mut self) {
        for server in SERVERS {
            let name = format!("{server}__count");
            let mut last = Value::Null;
            wait_until(&format!("a result of {server}"), PATIENCE, || {
                last = self.serving.call(&name, json!({}));
                last["isError"] != true
            });
        }
    }

    /// Takes the answer to each request so far, and shows the failures among them.
    fn all_answered(&mut self) -> Vec<Value> {
        let answers = std::mem::take(&mut self.asked).into_iter().map(|id| self.serving.answer(id));
        answers.filter(|answer| answer["result"]["isError"] == true || !answer["error"].is_null()).collect()
    }

    /// What is left over of the answers once the gateway has written its last line: requests without an answer. None was
    /// answered twice.
    fn unanswered(mut asked: BTreeSet<u64>, lines: &[String]) -> BTreeSet<u64> {
        for line in lines {
            // A line is cut where the gateway was killed.
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            if let (Some(id), None) = (message["id"].as_u64(), message["method"].as_str()) {
                assert!(asked.remove(&id), "answered twice, or never asked: {line:.300}");
            }
        }
        asked
    }
}
