//! Who may see and call which tool: one decision for lists and calls. Knows nothing of limits.

use sha2::{Digest as _, Sha256};

use crate::config::Server;
use crate::name::{Principal, Role};

/// What the policy says about one principal and one tool, and by which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the tool is listed and may be called.
    pub allow: bool,
    /// The rules that decided, for the audit: those that permit, or those that forbid. Never empty.
    pub policy: Vec<&'static str>,
}

/// What one rule has to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Silent,
    Permit,
    Forbid,
}

type Rule = fn(&Principal, &Server, &str) -> Effect;

/// Every rule under the name that the audit shows.
const RULES: [(&str, Rule); 5] = [
    ("disabled", disabled),
    ("min-role", min_role),
    ("tools-deny", tools_deny),
    ("tools-allow", tools_allow),
    ("tool-min-role", tool_min_role),
];

/// Whether `principal` may list and call `tool` of `server`, by the server's own name for it.
///
/// Denied unless a rule permits; one rule that forbids outweighs any that permit.
pub fn decide(principal: &Principal, server: &Server, tool: &str) -> Decision {
    let said: Vec<_> = RULES.iter().map(|(id, rule)| (*id, rule(principal, server, tool))).collect();
    let with = |wanted| said.iter().filter(|(_, effect)| *effect == wanted).map(|(id, _)| *id).collect::<Vec<_>>();
    let (permits, forbids) = (with(Effect::Permit), with(Effect::Forbid));
    match (forbids.is_empty(), permits.is_empty()) {
        (true, false) => Decision { allow: true, policy: permits },
        (true, true) => Decision { allow: false, policy: vec!["default-deny"] },
        (false, _) => Decision { allow: false, policy: forbids },
    }
}

/// Whether `principal` may know that `server` is there, where nobody can say yet which tools it has: what it may not know
/// of is not started for it, not waited for, and not named to it.
pub fn may_know(principal: &Principal, server: &Server) -> Decision {
    let allow = min_role(principal, server, "") == Effect::Permit;
    Decision { allow, policy: vec!["min-role"] }
}

/// A digest over all that the rules decide by, lower-case hex: as long as it is the same, so is every decision.
pub fn digest(servers: &[Server]) -> String {
    let rules = RULES.iter().map(|(id, _)| (*id).to_owned());
    let mut decided: Vec<String> = servers
        .iter()
        .map(|s| format!("{:?} {} {:?} {:?}", s.name, s.disabled.is_some(), s.min_role, s.tools))
        .collect();
    // Which of them stands first in the file decides nothing.
    decided.sort();
    let mut sum = Sha256::new();
    for text in rules.chain(decided) {
        sum.update((text.len() as u64).to_be_bytes());
        sum.update(text.as_bytes());
    }
    crate::hex(&sum.finalize())
}

fn disabled(_: &Principal, server: &Server, _: &str) -> Effect {
    if server.disabled.is_some() { Effect::Forbid } else { Effect::Silent }
}

fn min_role(principal: &Principal, server: &Server, _: &str) -> Effect {
    at_least(principal.role, server.min_role)
}

fn tools_deny(_: &Principal, server: &Server, tool: &str) -> Effect {
    if any_matches(&server.tools.deny, tool) { Effect::Forbid } else { Effect::Silent }
}

fn tools_allow(_: &Principal, server: &Server, tool: &str) -> Effect {
    match &server.tools.allow {
        all if all.is_empty() => Effect::Silent,
        some if any_matches(some, tool) => Effect::Permit,
        _ => Effect::Forbid,
    }
}

fn tool_min_role(principal: &Principal, server: &Server, tool: &str) -> Effect {
    let matching = server.tools.min_role.iter().filter(|(pattern, _)| matches(pattern, tool));
    let strictest = matching.map(|(_, role)| *role).max();
    strictest.map_or(Effect::Silent, |least| at_least(principal.role, least))
}

fn at_least(role: Role, least: Role) -> Effect {
    if role >= least { Effect::Permit } else { Effect::Forbid }
}

fn any_matches(patterns: &[String], tool: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, tool))
}

/// Whether `name` fits `pattern`, in which `*` stands for any run of characters, also none; all else stands for itself.
///
/// Bytes will do: both are UTF-8, so a literal part can only match whole characters. Only the last star is ever
/// reconsidered, so that a server cannot make this slow with its names.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests;
