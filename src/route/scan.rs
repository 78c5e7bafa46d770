//! What in a server's definitions should make somebody look twice before approving it: text that is not seen, text that
//! gives orders to the model, names that pass for another's. Knows no review, and keeps nothing from being approved.
//!
//! This is advice, not a control. Whoever writes a definition can word it so that nothing here fires, and a server can
//! mislead without a word of it; what a server may do is what its compartment, the policy and the lock let it.
//! The time it takes grows with the size of the definitions and no faster.

use crate::route::lock::{Definition, Kind, LockedServer};
use crate::route::review::node::{Node, element, member, names as own_names};
use crate::text::exact;

mod folded;
mod hidden;
pub(in crate::route) mod letters;
mod marks;
mod names;
mod shape;
mod wording;

#[cfg(test)]
mod tests;

use folded::Folded;
use names::Foreign;

/// Longest excerpt, in characters.
const EXCERPT: usize = 96;
/// Characters of an excerpt before what it is about.
const BEFORE: usize = 24;
/// Longest name in the place of a warning, in characters.
const NAME: usize = 60;

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What kind of thing it is.
    pub what: Suspicion,
    /// Where it is: `tool read_file, inputSchema.properties.path.description`.
    pub place: String,
    /// What is wrong with it, in a few words.
    pub says: String,
    /// The text in question, in the form of [`crate::text::exact`] on one line; empty where there is none.
    pub excerpt: String,
}

/// Kinds of things to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suspicion {
    /// Characters that are not seen, or that change the direction of others.
    Hidden,
    /// Letters that pass for others.
    Lookalike,
    /// An order to the model to leave its instructions.
    Override,
    /// Something is to be kept from the user.
    Secrecy,
    /// The tool wants to be called before or instead of others.
    Precedence,
    /// The text speaks to the model about what it is or was told.
    ToModel,
    /// Something is to be sent or handed over that is not the tool's business.
    Exfiltration,
    /// A place where secrets lie.
    SecretPlace,
    /// Markup that plays a part: a system's message, a comment, a picture that carries data.
    Markup,
    /// A long run of encoded data.
    Blob,
    /// A parameter that asks for what the tool has no use for.
    Greedy,
    /// A name that another server has, or nearly.
    Shadow,
    /// A text about the tools of another server.
    Meddling,
    /// A text too long to be read.
    Long,
    /// Blanks that push text out of view.
    Blanks,
    /// Annotations that the name of the tool contradicts.
    Contradiction,
}

/// A tool of another server.
#[derive(Clone, Copy, Debug)]
pub struct Other<'a> {
    /// The server's name in the configuration.
    pub server: &'a str,
    /// The tool's own name.
    pub tool: &'a str,
    /// The name under which clients see it.
    pub exposed: &'a str,
}

/// Looks at all that a server says, in its order; `others` are the tools of the other servers.
pub fn scan(server: &str, now: &LockedServer, others: &[Other<'_>]) -> Vec<Warning> {
    let foreign = Foreign::new(server, now, others);
    let mut found = Vec::new();
    if let Some(instructions) = &now.instructions {
        text("instructions", instructions, &foreign, &mut found);
    }
    foreign.same(now, &mut found);
    for kind in Kind::ALL {
        for one in now.definitions(kind) {
            definition(kind, one, &foreign, &mut found);
        }
    }
    found
}

fn definition(kind: Kind, one: &Definition, foreign: &Foreign, found: &mut Vec<Warning>) {
    let node = Node::parse(one.definition.get());
    let place = format!("{} {}", kind.word(), cut(&exact(&one.name), NAME));
    if kind == Kind::Tool {
        foreign.name(&place, &one.name, found);
        shape::annotations(&place, &one.name, &node, found);
    }
    shape::parameters(&place, &node, found);
    each(&node, "", &mut |path, words| {
        let place = if path.is_empty() { place.clone() } else { format!("{place}, {path}") };
        text(&place, words, foreign, found);
    });
}

/// Every string of a value, keys among them, with where it is.
fn each(node: &Node, path: &str, see: &mut impl FnMut(&str, &str)) {
    match node {
        Node::Text(text) => see(path, text),
        Node::Plain(json) => see(path, json),
        Node::List(all) => {
            let names = own_names(all);
            for (n, value) in all.iter().enumerate() {
                each(value, &element(path, names.as_ref().map(|names| names[n]), n), see);
            }
        }
        Node::Map(members) => {
            for (key, value) in members {
                let path = member(path, key, 1);
                see(&format!("{path} (name)"), key);
                each(value, &path, see);
            }
        }
    }
}

fn text(place: &str, text: &str, foreign: &Foreign, found: &mut Vec<Warning>) {
    // Plain short words are most of what there is.
    if text.len() < 4 && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return;
    }
    let before = found.len();
    let mut put = |what, says: String, at: usize| {
        // One of a kind says enough of one text.
        if found[before..].iter().all(|w: &Warning| w.what != what || w.says != says) {
            found.push(Warning { what, place: place.to_owned(), says, excerpt: excerpt(text, at) });
        }
    };
    hidden::look(text, &mut put);
    shape::length(text, &mut put);
    let folded = Folded::new(text);
    wording::look(&folded, &mut put);
    marks::look(&folded, text, &mut put);
    foreign.mentions(&folded, &mut put);
}

/// The text around a byte of it, on one line, bounded.
fn excerpt(text: &str, at: usize) -> String {
    let start = text[..at].char_indices().rev().nth(BEFORE - 1).map_or(0, |(start, _)| start);
    let part: String = text[start..].chars().take(EXCERPT).map(|c| if c == '\n' { ' ' } else { c }).collect();
    let lead = if start > 0 { "…" } else { "" };
    let (cut, ends) = (cut(&exact(&part), EXCERPT), start + part.len() == text.len());
    format!("{lead}{cut}{}", if ends || cut.ends_with('…') { "" } else { "…" })
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
