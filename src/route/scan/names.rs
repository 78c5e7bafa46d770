//! Names that pass for another server's, and texts about another server's tools.

use std::collections::{BTreeMap, HashMap, HashSet};

use aho_corasick::{AhoCorasick, MatchKind};

use super::Suspicion::{self, Lookalike, Meddling, Shadow};
use super::folded::Folded;
use super::{LockedServer, Other, Warning, cut, letters};
use crate::text::exact;

/// Shorter names are words that anybody may use.
const SHORTEST: usize = 6;
/// What makes the name of a server out of a word before it.
const NOUNS: [&str; 5] = ["mcp", "server", "server's", "tool", "tools"];

/// What other servers are called, and their tools.
pub(super) struct Foreign {
    /// Tools by what their names look like.
    tools: HashMap<String, (String, String)>,
    /// Names in texts, with what each is.
    mentioned: Option<AhoCorasick>,
    meanings: Vec<Meaning>,
}

struct Meaning {
    /// The server it is, or of which it is.
    server: String,
    /// Whether it is a plain word that only counts before a noun.
    needs_noun: bool,
}

impl Foreign {
    pub fn new(server: &str, now: &LockedServer, others: &[Other<'_>]) -> Self {
        let own: HashSet<String> = now.tools.iter().map(|tool| plain(&tool.name)).chain([plain(server)]).collect();
        let others = || others.iter().filter(|other| other.server != server);
        let mut words: HashMap<String, Meaning> = HashMap::new();
        let mut put = |word: &str, server: &str, needs_noun| {
            if !own.contains(&plain(word)) && word.len() > 2 {
                let meaning = Meaning { server: server.to_owned(), needs_noun };
                words.entry(plain(word)).or_insert(meaning);
            }
        };
        for other in others() {
            put(other.server, other.server, !is_distinct(other.server));
            if is_distinct(other.tool) {
                put(other.tool, other.server, false);
            }
            if is_distinct(other.exposed) {
                put(other.exposed, other.server, false);
            }
        }
        let (words, meanings): (Vec<String>, Vec<Meaning>) = words.into_iter().unzip();
        Foreign {
            tools: others().map(|o| (skeleton(o.tool), (o.server.to_owned(), o.tool.to_owned()))).collect(),
            mentioned: AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(words).ok(),
            meanings,
        }
    }

    /// Tools that another server has under the same names: told once for each server, since it is common.
    pub fn same(&self, now: &LockedServer, found: &mut Vec<Warning>) {
        let mut same: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for tool in &now.tools {
            if let Some((server, _)) = self.tools.get(&skeleton(&tool.name)).filter(|(_, other)| *other == tool.name) {
                same.entry(server).or_default().push(cut(&exact(&tool.name), super::NAME));
            }
        }
        found.extend(same.into_iter().map(|(server, names)| Warning {
            what: Shadow,
            place: if names.len() == 1 { "1 tool".to_owned() } else { format!("{} tools", names.len()) },
            says: format!("server {} has tools of the same names", exact(server)),
            excerpt: cut(&names.join(", "), super::EXCERPT),
        }));
    }

    /// Looks at the name of a tool.
    pub fn name(&self, place: &str, name: &str, found: &mut Vec<Warning>) {
        let mut put = |what, says| {
            found.push(Warning { what, place: place.to_owned(), says, excerpt: cut(&exact(name), super::NAME) });
        };
        match self.tools.get(&skeleton(name)) {
            Some((_, tool)) if tool == name => {}
            Some((server, tool)) => {
                let tool = cut(&exact(tool), super::NAME);
                put(Shadow, format!("looks like the tool {tool} of server {}", exact(server)));
            }
            None => {}
        }
        if !name.is_ascii() && name.chars().any(letters::is_lookalike) {
            put(Lookalike, "letters that pass for others in a name".to_owned());
        }
    }

    /// Looks for the names of others in a text.
    pub fn mentions(&self, text: &Folded<'_>, put: &mut impl FnMut(Suspicion, String, usize)) {
        // What is a single word is a name or a value of the server's own.
        let Some(all) = self.mentioned.as_ref().filter(|_| text.text.trim().contains(' ')) else { return };
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
        let mut told = HashSet::new();
        for found in all.find_iter(&text.text) {
            let (before, after) = (&text.text[..found.start()], &text.text[found.end()..]);
            let meaning = &self.meanings[found.pattern()];
            let whole = edge(before.chars().next_back()) && edge(after.chars().next());
            let noun =
                || after.split(|c: char| !c.is_alphanumeric() && c != '\'').nth(1).is_some_and(|w| NOUNS.contains(&w));
            if whole && (!meaning.needs_noun || noun()) && told.insert(&meaning.server) {
                put(
                    Meddling,
                    format!("speaks of server {} or a tool of it", exact(&meaning.server)),
                    text.place(found.start()),
                );
            }
        }
    }
}

fn plain(name: &str) -> String {
    Folded::new(name).text
}

/// What a name looks like: case, letters that pass for others, and what separates words count for nothing.
fn skeleton(name: &str) -> String {
    let alike = |c| match c {
        '0' => 'o',
        '1' | '|' => 'l',
        'i' => 'l',
        other => other,
    };
    plain(name).chars().filter(|c| c.is_alphanumeric()).map(alike).collect()
}

/// Whether a name is more than a word of the language.
fn is_distinct(name: &str) -> bool {
    let inner = |c: char| matches!(c, '_' | '-' | '.');
    let camel = name.chars().zip(name.chars().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    name.len() >= SHORTEST && (name.contains(inner) || camel)
}
