//! Tries out the default compartment: a server of the program's own that does nothing but try to break out, started and
//! proven like any other. Knows no MCP.
//!
//! The evidence says that every control is as asked; the canary says what that is worth on this engine and this kernel.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

use crate::config::resolve;
use crate::downstream::link::Output;
use crate::downstream::tail::Tail;
use crate::error::{Class, Fault};

use super::lease::{Lease, Terms};
use super::spec::NOFILE;
use super::volume::PROBE_IMAGE;
use super::{Compartment, Engine, Owner, start};

/// Where its image has it.
const PROGRAM: &str = "/canary";
/// Of the lines that it writes.
const VERSION: u32 = 1;
/// How long all its attempts may take: each has a deadline of its own.
const WITHIN: Duration = Duration::from_secs(60);
/// Longest report, in bytes.
const REPORT: usize = 1 << 20;
/// How long its container may take to end once its output has.
const GRACE: Duration = Duration::from_secs(5);

/// Small, so that it is soon gone over.
const MEMORY: u64 = 128 << 20;
const PIDS: u32 = 64;

/// One attempt to break out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was attempted.
    pub name: String,
    /// The control that it tries.
    pub rule: String,
    /// Whether it got what the control is to keep from it.
    pub broke: bool,
    /// Whether it came to its end at all.
    pub tried: bool,
    /// What it got, or what kept it.
    pub how: String,
}

/// What came of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Every attempt, in the canary's order.
    pub attempts: Vec<Attempt>,
    /// How many controls were proven before the first.
    pub controls: usize,
}

impl Tried {
    /// The attempts that broke a rule, and those of which nobody knows.
    pub fn not_held(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|attempt| attempt.broke || !attempt.tried)
    }
}

/// The last line.
#[derive(Deserialize)]
struct Total {
    bulkhead_canary: u32,
    attempts: usize,
}

/// What the attempts need to know of the outside, in the canary's words, beside what the compartment says itself.
fn targets(owner: &Owner, sockets: &[String], seated: bool) -> Vec<String> {
    let tmp = super::spec::TMP;
    let mut all = vec![
        format!("tmp={tmp}"),
        format!("memory={MEMORY}"),
        format!("files={NOFILE}"),
        format!("pids={PIDS}"),
        format!("pid={}:{}", owner.pid, owner.started),
    ];
    if seated {
        // As many as the default limit needs.
        all.push("cpus=1".to_owned());
    }
    all.extend(sockets.iter().map(|path| format!("unix=the socket {path}@{path}")));
    all
}

/// Starts the canary in the default compartment, waits for it, and reads what it says. `more` are targets beyond those
/// that every such run has, in the canary's words; `sockets` are paths of the host that must not be reached.
pub async fn try_out(engine: &Engine, owner: &Owner, sockets: &[String], more: &[String]) -> Result<Tried, Fault> {
    let image = engine.image(PROBE_IMAGE).await?;
    let mut command = vec![PROGRAM.to_owned()];
    command.extend(targets(owner, sockets, engine.defaults().await?.processors.is_some()));
    command.extend(more.iter().cloned());
    // The lists of JSON are lists of TOML.
    let command = serde_json::Value::from(command);
    let entry = format!("image = {PROBE_IMAGE:?}\ncommand = {command}\nmemory = \"{}k\"\npids = {PIDS}", MEMORY >> 10);
    let server = resolve::own("canary", &entry)
        .map_err(|faults| Fault::new(Class::Bug, format!("the canary cannot be configured: {faults}")))?;
    let compartment = Compartment::plan(&server, &image, owner, Lease::from_now(Terms::default().work))?;
    let confined = start(engine, compartment, server.start_timeout).await.map_err(of_another_version)?;
    let controls = confined.evidence.controls.len();
    let (mut input, mut output) = (confined.link.input, confined.link.output);
    let mut report = Vec::new();
    let mut tail = Tail::default();
    let heard = tokio::time::timeout(WITHIN, async {
        // It begins with the first byte: by now its compartment is proven. Should it be gone, its output says so.
        let _ = input.write_all(b"\n").await;
        let _ = input.flush().await;
        while let Some(Ok(piece)) = output.next().await {
            match piece {
                Output::Stdout(bytes) => report.extend_from_slice(&bytes),
                Output::Stderr(bytes) => tail.push(&bytes),
            }
            if report.len() > REPORT {
                break;
            }
        }
    })
    .await;
    drop(input);
    let ending = confined.link.process.end(if heard.is_ok() { GRACE } else { Duration::ZERO }).await;
    let attempts = read(&report).map_err(|why| {
        let words = tail.text().map(|text| format!("; last lines of its stderr: {text}")).unwrap_or_default();
        of_another_version(Fault::new(Class::Crashed, format!("the canary {why}: {ending}{words}")))
    })?;
    Ok(Tried { attempts, controls })
}

/// An image without a canary is older than this program.
fn of_another_version(fault: Fault) -> Fault {
    if !fault.inward.contains(&format!("cannot run {PROGRAM:?}")) {
        return fault;
    }
    let text = format!("the image {PROBE_IMAGE:?} is of another version than this program");
    Fault::new(Class::Isolation, text.clone()).with_inward(format!("{text}: {}", fault.inward))
}

/// Every attempt of a report that is whole, or what is wrong with it.
pub fn read(report: &[u8]) -> Result<Vec<Attempt>, String> {
    let text = std::str::from_utf8(report).map_err(|_| "did not write text".to_owned())?;
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let total = lines.pop().and_then(|line| serde_json::from_str::<Total>(line).ok());
    let total = total.ok_or_else(|| "did not come to its end".to_owned())?;
    if total.bulkhead_canary != VERSION {
        return Err(format!(
            "writes version {} of its report, not {VERSION}: run scripts/setup",
            total.bulkhead_canary
        ));
    }
    let attempts = lines.into_iter().map(serde_json::from_str).collect::<Result<Vec<Attempt>, _>>();
    let attempts = attempts.map_err(|error| format!("wrote a line that is no attempt: {error}"))?;
    if attempts.is_empty() || attempts.len() != total.attempts {
        return Err(format!("tells of {} attempts and counted {}", attempts.len(), total.attempts));
    }
    Ok(attempts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: &str = r#"{"name":"mount","rule":"capabilities","broke":false,"tried":true,"how":"EPERM"}"#;
    const BROKE: &str = r#"{"name":"raw","rule":"capabilities","broke":true,"tried":true,"how":"a socket"}"#;
    const UNCLEAR: &str = r#"{"name":"hang","rule":"network","broke":false,"tried":false,"how":"signal 14"}"#;

    fn report(lines: &[&str], count: usize) -> Vec<u8> {
        format!("{}\n{{\"bulkhead_canary\":1,\"attempts\":{count}}}\n", lines.join("\n")).into_bytes()
    }

    #[test]
    fn a_report_with_a_broken_rule_reads_as_broken() {
        let attempts = read(&report(&[HELD, BROKE, UNCLEAR, HELD], 4)).unwrap();
        let tried = Tried { attempts, controls: 27 };
        let named: Vec<_> = tried.not_held().map(|attempt| attempt.name.as_str()).collect();
        assert_eq!(named, ["raw", "hang"], "what nobody knows counts as broken");
        let held = Tried { attempts: read(&report(&[HELD, HELD], 2)).unwrap(), controls: 27 };
        assert_eq!(held.not_held().count(), 0);
    }

    #[test]
    fn a_report_that_is_not_whole_is_none() {
        let cut = report(&[HELD, HELD], 2);
        for (wrong, why) in [
            (&cut[..cut.len() - 30], "did not come to its end"),
            (&cut[..80], "did not come to its end"),
            (b"", "did not come to its end"),
            (b"\xff", "did not write text"),
            (&report(&[HELD], 2), "tells of 1 attempts and counted 2"),
            (&report(&[], 0), "tells of 0 attempts"),
            (&report(&["{}"], 1), "no attempt"),
            (br#"{"bulkhead_canary":2,"attempts":0}"#, "version 2"),
        ] {
            let said = read(wrong).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn an_image_without_a_canary_is_of_another_version() {
        let fault = Fault::new(Class::Crashed, "it ended: bulkhead probe: cannot run \"/canary\": No such file");
        assert_eq!(of_another_version(fault).class, Class::Isolation);
        let other = Fault::new(Class::Timeout, "it was not started");
        assert_eq!(of_another_version(other.clone()), other);
    }
}
