//! The first words of a container: the probe's report, and what comes too early beside it. Knows no engine.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};

use crate::downstream::link::Output;
use crate::downstream::tail::Tail;
use crate::error::{Class, Fault};

use super::report::Report;
use super::spec::Compartment;
use super::volume::PROBE_IMAGE;

/// Longest report of the probe.
const REPORT: usize = 1 << 20;
/// Most that is kept of standard error before the report.
const EARLY: usize = 64 << 10;
/// How long the last words of a server that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The probe's report, and what the server wrote before we had read that far.
pub(super) struct Opening {
    pub report: Report,
    early: VecDeque<Output>,
}

impl Opening {
    /// What was read too far, to be put before the rest.
    pub(super) fn early(self) -> impl Stream<Item = io::Result<Output>> + Send + 'static {
        stream::iter(self.early.into_iter().map(Ok))
    }
}

/// What is on standard error before the report, up to a limit: the oldest goes first.
#[derive(Default)]
struct Early {
    pieces: VecDeque<Bytes>,
    size: usize,
}

impl Early {
    fn push(&mut self, bytes: Bytes) {
        self.size += bytes.len();
        self.pieces.push_back(bytes);
        while self.size > EARLY && self.pieces.len() > 1 {
            self.size -= self.pieces.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

/// Reads up to the end of the probe's report.
pub(super) async fn read(
    output: &mut (impl Stream<Item = io::Result<Output>> + Unpin),
    compartment: &Compartment,
) -> Result<Opening, Fault> {
    let (mut line, mut errors, mut tail) = (BytesMut::new(), Early::default(), Tail::default());
    let ended = loop {
        match output.next().await {
            Some(Ok(Output::Stderr(bytes))) => {
                tail.push(&bytes);
                errors.push(bytes);
            }
            Some(Ok(Output::Stdout(bytes))) => {
                line.extend_from_slice(&bytes);
                if line.contains(&b'\n') || line.len() > REPORT {
                    break None;
                }
            }
            Some(Err(error)) => break Some(format!("its output broke off: {error}")),
            None => break Some("it ended before anything could be proven".to_owned()),
        }
    };
    if let Some(why) = ended {
        return Err(crashed(compartment, &why, &tail));
    }
    let end = line.iter().position(|b| *b == b'\n').unwrap_or(line.len());
    let report = parse(&line.split_to(end), compartment)?;
    let rest: Bytes = line.split_off(line.len().min(1)).freeze();
    let mut early: VecDeque<Output> = errors.pieces.into_iter().map(Output::Stderr).collect();
    if !rest.is_empty() {
        early.push_back(Output::Stdout(rest));
    }
    Ok(Opening { report, early })
}

fn parse(line: &[u8], compartment: &Compartment) -> Result<Report, Fault> {
    let refused = |why: String| Fault::new(Class::Isolation, format!("server {}: {why}", compartment.server.name));
    let report: Option<Report> = serde_json::from_slice(line).ok();
    let report = report
        // An older probe takes what it is to try for a part of it.
        .filter(|report| report.bulkhead_probe == 1 && report.nonce.split(',').next() == Some(&compartment.nonce))
        .ok_or_else(|| refused("its first words are not the probe's".to_owned()))?;
    if report.namespaces.is_empty() || compartment.bounds().is_some() && report.attempts.is_none() {
        return Err(refused(format!("the image {PROBE_IMAGE:?} is older than this gateway: run scripts/setup")));
    }
    Ok(report)
}

/// What is to be said of a server that has ended before the engine could be asked about it.
pub(super) async fn gone(
    opening: Opening,
    output: impl Stream<Item = io::Result<Output>> + Send,
    compartment: &Compartment,
) -> Fault {
    let mut tail = Tail::default();
    let rest = opening.early().chain(output).take_until(tokio::time::sleep(LAST_WORDS));
    let mut rest = std::pin::pin!(rest);
    while let Some(Ok(piece)) = rest.next().await {
        if let Output::Stderr(bytes) = piece {
            tail.push(&bytes);
        }
    }
    crashed(compartment, "it ended before it could be proven", &tail)
}

fn crashed(compartment: &Compartment, why: &str, tail: &Tail) -> Fault {
    let words = tail.text().map(|t| format!("; last lines of its stderr: {t}")).unwrap_or_default();
    Fault::new(Class::Crashed, format!("server {}: {why}{words}", compartment.server.name))
}

#[cfg(test)]
mod tests {
    use crate::compartment::testing::{NONCE, planned, server};

    use super::*;

    /// A report with another nonce, and no more than that in it.
    fn line(nonce: &str) -> String {
        format!(
            r#"{{"bulkhead_probe":1,"nonce":"{nonce}","cgroup_files":{{}},"env":[],"namespaces":{{"pid":null}}}}{}"#,
            "\n"
        )
    }

    async fn opened(pieces: Vec<Output>) -> Result<(Opening, Vec<Output>), Fault> {
        let compartment = planned(&server("image = \"notes\""));
        let mut output = stream::iter(pieces.into_iter().map(Ok));
        let opening = read(&mut output, &compartment).await?;
        Ok((opening, output.map(io::Result::unwrap).collect().await))
    }

    fn out(text: &str) -> Output {
        Output::Stdout(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn err(text: &str) -> Output {
        Output::Stderr(Bytes::copy_from_slice(text.as_bytes()))
    }

    async fn passed_on(pieces: Vec<Output>) -> Vec<Output> {
        let (opening, rest) = opened(pieces).await.unwrap_or_else(|fault| panic!("{fault}"));
        let mut all: Vec<Output> = opening.early().map(io::Result::unwrap).collect().await;
        all.extend(rest);
        all
    }

    #[tokio::test]
    async fn the_report_is_kept_and_all_else_is_passed_on() {
        let report = line(NONCE);
        let (head, tail) = report.split_at(40);
        let pieces = vec![err("warning"), out(head), out(&format!("{tail}first ")), out("line\n"), err("late")];
        assert_eq!(passed_on(pieces).await, [err("warning"), out("first "), out("line\n"), err("late")]);
        assert_eq!(passed_on(vec![out(&report)]).await, []);
    }

    #[tokio::test]
    async fn a_flood_of_errors_before_the_report_is_bounded_and_the_newest_stays() {
        let mut pieces: Vec<Output> = (0..100).map(|n| err(&n.to_string().repeat(10_000))).collect();
        pieces.push(out(&line(NONCE)));
        let kept = passed_on(pieces).await;
        assert!(kept.len() < 5 && kept.last() == Some(&err(&"99".repeat(10_000))), "{}", kept.len());
    }

    #[tokio::test]
    async fn words_that_are_not_the_probes_of_this_start_are_refused() {
        let long = "x".repeat(REPORT + 1);
        for words in [line("guessed").as_str(), "{}\n", "\n", "hello\n", &long, &line(NONCE).replace(":1", ":9")] {
            let fault = opened(vec![out(words)]).await.err().unwrap();
            assert_eq!(fault.class, Class::Isolation);
            assert_eq!(fault.outward, "server My Notes: its first words are not the probe's");
        }
        let old = line(NONCE).replace(r#""namespaces":{"pid":null}"#, r#""namespaces":{}"#);
        let fault = opened(vec![out(&old)]).await.err().unwrap();
        assert!(fault.outward.ends_with("is older than this gateway: run scripts/setup"), "{fault}");
    }

    #[tokio::test]
    async fn an_end_before_the_report_is_told_with_the_last_words() {
        let fault = opened(vec![err("no such file\n"), out("{\"bulk")]).await.err().unwrap();
        assert_eq!(fault.class, Class::Crashed);
        let told = "server My Notes: it ended before anything could be proven; last lines of its stderr: no such file";
        assert_eq!(fault.outward, told);
    }
}
