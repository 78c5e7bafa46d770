//! Lengths, blanks, parameters and annotations.

use super::Suspicion::{self, Blanks, Contradiction, Greedy, Long};
use super::folded::Folded;
use super::{Warning, cut, letters};
use crate::route::review::node::Node;
use crate::text::exact;

/// Longer texts are not read by whoever approves them, in characters.
const LONGEST: usize = 4_000;
/// So many line ends with nothing between them push the rest out of a window.
const LINES: usize = 8;
/// So many blanks in a line push the rest out of it.
const BLANKS: usize = 60;

/// Names of parameters that ask for what a tool has no use for, without what separates words.
const GREEDY: [&str; 17] = [
    "sidenote",
    "sidenotes",
    "conversation",
    "conversationhistory",
    "chathistory",
    "chatlog",
    "messagehistory",
    "previousmessages",
    "systemprompt",
    "systemmessage",
    "fullcontext",
    "contextwindow",
    "userprompt",
    "originalprompt",
    "modelname",
    "toollist",
    "availabletools",
];

/// What a description of a conversation speaks of.
const TALK: [&str; 8] = ["conversation", "chat", "messages", "prompt", "history", "everything", "thoughts", "user's"];

/// First words of names that change something.
const CHANGING: [&str; 34] = [
    "delete",
    "remove",
    "write",
    "create",
    "update",
    "drop",
    "insert",
    "exec",
    "execute",
    "send",
    "kill",
    "move",
    "rename",
    "edit",
    "set",
    "put",
    "post",
    "patch",
    "upload",
    "install",
    "uninstall",
    "destroy",
    "purge",
    "wipe",
    "clear",
    "truncate",
    "append",
    "add",
    "overwrite",
    "publish",
    "deploy",
    "push",
    "merge",
    "reset",
];
/// Those of them that take something away.
const DESTROYING: [&str; 10] =
    ["delete", "remove", "drop", "kill", "destroy", "purge", "wipe", "truncate", "overwrite", "uninstall"];

pub(super) fn length(text: &str, put: &mut impl FnMut(Suspicion, String, usize)) {
    let characters = text.chars().count();
    if characters > LONGEST {
        put(Long, format!("{characters} characters, more than anybody reads"), 0);
    }
    let (mut lines, mut blanks, mut start) = (0, 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '\n' => (lines, blanks) = (lines + 1, 0),
            c if c.is_whitespace() || c == '\u{2800}' || c == '\u{3164}' => blanks += 1,
            _ => {
                if lines >= LINES || blanks >= BLANKS {
                    let says = "blanks that push what follows out of view".to_owned();
                    // What was pushed away is what matters.
                    return put(Blanks, says, at);
                }
                (lines, blanks, start) = (0, 0, at);
            }
        }
    }
    if lines >= LINES || blanks >= BLANKS {
        put(Blanks, "blanks that fill the view".to_owned(), start);
    }
}

/// Parameters, of tools and prompts, at the first level.
pub(super) fn parameters(place: &str, node: &Node, found: &mut Vec<Warning>) {
    let properties = node.get("inputSchema").and_then(|schema| schema.get("properties"));
    let all: Vec<(&str, &Node)> = match (properties, node.get("arguments")) {
        (Some(Node::Map(members)), _) => members.iter().map(|(key, value)| (key.as_str(), value)).collect(),
        (_, Some(Node::List(all))) => all.iter().filter_map(|one| Some((one.get("name")?.text()?, one))).collect(),
        _ => Vec::new(),
    };
    for (name, _) in all.into_iter().filter(|(name, value)| is_greedy(name, value)) {
        found.push(Warning {
            what: Greedy,
            place: place.to_owned(),
            says: "a parameter that asks for more than the tool's business".to_owned(),
            excerpt: cut(&exact(name), super::NAME),
        });
    }
}

fn is_greedy(name: &str, parameter: &Node) -> bool {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).map(letters::fold).collect();
    // There are contexts of many things; what is meant is the one of the conversation.
    let talk = || match parameter.get("description").and_then(Node::text) {
        Some(text) => Folded::new(text).words().any(|(_, word)| TALK.contains(&word)),
        None => true,
    };
    GREEDY.contains(&plain.as_str()) || (plain == "context" && talk())
}

pub(super) fn annotations(place: &str, name: &str, node: &Node, found: &mut Vec<Warning>) {
    let Some(annotations) = node.get("annotations") else { return };
    let is = |key, value: &str| matches!(annotations.get(key), Some(Node::Plain(word)) if word == value);
    let first = first_word(name);
    let mut put = |says: String| {
        let excerpt = cut(&exact(name), super::NAME);
        found.push(Warning { what: Contradiction, place: place.to_owned(), says, excerpt });
    };
    if is("readOnlyHint", "true") && CHANGING.contains(&first.as_str()) {
        put(format!("says that it only reads (readOnlyHint), and its name begins with \"{first}\""));
    }
    if is("destructiveHint", "false") && DESTROYING.contains(&first.as_str()) {
        put(format!("says that it destroys nothing (destructiveHint), and its name begins with \"{first}\""));
    }
}

/// `delete` of `delete_file`, `deleteFile` and `delete-file`.
fn first_word(name: &str) -> String {
    let end = name.char_indices().skip(1).find(|(_, c)| !c.is_ascii_lowercase()).map_or(name.len(), |(at, _)| at);
    name[..end].chars().map(letters::fold).collect()
}
