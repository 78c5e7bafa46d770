//! Whether what confines servers holds: the canary tries to break out of a compartment like theirs.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use crate::compartment::canary::{self, Attempt};
use crate::compartment::{Engine, Owner};
use crate::error::Exit;

use super::{Finding, counted};

/// What the finding is named.
const WHAT: &str = "isolation";
/// Attempts that are told in full; JSON has all.
const SHOWN: usize = 5;

/// Runs the canary and says what came of it; every attempt, for those who want them all.
pub(super) async fn look(engine: &Engine, addresses: &[String], findings: &mut Vec<Finding>) -> Vec<Attempt> {
    // What must not be reached is there while it is tried: a door that is shut proves nothing where there is no house.
    let house = TcpListener::bind("127.0.0.1:0").ok();
    let door = house.as_ref().and_then(|house| house.local_addr().ok());
    let mut targets: Vec<String> = door.iter().map(|at| format!("tcp=the host's own loopback@{at}")).collect();
    let remote = addresses.iter().filter_map(|address| address.strip_prefix("tcp://"));
    targets.extend(remote.filter(|at| at.parse::<SocketAddr>().is_ok()).map(|at| format!("tcp=the engine@{at}")));
    let local = addresses.iter().filter_map(|address| address.strip_prefix("unix://"));
    let sockets: Vec<String> =
        local.filter(|path| is_plain(path) && Path::new(path).exists()).map(str::to_owned).collect();
    let owner = Owner::this_process("check");
    match canary::try_out(engine, &owner, &sockets, &targets).await {
        Ok(tried) => {
            let broken: Vec<&Attempt> = tried.not_held().collect();
            findings.push(judged(&broken, tried.attempts.len(), tried.controls));
            tried.attempts
        }
        Err(fault) => {
            let mend = if fault.inward.contains("scripts/setup") || fault.inward.contains("another version") {
                "run scripts/setup, which builds that image as this version needs it"
            } else {
                "until this holds nothing runs on this engine; README.md, \"When something is wrong\""
            };
            findings.push(Finding::wrong(WHAT, fault.inward, mend, Exit::Isolation));
            Vec::new()
        }
    }
}

/// Where there is nothing to try it on.
pub(super) fn untried() -> Finding {
    Finding::wrong(WHAT, "not tried, since no engine answers", "first mend the engine", Exit::Isolation)
}

/// Whether it means itself in a configuration.
fn is_plain(text: &str) -> bool {
    !text.contains("${")
}

fn judged(broken: &[&Attempt], attempts: usize, controls: usize) -> Finding {
    let all = format!("{} to break out of a default compartment", counted(attempts, "attempt"));
    if broken.is_empty() {
        let says = format!("{all}, none succeeded; {} proven before", counted(controls, "control"));
        return Finding::fine(WHAT, says);
    }
    let mut says = format!("of {all}, {} did not fail:", broken.len());
    for attempt in broken.iter().take(SHOWN) {
        let Attempt { name, rule, how, .. } = attempt;
        says.push_str(&format!("\n{name} ({rule}): {how}"));
    }
    if broken.len() > SHOWN {
        says.push_str(&format!("\nand {} more, see --json", broken.len() - SHOWN));
    }
    let mend = "run no server that you would not run unconfined; update the engine and its kernel";
    Finding::wrong(WHAT, says, mend, Exit::Isolation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_broken_is_wrong_and_named() {
        let attempt = |name: &str, broke: bool, tried: bool| Attempt {
            name: name.to_owned(),
            rule: "capabilities".to_owned(),
            broke,
            tried,
            how: "a socket".to_owned(),
        };
        let tried = canary::Tried {
            attempts: vec![
                attempt("mount", false, true),
                attempt("open a raw socket", true, true),
                attempt("hang", false, false),
            ],
            controls: 27,
        };
        let finding = judged(&tried.not_held().collect::<Vec<_>>(), 3, 27);
        assert_eq!((finding.fine, finding.exit), (false, Exit::Isolation));
        assert!(finding.says.contains("open a raw socket (capabilities): a socket"), "{}", finding.says);
        assert!(finding.says.contains("hang") && !finding.says.contains("mount"), "{}", finding.says);
        let fine = judged(&[], 3, 27);
        assert!(fine.fine && fine.says.contains("3 attempts") && fine.says.contains("27 controls"), "{}", fine.says);
    }
}
