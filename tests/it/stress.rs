//! Servers that take all they can get: their limits hold, what they do is told, the gateway stays small, nothing of it
//! reaches the host's disk, and another server of the same gateway answers every call meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::serving::text_of;
use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, contained, engine, wait_for};

/// How much memory a gateway may take more, whatever a server does. One message alone may have 32 MiB.
const GROWTH: u64 = 200 << 20;
/// How many calls another server must at least have answered meanwhile.
const MEANWHILE: usize = 20;

/// A gateway with a server that is about to go wild and one that stays calm, both running.
struct Trial {
    site: Site,
    serving: Serving,
    container: String,
    before: u64,
}

/// What a call to the wild server came to.
struct Seen {
    result: Value,
    /// How many calls the calm server answered meanwhile.
    meanwhile: usize,
    /// How many notices of progress came for it.
    progress: usize,
}

impl Trial {
    /// `limits` are further lines of the wild server's entry.
    fn new(limits: &str) -> Self {
        let wild = contained("wild", &[]) + "timeout = \"5m\"\n" + limits + "\n";
        let site = Site::new(&(NO_LIMITS.to_owned() + &wild + &contained("calm", &[])));
        let mut serving = site.open();
        serving.wait_for_tool("wild__echo");
        serving.wait_for_tool("calm__echo");
        for server in ["wild", "calm"] {
            assert_eq!(serving.text(&format!("{server}__echo"), json!({})), "{}");
        }
        let running = engine::containers(&site.gateway());
        let container = running.iter().find(|c| c.server == "wild").expect("a container").id.clone();
        let before = peak(&serving);
        Trial { site, serving, container, before }
    }

    /// Lets the wild server do something, and calls the calm one for as long as that takes.
    fn see(&mut self, tool: &str, arguments: Value) -> Seen {
        let params =
            json!({ "name": format!("wild__{tool}"), "arguments": arguments, "_meta": { "progressToken": 7 } });
        let wild = self.serving.ask("tools/call", &params.to_string());
        let (mut result, mut progress, mut meanwhile) = (None, 0, 0);
        while result.is_none() {
            let calm = self.serving.ask_tool("calm__echo", json!({ "n": meanwhile }));
            loop {
                let line = self.serving.receive();
                if line.contains(r#""method":"notifications/progress""#) {
                    progress += 1;
                    continue;
                }
                let message: Value = serde_json::from_str(&line).unwrap();
                if message["id"] == wild {
                    result = Some(message["result"].clone());
                } else if message["id"] == calm {
                    let text = text_of(&message["result"]);
                    assert_eq!(text, json!({ "n": meanwhile }).to_string());
                    break;
                }
            }
            meanwhile += usize::from(result.is_none());
        }
        Seen { result: result.unwrap(), meanwhile, progress }
    }

    /// The same for what ends with a text, and lasts long enough for the calm server to have shown itself.
    fn bears(&mut self, tool: &str, arguments: Value) -> String {
        let seen = self.see(tool, arguments);
        assert!(seen.result["isError"] != true, "{}", seen.result);
        assert!(seen.meanwhile >= MEANWHILE, "{} calls meanwhile", seen.meanwhile);
        text_of(&seen.result)
    }

    /// What the wild server's control group counts, as it sees it.
    fn usage(&mut self) -> Value {
        serde_json::from_str(&self.serving.text("wild__usage", json!({}))).unwrap()
    }

    /// The wild server is still the same one, still serves, and all else is as it was.
    fn is_over(&mut self) {
        assert_eq!(self.serving.text("wild__echo", json!({ "a": 1 })), r#"{"a":1}"#);
        let shown = self.site.server("wild");
        assert_eq!((&shown["state"], &shown["instances"][0]["container"]), (&json!("ready"), &json!(self.container)));
        self.left_no_trace();
        self.is_calm();
    }

    /// The gateway is small, and the other server has served all the time.
    fn is_calm(&mut self) {
        let grown = peak(&self.serving).saturating_sub(self.before);
        assert!(grown < GROWTH, "the gateway took {} MiB more", grown >> 20);
        assert_eq!(self.serving.text("calm__echo", json!({})), "{}");
        let ended = self.site.records("server").into_iter().filter(|r| r["server"] == "calm" && !r["reason"].is_null());
        assert_eq!(ended.collect::<Vec<_>>(), [Value::Null; 0]);
        assert!(self.site.outcomes_of("calm__echo").iter().all(|outcome| outcome == "ok"));
    }

    /// Nothing that the wild server wrote is on the host's disk.
    fn left_no_trace(&self) {
        let format =
            "{{.SizeRw}} {{.HostConfig.LogConfig.Type}} [{{.LogPath}}]{{range .Mounts}} {{.Type}} {{.RW}}{{end}}";
        let shown = engine::docker(&["inspect", "--size", "--format", format, &self.container]);
        assert_eq!(shown, "0 none [] volume false");
        // Where the engine is on this machine and may be looked into, its own files of the container are small ones.
        let root = engine::docker(&["info", "--format", "{{.DockerRootDir}}"]);
        let files = std::fs::read_dir(format!("{root}/containers/{}", self.container)).into_iter().flatten().flatten();
        let sizes: u64 = files.map(|file| file.metadata().map_or(0, |m| m.len())).sum();
        assert!(sizes < 1 << 20, "the engine keeps {sizes} bytes of it");
    }

    /// The last record of the wild server's life, once it has come to an end.
    fn ended(&self, word: &str) -> String {
        let record = wait_for(&format!("a record that it is {word}"), PATIENCE, || {
            self.site.records("server").into_iter().find(|r| r["server"] == "wild" && r["event"] == word)
        });
        assert_eq!(record["container"], json!(self.container));
        record["reason"].as_str().unwrap().to_owned()
    }
}

/// The most memory that a gateway has taken so far, in bytes.
fn peak(serving: &Serving) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_fork_bomb_is_refused_at_its_limit_and_stays_served() {
    let mut trial = Trial::new("pids = 48");
    let told: Value = serde_json::from_str(&trial.bears("forks", json!({ "ms": 3000 }))).unwrap();
    let children = number(&told["children"]);
    assert!((20..48).contains(&children) && number(&told["refused"]) > 0, "{told}");
    trial.is_over();
}

#[test]
fn processes_that_take_too_much_memory_are_killed_within_their_container_and_swap_nothing() {
    let mut trial = Trial::new("memory = \"128m\"");
    let told: Value = serde_json::from_str(&trial.bears("hog", json!({ "ms": 3000 }))).unwrap();
    assert_eq!(told["ends"], json!([-9]), "{told}");
    let usage = trial.usage();
    let limit = 128 << 20;
    assert!(number(&usage["memory"]) <= limit && number(&usage["with_swap"]) <= limit, "{usage}");
    assert!(number(&usage["memory"]) > limit / 2, "it did take what it could: {usage}");
    assert_eq!(usage["swap"], 0);
    trial.is_over();
}

#[test]
fn a_server_that_runs_out_of_memory_ends_with_that_cause_wherever_one_looks() {
    let mut trial = Trial::new("memory = \"64m\"");
    let result = trial.see("oom", json!({})).result;
    assert!(result["isError"] == true && text_of(&result).contains("out of memory"), "{result}");
    assert!(trial.ended("oom").starts_with("out of memory (exit code 137)"));
    let shown = trial.site.server_in("wild", "failed");
    assert!(shown["reason"].as_str().unwrap().contains("out of memory"), "{shown}");
    assert_eq!(trial.site.outcomes_of("wild__oom"), ["crashed"]);
    trial.is_calm();
}

#[test]
fn a_server_that_keeps_all_processors_busy_gets_no_more_than_its_share() {
    let mut trial = Trial::new("cpus = 0.25");
    let before = trial.usage();
    trial.bears("spin", json!({ "ms": 4000 }));
    let after = trial.usage();
    let spent = |what: &str| number(&after[what]) - number(&before[what]);
    let share = spent("cpu") as f64 / spent("clock") as f64;
    assert!(share < 0.25 * 1.15, "{share} processors");
    assert!(spent("throttled") > 0, "it would have taken more");
    trial.is_over();
}

#[test]
fn places_in_memory_that_are_filled_are_full_and_the_server_stays_served() {
    let mut trial = Trial::new("");
    let told: Value = serde_json::from_str(&trial.bears("fill", json!({ "ms": 2000 }))).unwrap();
    for (place, mib) in [("/tmp", 64), ("/run", 16), ("/home/mcp", 64)] {
        let full = json!({ "bytes": mib << 20, "error": "No space left on device" });
        assert_eq!(told[place], full, "{place}");
    }
    trial.is_over();
}

#[test]
fn two_gigabytes_as_one_line_without_an_end_cost_the_gateway_nothing() {
    let mut trial = Trial::new("");
    let seen = trial.see("flood", json!({ "what": "line", "bytes": 2_u64 << 30 }));
    // What the line was to be nobody knows; the only call that is open is told.
    let told = text_of(&seen.result);
    assert!(told.contains("the result of 2147483648 bytes is over the limit"), "{told}");
    assert!(seen.meanwhile >= MEANWHILE, "{} calls meanwhile", seen.meanwhile);
    assert_eq!(trial.site.outcomes_of("wild__flood"), ["too_large"]);
    trial.is_over();
}

#[test]
fn two_gigabytes_of_lines_that_are_no_messages_are_counted_and_gone() {
    let mut trial = Trial::new("");
    let bytes = trial.bears("flood", json!({ "what": "lines", "bytes": 2_u64 << 30 }));
    let lines = bytes.parse::<u64>().unwrap() / 16384;
    assert_eq!(trial.site.server("wild")["instances"][0]["skipped"]["noise"], lines);
    let short = trial.bears("flood", json!({ "what": "short", "bytes": 64 << 20 })).parse::<u64>().unwrap() / 40;
    assert_eq!(trial.site.server("wild")["instances"][0]["skipped"]["noise"], lines + short);
    trial.is_over();
}

#[test]
fn a_gigabyte_on_standard_error_is_read_and_gone() {
    let mut trial = Trial::new("");
    let began = Instant::now();
    trial.bears("flood", json!({ "what": "stderr", "bytes": 1_u64 << 30 }));
    // No upper bound, which a busy machine would break: it was not read faster than it may be.
    assert!(began.elapsed() > Duration::from_secs(13), "{:?}", began.elapsed());
    trial.is_over();
}

#[test]
fn a_flood_of_progress_reaches_its_caller_and_holds_nobody_up() {
    let mut trial = Trial::new("");
    let seen = trial.see("flood", json!({ "what": "progress", "bytes": 32 << 20 }));
    assert!(seen.result["isError"] != true, "{}", seen.result);
    assert!(seen.meanwhile >= MEANWHILE, "{} calls meanwhile", seen.meanwhile);
    assert!(seen.progress > 100_000, "{} notices", seen.progress);
    trial.is_over();
}

#[test]
fn a_server_that_dies_in_the_middle_of_its_flood_ends_with_its_cause() {
    for what in ["stderr", "line"] {
        let mut trial = Trial::new("");
        let result = trial.see("flood", json!({ "what": what, "bytes": 256 << 20, "end": "exit" })).result;
        assert!(result["isError"] == true && text_of(&result).contains("exit code 9"), "{what}: {result}");
        assert!(trial.ended("crashed").starts_with("exit code 9"));
        let shown = trial.site.server_in("wild", "failed");
        assert!(shown["reason"].as_str().unwrap().contains("exit code 9"), "{what}: {shown}");
        assert_eq!(trial.site.outcomes_of("wild__flood"), ["crashed"]);
        trial.is_calm();
    }
}
