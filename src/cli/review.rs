//! A review and its warnings as lines for a terminal. Decides nothing, asks nobody and prints nothing.
//!
//! What a server wrote comes to it in the form of [`crate::text::exact`], so a line holds no other control than the
//! colours put there here. Without colours, words that are gone stand in `[-…-]` and new ones in `{+…+}`, and what a
//! server writes cannot look like either.

use crate::route::lock::Kind;
use crate::route::review::{Change, Fact, Item, Member, Members, Review, State, Tree, Weight, pieces};
use crate::route::scan::Warning;

mod lines;
mod text;

#[cfg(test)]
mod tests;

use lines::{Lines, Tone};

/// Digits of a hash that are shown where not everything is.
const DIGITS: usize = 16;

/// How it is to look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns; less than 24 are taken for 24.
    pub width: usize,
    /// Whether there are colours: a terminal, and no `NO_COLOR`, as [`super::print::colours`] says.
    pub colours: bool,
    /// Everything, instead of a part with the number of what is left out.
    pub full: bool,
}

/// What is shown of each kind of thing where not everything is.
struct Bounds {
    items: usize,
    members: usize,
    lines: usize,
    packages: usize,
    warnings: usize,
}

const SOME: Bounds = Bounds { items: 30, members: 12, lines: 12, packages: 10, warnings: 20 };
const ALL: Bounds =
    Bounds { items: usize::MAX, members: usize::MAX, lines: usize::MAX, packages: usize::MAX, warnings: usize::MAX };

/// One server: a line that says it all, then what differs, then what to look at twice. Ends with a line end.
pub fn render(server: &str, review: &Review, warnings: &[Warning], look: &Look) -> String {
    let bounds = if look.full { &ALL } else { &SOME };
    let mut page = Page { lines: Lines::new(look.width, look.colours), bounds };
    page.head(server, review);
    review.facts.iter().for_each(|fact| page.fact(fact, review.state));
    if review.state == State::Changed {
        page.members(2, &review.says);
    } else {
        page.instructions(&review.says);
        page.offer(review);
    }
    page.tree(&review.tree, review.state);
    page.items(&review.items);
    page.warnings(warnings);
    page.lines.finish()
}

struct Page {
    lines: Lines,
    bounds: &'static Bounds,
}

impl Page {
    fn head(&mut self, server: &str, review: &Review) {
        let alarming = review.facts.iter().any(|fact| fact.weight == Weight::Alarm) || !review.tree.replaced.is_empty();
        let tone = match review.state {
            _ if alarming => Tone::Alarm,
            State::Unchanged => Tone::Faint,
            State::New | State::Changed => Tone::Plain,
        };
        self.lines.begin(0);
        self.lines.put(Tone::Strong, &crate::text::exact(server));
        self.lines.put(tone, &format!("  {}", review.summary()));
        self.lines.end();
    }

    /// A line of ours, at an indent.
    fn say(&mut self, indent: usize, tone: Tone, text: &str) {
        self.lines.begin(indent);
        self.lines.put(tone, &one_line(text));
        self.lines.end();
    }

    fn more(&mut self, indent: usize, count: usize, what: &str) {
        if count > 0 {
            self.say(indent, Tone::Faint, &format!("{count} more{what}; --full shows all"));
        }
    }

    fn fact(&mut self, fact: &Fact, state: State) {
        self.lines.begin(2);
        let tone = match fact.weight {
            Weight::Plain => Tone::Plain,
            Weight::Wider => Tone::Warning,
            Weight::Alarm => Tone::Alarm,
        };
        self.lines.put(if fact.weight == Weight::Plain { Tone::Strong } else { tone }, &format!("{}: ", fact.what));
        let none = "-".to_owned();
        let (was, is) = (fact.before.as_ref().unwrap_or(&none), fact.now.as_ref().unwrap_or(&none));
        let (was, is) = if self.bounds.members == usize::MAX { (was.as_str(), is.as_str()) } else { short(was, is) };
        if state == State::New {
            self.lines.put(Tone::Plain, &one_line(is));
        } else {
            self.lines.put(tone, &one_line(&format!("{was} -> {is}")));
        }
        if fact.weight == Weight::Wider {
            self.lines.put(tone, "  (wider)");
        }
        self.lines.end();
        if let Some(note) = fact.note {
            self.say(4, tone, note);
        }
    }

    /// What a new server says of its use.
    fn instructions(&mut self, says: &Members) {
        for member in says.all.iter().filter(|member| member.path == "instructions") {
            self.member(2, member);
        }
    }

    fn offer(&mut self, review: &Review) {
        if review.state == State::New && review.offers.iter().all(|(_, n)| *n == 0) {
            self.say(2, Tone::Faint, "it offers nothing");
        }
    }

    fn tree(&mut self, tree: &Tree, state: State) {
        if tree.is_empty() {
            return;
        }
        if state == State::New {
            return self.say(2, Tone::Plain, &format!("dependencies: {}", tree.added.len()));
        }
        let (added, removed, changed) = (tree.added.len(), tree.removed.len(), tree.changed.len());
        self.say(2, Tone::Strong, &format!("dependencies: {added} added, {removed} removed, {changed} changed"));
        if tree.reordered {
            self.say(4, Tone::Plain, "only their order");
        }
        // What should not happen is shown whatever the bounds are.
        for package in &tree.replaced {
            self.say(4, Tone::Alarm, &format!("! {package}: the version is the same, but something else of it is not"));
        }
        let bumps =
            tree.changed.iter().map(|bump| (Tone::Plain, format!("~ {} {} -> {}", bump.name, bump.before, bump.now)));
        let added = tree.added.iter().map(|package| (Tone::Added, format!("+ {package}")));
        let removed = tree.removed.iter().map(|package| (Tone::Removed, format!("- {package}")));
        let all: Vec<(Tone, String)> = bumps.chain(added).chain(removed).collect();
        for (tone, text) in all.iter().take(self.bounds.packages) {
            self.say(4, *tone, text);
        }
        self.more(4, all.len().saturating_sub(self.bounds.packages), "");
    }

    fn items(&mut self, items: &[Item]) {
        for item in items.iter().take(self.bounds.items) {
            self.item(item);
        }
        self.more(2, items.len().saturating_sub(self.bounds.items), " that differ");
        let told = |path: &str| matches!(path, "name" | "description" | "uriTemplate");
        let says_more = |item: &&Item| match &item.change {
            Change::Added { members, .. } => members.all.iter().any(|member| !told(&member.path)),
            _ => false,
        };
        if self.bounds.members != usize::MAX && items.iter().any(|item| says_more(&item)) {
            self.say(2, Tone::Faint, "of what is new, descriptions and names alone; --full shows all");
        }
    }

    fn item(&mut self, item: &Item) {
        let (mark, tone, how) = match &item.change {
            Change::Added { .. } => ('+', Tone::Added, ""),
            Change::Removed => ('-', Tone::Removed, ""),
            Change::Changed(_) => ('~', Tone::Strong, ""),
            Change::Reordered => ('=', Tone::Plain, ": the same in another order"),
            Change::Respelled => ('=', Tone::Plain, ": the same in other bytes"),
        };
        self.say(2, tone, &format!("{mark} {} {}{how}", item.kind.word(), item.name));
        match &item.change {
            Change::Added { members, parameters } => self.added(item.kind, members, parameters),
            Change::Changed(members) => self.members(4, members),
            Change::Removed | Change::Reordered | Change::Respelled => {}
        }
    }

    /// What a new definition says first; the whole of it only where everything is shown.
    fn added(&mut self, kind: Kind, members: &Members, parameters: &[String]) {
        if self.bounds.members == usize::MAX {
            return self.members(6, members);
        }
        for member in members.all.iter().filter(|member| member.path == "description") {
            self.lines.begin(6);
            self.lines.limit(self.bounds.lines / 2);
            text::plain(&mut self.lines, member.now.as_deref().unwrap_or_default());
            self.lines.end();
        }
        let word = if kind == Kind::Prompt { "arguments" } else { "parameters" };
        if !parameters.is_empty() {
            self.lines.begin(6);
            self.lines.limit(2);
            self.lines.put(Tone::Faint, &format!("{word}: "));
            text::plain(&mut self.lines, &one_line(&parameters.join(", ")));
            self.lines.end();
        }
    }

    fn members(&mut self, indent: usize, members: &Members) {
        for member in members.all.iter().take(self.bounds.members) {
            self.member(indent, member);
        }
        let hidden = members.all.len().saturating_sub(self.bounds.members);
        self.more(indent, hidden, "");
        // Even everything has an end.
        if members.more > 0 {
            self.say(
                indent,
                Tone::Warning,
                &format!("{} more, too many to show: look at the lock itself", members.more),
            );
        }
    }

    fn member(&mut self, indent: usize, member: &Member) {
        self.say(indent, Tone::Faint, &member.path);
        self.lines.begin(indent + 2);
        self.lines.limit(self.bounds.lines);
        let (was, is) = (member.before.as_deref().unwrap_or_default(), member.now.as_deref().unwrap_or_default());
        text::difference(&mut self.lines, &pieces(was, is));
        self.lines.end();
    }

    fn warnings(&mut self, warnings: &[Warning]) {
        if warnings.is_empty() {
            return;
        }
        let what = if warnings.len() == 1 { "1 thing" } else { &format!("{} things", warnings.len()) };
        self.say(2, Tone::Warning, &format!("{what} to look at twice (advice: silence would prove nothing)"));
        for warning in warnings.iter().take(self.bounds.warnings) {
            self.say(4, Tone::Plain, &format!("! {}: {}", warning.place, warning.says));
            if !warning.excerpt.is_empty() {
                self.say(8, Tone::Warning, &warning.excerpt);
            }
        }
        self.more(4, warnings.len().saturating_sub(self.bounds.warnings), "");
    }
}

/// What is a name or a word and not a text: one that went on in another line would look like a line of ours.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\u{a}")
}

/// Hashes by their beginnings, as long as those tell them apart.
fn short<'a>(was: &'a str, is: &'a str) -> (&'a str, &'a str) {
    let cut = |text: &'a str| match text.split_once([':', '-']) {
        Some((algorithm, hash)) if matches!(algorithm, "sha256" | "sha512" | "sha384" | "sha1") && hash.is_ascii() => {
            &text[..text.len().min(algorithm.len() + 1 + DIGITS)]
        }
        _ if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => &text[..DIGITS],
        _ => text,
    };
    if was == is || cut(was) != cut(is) { (cut(was), cut(is)) } else { (was, is) }
}
