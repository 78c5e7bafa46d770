//! Orders in the place of a description, found as words that follow each other closely.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::LazyLock;

use super::Suspicion::{self, Exfiltration, Override, Precedence, Secrecy, ToModel};
use super::folded::Folded;

/// A rule: one of the words of each step, each step at most `gap` words after the one before.
struct Rule {
    what: Suspicion,
    says: &'static str,
    gap: usize,
    steps: &'static [&'static str],
}

const fn rule(what: Suspicion, says: &'static str, gap: usize, steps: &'static [&'static str]) -> Rule {
    Rule { what, says, gap, steps }
}

const LEAVE: &str = "tells the model to leave its instructions";
const KEEP: &str = "wants something kept from the user";
const FIRST: &str = "wants to be called before or instead of others";
const ADDRESS: &str = "speaks to the model about what it is or was told";
const SEND: &str = "wants something sent or handed over";
const HURRY: &str = "is urgent and secret at once";

const RULES: &[Rule] = &[
    rule(
        Override,
        LEAVE,
        4,
        &[
            "ignore disregard forget override overrule bypass discard supersede supersedes overrides",
            "previous prior above earlier preceding other your system all any existing the",
            "instruction instructions prompt prompts directive directives guardrails guidelines",
        ],
    ),
    rule(Override, LEAVE, 2, &["ignore disregard forget", "everything all anything what", "above before said told"]),
    rule(
        Secrecy,
        KEEP,
        3,
        &[
            "not don't never dont without",
            "tell telling mention mentioning inform informing reveal revealing disclose disclosing notify notifying alert show showing ask asking",
            "user user's users human them anyone anybody person",
        ],
    ),
    rule(
        Secrecy,
        KEEP,
        3,
        &["never not don't dont", "mention reveal disclose", "this that it tool step steps instruction instructions"],
    ),
    rule(Secrecy, KEEP, 4, &["hide conceal hidden secret keep", "from", "user users human"]),
    rule(Secrecy, KEEP, 4, &["without", "user user's users", "knowing noticing knowledge awareness consent"]),
    rule(
        Secrecy,
        HURRY,
        12,
        &["urgent urgently immediately critical", "secretly silently quietly covertly confidential confidentially"],
    ),
    rule(
        Secrecy,
        HURRY,
        12,
        &["secretly silently quietly covertly confidential confidentially", "urgent urgently immediately critical"],
    ),
    rule(
        Precedence,
        FIRST,
        2,
        &[
            "before",
            "using calling invoking running executing use call",
            "any all other another every",
            "tool tools function functions",
        ],
    ),
    rule(
        Precedence,
        FIRST,
        3,
        &["before prior", "any every each all", "tool other", "call calls use invocation tool tools"],
    ),
    rule(Precedence, FIRST, 2, &["always must", "call use run invoke execute", "this", "first before"]),
    rule(Precedence, FIRST, 3, &["instead", "of", "any all other every", "tool tools"]),
    rule(Precedence, FIRST, 3, &["must always", "be", "called used run invoked", "first"]),
    rule(Precedence, FIRST, 2, &["never not don't", "use call", "any", "other", "tool tools"]),
    rule(ToModel, ADDRESS, 0, &["as", "an a", "ai llm"]),
    rule(ToModel, ADDRESS, 1, &["as", "a an", "language", "model"]),
    rule(ToModel, ADDRESS, 0, &["you", "are", "now no", "a an in the longer"]),
    rule(
        ToModel,
        ADDRESS,
        1,
        &["your", "system hidden initial original previous", "prompt instruction instructions message"],
    ),
    rule(
        ToModel,
        ADDRESS,
        0,
        &["system", "override message prompt instruction instructions", "begin start end for you"],
    ),
    rule(ToModel, ADDRESS, 0, &["new updated", "system", "instructions instruction prompt"]),
    rule(ToModel, ADDRESS, 1, &["developer jailbreak god dan", "mode", "enabled on activated"]),
    rule(
        Exfiltration,
        SEND,
        6,
        &[
            "send upload forward transmit exfiltrate leak email pass include append attach copy",
            "conversation chat",
            "history transcript log messages content contents so",
        ],
    ),
    rule(
        Exfiltration,
        SEND,
        5,
        &[
            "send upload forward transmit exfiltrate leak email include pass append repeat reveal output",
            "system",
            "prompt instructions",
        ],
    ),
    rule(
        Exfiltration,
        SEND,
        6,
        &[
            "send upload forward transmit exfiltrate leak email",
            "credentials password passwords secrets keys environment cookies wallet",
        ],
    ),
    rule(
        Exfiltration,
        SEND,
        5,
        &[
            "read cat open load fetch access collect",
            "contents content file files",
            "credentials secrets password passwords ssh private",
        ],
    ),
    rule(
        Exfiltration,
        SEND,
        4,
        &[
            "bcc forward redirect reroute cc change",
            "all every each any recipient",
            "email emails messages mail payments address",
        ],
    ),
];

/// Rules by the words that begin them, and the words of each step.
struct Book {
    begin: HashMap<&'static str, Vec<usize>>,
    steps: Vec<Vec<HashSet<&'static str>>>,
}

static BOOK: LazyLock<Book> = LazyLock::new(|| {
    let words = |step: &&'static str| step.split(' ').collect::<HashSet<_>>();
    let steps: Vec<Vec<_>> = RULES.iter().map(|rule| rule.steps.iter().map(words).collect()).collect();
    let mut begin: HashMap<_, Vec<usize>> = HashMap::new();
    for (n, rule) in steps.iter().enumerate() {
        rule[0].iter().for_each(|word| begin.entry(*word).or_default().push(n));
    }
    Book { begin, steps }
});

/// Words that the longest rule can reach over.
static REACH: LazyLock<usize> =
    LazyLock::new(|| RULES.iter().map(|rule| (rule.steps.len() - 1) * (rule.gap + 1) + 1).max().unwrap_or(1));

pub(super) fn look(text: &Folded<'_>, put: &mut impl FnMut(Suspicion, String, usize)) {
    let mut window: VecDeque<(usize, &str)> = VecDeque::with_capacity(*REACH);
    let mut fired = [false; RULES.len()];
    let mut words = text.words();
    loop {
        while window.len() < *REACH
            && let Some(word) = words.next()
        {
            window.push_back(word);
        }
        let Some((at, first)) = window.front().copied() else { return };
        for rule in BOOK.begin.get(first).into_iter().flatten().copied() {
            if !fired[rule] && follows(&window, 1, &BOOK.steps[rule][1..], RULES[rule].gap) {
                fired[rule] = true;
                put(RULES[rule].what, RULES[rule].says.to_owned(), text.place(at));
            }
        }
        window.pop_front();
    }
}

/// Whether the steps that are left are found, the next one within `gap` words from `from` on.
fn follows(window: &VecDeque<(usize, &str)>, from: usize, steps: &[HashSet<&'static str>], gap: usize) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    let near = window.iter().enumerate().skip(from).take(gap + 1);
    near.filter(|(_, (_, word))| step.contains(word)).any(|(n, _)| follows(window, n + 1, rest, gap))
}
