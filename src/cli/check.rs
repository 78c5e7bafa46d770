//! `bulkhead check`: configuration, engine, images, isolation and audit in plain words; what is wrong and how to mend it.

use std::sync::Arc;

use comfy_table::{Cell, Color};
use serde::Serialize;

use crate::app::{Options, configuration, pins, shown};
use crate::audit::{Audit, query};
use crate::compartment::canary::Attempt;
use crate::compartment::{self, Engine, Owner};
use crate::config::Sync;
use crate::config::env::{self, Environment, engine_candidates};
use crate::error::{Exit, Fault};
use crate::wire::text::visible;

use super::print;

mod engine;
mod isolation;
mod loopback;
mod running;
mod servers;

/// What `bulkhead check` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exits with the code of the gravest thing that is wrong: 6 (engine or isolation) before 7 \
                        (audit), 2 (configuration) and 5 (a server).")]
pub struct Arguments {
    /// Print the findings as JSON, with every attempt to break out
    #[arg(long)]
    json: bool,
}

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Fine,
    /// Nothing is wrong, and yet one should know.
    Note,
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    fine: bool,
    grade: Grade,
    says: String,
    /// What to do, where there is something to do.
    mend: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Finding {
    fn fine(what: impl Into<String>, says: impl Into<String>) -> Self {
        let (what, says) = (what.into(), says.into());
        Finding { what, fine: true, grade: Grade::Fine, says, mend: None, exit: Exit::Fine }
    }

    fn note(what: impl Into<String>, says: impl Into<String>, mend: Option<String>) -> Self {
        Finding { grade: Grade::Note, mend, ..Finding::fine(what, says) }
    }

    fn wrong(what: impl Into<String>, says: impl Into<String>, mend: impl Into<String>, exit: Exit) -> Self {
        Finding { fine: false, grade: Grade::Wrong, mend: Some(mend.into()), exit, ..Finding::fine(what, says) }
    }
}

/// Looks at everything, prints what was found, and exits with the code of the gravest thing that is wrong.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let mut findings = Vec::new();
    let config = match configuration(&options, env) {
        Ok(config) => {
            let says = format!("{}, {}", shown(&config.path), counted(config.servers.len(), "server"));
            findings.push(Finding::fine("configuration", says));
            Some(config)
        }
        Err(fault) => {
            findings.push(Finding::wrong("configuration", fault.inward, "correct the places named", Exit::Usage));
            None
        }
    };
    let state = env::state_dir(options.state.as_deref(), env);
    let candidates = engine_candidates(env);
    let addresses = candidates.clone().unwrap_or_default();
    let engine = Engine::new(candidates);
    let answers = engine::look(&engine, &mut findings).await;
    let mut attempts = Vec::new();
    if answers {
        servers::images(&engine, config.as_ref(), &mut findings).await;
        attempts = isolation::look(&engine, &addresses, &mut findings).await;
    } else {
        findings.push(isolation::untried());
    }
    if let Some(config) = &config {
        match pins(&options, env, config) {
            Ok(pins) => servers::look(&engine, answers, config, &pins, &mut findings).await,
            Err(fault) => findings.push(Finding::wrong("pins", fault.inward, "move the file away", Exit::Usage)),
        }
        findings.push(look_at_audit(&state.join(&config.audit.path)));
    }
    if let Some(config) = &config {
        findings.extend(running::look(&state, config).await);
    }
    if answers {
        look_for_leftovers(&engine, &mut findings).await;
        findings.push(match super::reap::images::summary(&options, env, &engine).await {
            Ok(says) => Finding::fine("baked images", says),
            Err(fault) => Finding::note("baked images", fault.inward, None),
        });
    }
    show(&findings, &attempts, arguments.json, print::colours(env));
    Ok(gravest(&findings))
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A hole in what confines comes before everything else: whatever else is wrong keeps servers from running, and this
/// does not.
fn gravest(findings: &[Finding]) -> Exit {
    let order = [Exit::Isolation, Exit::Audit, Exit::Usage];
    let mut wrong = findings.iter().filter(|finding| !finding.fine).map(|finding| finding.exit);
    let grave = order.into_iter().find(|exit| wrong.clone().any(|found| found == *exit));
    grave.or_else(|| wrong.next()).unwrap_or(Exit::Fine)
}

fn look_at_audit(path: &std::path::Path) -> Finding {
    if !path.exists() {
        return Finding::fine("audit", format!("{} does not exist yet", shown(path)));
    }
    // A file that reads well may still be one that nothing is written to.
    if let Err(fault) = Audit::open(path, Sync::Batch, "check".to_owned(), Arc::default()) {
        let mend = "mend what is named: until then every call is refused";
        return Finding::wrong("audit", fault.inward, mend, Exit::Audit);
    }
    match query::verify(path) {
        Ok(found) => match found.first_bad_line {
            None => Finding::fine("audit", format!("{}, {} records, the chain is whole", shown(path), found.records)),
            Some((line, why)) => {
                let says = format!("{}:{line}: {why}", shown(path));
                Finding::wrong("audit", says, "keep the file as evidence and set audit.path to a new one", Exit::Audit)
            }
        },
        Err(fault) => Finding::wrong("audit", fault.inward, "make the file readable for its owner", Exit::Audit),
    }
}

/// Leftovers that are named each.
const LEFT: usize = 5;

async fn look_for_leftovers(engine: &Engine, findings: &mut Vec<Finding>) {
    let me = Owner::this_process("check");
    findings.push(match compartment::leftovers(engine, &me).await {
        Ok(found) if found.is_empty() => Finding::fine("leftovers", "none"),
        Ok(found) => {
            let mut says = format!("{} of gateways that are gone:", compartment::reap::counted(&found));
            says.extend(found.iter().take(LEFT).map(|item| format!("\n{item}")));
            if found.len() > LEFT {
                says.push_str(&format!("\nand {} more", found.len() - LEFT));
            }
            Finding::wrong("leftovers", says, "run: bulkhead reap", Exit::Isolation)
        }
        Err(fault) => Finding::wrong("leftovers", fault.inward, engine::RESTART, Exit::Isolation),
    });
}

fn show(findings: &[Finding], attempts: &[Attempt], json: bool, colours: bool) {
    if json {
        print::line(&serde_json::json!({ "findings": findings, "attempts": attempts }).to_string());
        return;
    }
    let mut table = print::table(&["", "LOOKED AT", "FOUND"]);
    for finding in findings {
        let (mark, colour) = match finding.grade {
            Grade::Fine => ("ok", Color::Green),
            Grade::Note => ("note", Color::Yellow),
            Grade::Wrong => ("WRONG", Color::Red),
        };
        let mark = if colours { Cell::new(mark).fg(colour) } else { Cell::new(mark) };
        let mut says: Vec<String> = finding.says.lines().map(|line| visible(line, 2000)).collect();
        says.extend(finding.mend.iter().map(|mend| format!("-> {mend}")));
        table.add_row([mark, Cell::new(&finding.what), Cell::new(says.join("\n"))]);
    }
    print::line(&table.trim_fmt());
    let wrong = findings.iter().filter(|finding| !finding.fine).count();
    let end = if wrong == 0 { "all is well".to_owned() } else { format!("{} wrong", counted(wrong, "thing")) };
    print::line(&format!("\n{end}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_decides_and_not_the_first() {
        let wrong = |exit| Finding::wrong("x", "x", "x", exit);
        let of = |all: &[Exit]| gravest(&all.iter().map(|exit| wrong(*exit)).collect::<Vec<_>>());
        assert_eq!(of(&[]), Exit::Fine);
        assert_eq!(of(&[Exit::Unavailable]), Exit::Unavailable);
        assert_eq!(of(&[Exit::Unavailable, Exit::Usage, Exit::Audit, Exit::Isolation]), Exit::Isolation);
        assert_eq!(of(&[Exit::Usage, Exit::Audit]), Exit::Audit);
        assert_eq!(of(&[Exit::Unavailable, Exit::Usage]), Exit::Usage);
        assert_eq!(gravest(&[Finding::fine("x", "x"), Finding::note("x", "x", None)]), Exit::Fine);
    }
}
