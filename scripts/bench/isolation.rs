//! What isolation costs and what it is worth, as ratios: how long calls to an idle server take while another one of the
//! same gateway goes wild, and what the proof adds to the time from a start to its first answer.
//!
//! `cargo bench --bench isolation [-- --json] [--rounds N] [--only WORD]`
//!
//! Needs an engine and the images of `scripts/setup`. Exit codes: 0 all goals are met, 1 one is missed.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

mod measure;
mod neighbour;
mod start;
#[path = "../../tests/isolation/support.rs"]
#[allow(dead_code, missing_docs, reason = "the tests use more of it")]
mod support;

use measure::setting;

/// The 99th percentile under stress, as a multiple of the one without.
const P99_GOAL: f64 = 3.0;
/// What the proof may add to a start, ms.
const START_GOAL: f64 = 150.0;

struct Options {
    json: bool,
    rounds: usize,
    only: Option<String>,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Options { json: false, rounds: 5, only: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                // Cargo says so by itself.
                "--bench" => {}
                "--json" => options.json = true,
                "--rounds" => options.rounds = words.next().and_then(|n| n.parse().ok()).ok_or("--rounds N")?,
                "--only" => options.only = Some(words.next().ok_or("--only WORD")?),
                _ => return Err(format!("unknown argument {word:?}")),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|word| name.contains(word.as_str()))
    }
}

fn print(result: &Value) -> String {
    let ms = |value: &Value| format!("{:.2}", value.as_f64().unwrap_or_default());
    let (setting, mut text) = (&result["setting"], String::new());
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    text += &format!("bulkhead {}, Docker Engine {}\n", word(&setting["bulkhead"]), word(&setting["engine"]));
    text += &format!("{}, {}\n", word(&setting["machine"]), word(&setting["processor"]));
    text += "\ncalls to a server while another one goes wild, ms, medians of the rounds\n";
    text += &format!(
        "{:<34}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>8}\n",
        "the other one", "p50 idle", "stressed", "p99 idle", "stressed", "p50", "p99", "calls"
    );
    for row in result["neighbour"].as_array().into_iter().flatten() {
        let (idle, stressed, ratio) = (&row["idle"], &row["stressed"], &row["ratio"]);
        let (a, b, c, d) = (ms(&idle["p50"]), ms(&stressed["p50"]), ms(&idle["p99"]), ms(&stressed["p99"]));
        let (name, p50, p99) = (word(&row["stress"]), ms(&ratio["p50"]), ms(&ratio["p99"]));
        text += &format!("{name:<34}{a:>9}{b:>9}{c:>9}{d:>9}{p50:>7}x{p99:>7}x{:>8}\n", stressed["calls"]);
    }
    text += "\nfrom a start to its first answer, ms, medians\n";
    text += &format!("{:<34}{:>9}{:>9}{:>9}{:>9}\n", "the server", "unproven", "proven", "adds", "ratio");
    for row in result["start"].as_array().into_iter().flatten() {
        let (without, with, adds) = (ms(&row["unproven"]), ms(&row["proven"]), ms(&row["adds"]));
        text += &format!("{:<34}{without:>9}{with:>9}{adds:>9}{:>8}x\n", word(&row["server"]), ms(&row["ratio"]));
    }
    for missed in result["missed"].as_array().into_iter().flatten() {
        text += &format!("\nmissed: {}", word(missed));
    }
    text
}

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            return ExitCode::from(2);
        }
    };
    let neighbour = neighbour::measure(&options);
    let start = if options.wants("start") { start::measure() } else { Vec::new() };
    let over = |rows: &[Value], value: &dyn Fn(&Value) -> f64, goal: f64, what: &dyn Fn(&Value) -> String| {
        rows.iter().filter(|row| value(row) > goal).map(what).collect::<Vec<_>>()
    };
    let ratio = |row: &Value| row["ratio"]["p99"].as_f64().unwrap_or(f64::INFINITY);
    let adds = |row: &Value| row["adds"].as_f64().unwrap_or(f64::INFINITY);
    let mut missed =
        over(&neighbour, &ratio, P99_GOAL, &|row| format!("p99 over {P99_GOAL} times the idle one: {}", row["stress"]));
    missed.extend(over(&start, &adds, START_GOAL, &|row| format!("proof over {START_GOAL} ms: {}", row["server"])));
    let met = missed.is_empty();
    let result = json!({ "setting": setting(), "neighbour": neighbour, "start": start, "missed": missed });
    let text = if options.json { format!("{result:#}") } else { print(&result) };
    let _ = writeln!(std::io::stdout(), "{text}");
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
