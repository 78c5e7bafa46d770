//! One text out of another: the entry put in, brought up to date, or taken out, and every other byte as it was. Pure.
//!
//! What is put in, is put where it can be told apart again: taking it out gives the text from before. That cannot be
//! where the entry made an object out of nothing (`{}` and an object of two empty lines become the same), or the key that
//! holds the servers: then the text from before, if somebody kept it, decides ([`restore`]).

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;

use super::document::{Wrong, find, member, root, split};
use super::entry::{Entry, Json, Whose, whose};
use super::layout::{Style, begins_line, comma, indentation, past_comments, space_before};

/// The entry in question.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The key that holds the servers.
    pub key: &'a str,
    /// The entry's name.
    pub name: &'a str,
    /// This program, by which an entry is known to be ours.
    pub program: &'a str,
}

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who the entry of that name belongs to, if there is one.
    pub entry: Option<Whose>,
    /// How many other servers the client starts itself.
    pub started: usize,
    /// How many others it reaches at an address.
    pub reached: usize,
}

/// What an edit comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing to change.
    Same,
    /// The new text.
    Changed(String),
}

/// A range, and what stands there afterwards.
type Splice = (Range<usize>, String);

/// What a text says of the entry and of others.
pub fn look(text: &str, target: Target<'_>) -> Result<Seen, Wrong> {
    let text = split(text).1;
    let Some(root) = root(text)? else { return Ok(Seen::default()) };
    let Some(servers) = member(text, &root, target.key)? else { return Ok(Seen::default()) };
    let entry = find(servers, target.name).map(|property| whose(&property.value, target.program));
    let ours = |property: &&ObjectProp<'_>| whose(&property.value, target.program) == Whose::Ours;
    let others = servers.properties.iter().filter(|p| p.name.as_str() != target.name && !ours(p));
    let started = |value: &Value<'_>| value.as_object().is_some_and(|object| find(object, "command").is_some());
    let (started, reached): (Vec<_>, Vec<_>) = others.partition(|property| started(&property.value));
    Ok(Seen { entry, started: started.len(), reached: reached.len() })
}

/// Puts the entry in. One that is ours is brought up to date, and keeps what its user has added; another's is replaced.
pub fn install(text: &str, target: Target<'_>, entry: &Entry) -> Result<Outcome, Wrong> {
    let (mark, body) = split(text);
    let changed = match look(body, target)?.entry {
        None => put_in(body, target, entry)?,
        Some(Whose::Another) => replace(body, target, &entry.json())?,
        Some(Whose::Ours) => update(body, target, entry)?,
    };
    Ok(if changed == body { Outcome::Same } else { Outcome::Changed(format!("{mark}{changed}")) })
}

/// Takes the entry out, whosever it is.
pub fn uninstall(text: &str, target: Target<'_>) -> Result<Outcome, Wrong> {
    let (mark, body) = split(text);
    let Some(root) = root(body)? else { return Ok(Outcome::Same) };
    let Some(servers) = member(body, &root, target.key)? else { return Ok(Outcome::Same) };
    let Some(index) = servers.properties.iter().position(|p| p.name.as_str() == target.name) else {
        return Ok(Outcome::Same);
    };
    Ok(Outcome::Changed(format!("{mark}{}", apply(body, removal(body, servers, index)))))
}

/// Whether `text` is what [`install`] made of `before`, so that taking the entry out means going back to that.
pub fn restore(text: &str, before: &str, target: Target<'_>) -> bool {
    let entry = || {
        let root = root(split(text).1).ok()??;
        Entry::read(find(member(text, &root, target.key).ok()??, target.name)?.value.as_object()?)
    };
    let absent = look(before, target).is_ok_and(|seen| seen.entry.is_none());
    absent && entry().is_some_and(|entry| install(before, target, &entry) == Ok(Outcome::Changed(text.to_owned())))
}

fn put_in(text: &str, target: Target<'_>, entry: &Entry) -> Result<String, Wrong> {
    let Some(root) = root(text)? else { return Ok(from_nothing(text, target, entry)) };
    let style = Style::of(text, Some(&root));
    let splices = match member(text, &root, target.key)? {
        Some(servers) => insertion(text, servers, target.name, &entry.json(), &style),
        None => insertion(text, &root, target.key, &Json::Object(vec![(target.name, entry.json())]), &style),
    };
    Ok(apply(text, splices))
}

/// A document where there was none; comments stay above it.
fn from_nothing(text: &str, target: Target<'_>, entry: &Entry) -> String {
    let style = Style::of(text, None);
    let servers = Json::Object(vec![(target.name, entry.json())]);
    let document = style.value(&Json::Object(vec![(target.key, servers)]), Some(""));
    let newline = style.newline;
    match text.trim() {
        "" => format!("{document}{newline}"),
        _ if text.ends_with('\n') => format!("{text}{document}{newline}"),
        _ => format!("{text}{newline}{document}{newline}"),
    }
}

/// Puts another value in the place of the entry.
fn replace(text: &str, target: Target<'_>, value: &Json<'_>) -> Result<String, Wrong> {
    with_servers(text, target, |style, servers| match find(servers, target.name) {
        None => Vec::new(),
        Some(property) => {
            let start = property.range.start;
            let indent = begins_line(text, start).then(|| indentation(text, start));
            vec![(property.value.start()..property.value.end(), style.value(value, indent))]
        }
    })
}

/// Brings the members up to date that are ours to write.
fn update(text: &str, target: Target<'_>, entry: &Entry) -> Result<String, Wrong> {
    let mut text = text.to_owned();
    for (key, value) in entry.members() {
        text = with_servers(&text, target, |style, servers| {
            let Some(Value::Object(own)) = find(servers, target.name).map(|p| &p.value) else { return Vec::new() };
            match find(own, key) {
                None => insertion(&text, own, key, &value, style),
                Some(property) if value.is(&property.value) => Vec::new(),
                Some(property) => vec![(property.value.start()..property.value.end(), style.value(&value, None))],
            }
        })?;
    }
    Ok(text)
}

fn with_servers(
    text: &str,
    target: Target<'_>,
    splices: impl FnOnce(&Style<'_>, &Object<'_>) -> Vec<Splice>,
) -> Result<String, Wrong> {
    let Some(root) = root(text)? else { return Ok(text.to_owned()) };
    let style = Style::of(text, Some(&root));
    let servers = member(text, &root, target.key)?;
    Ok(servers.map_or_else(|| text.to_owned(), |servers| apply(text, splices(&style, servers))))
}

/// A member at the end of an object, behind what is said of the last one in its line.
fn insertion(text: &str, object: &Object<'_>, key: &str, value: &Json<'_>, style: &Style<'_>) -> Vec<Splice> {
    let (open, close) = (object.range.start, object.range.end - 1);
    let last = object.properties.last();
    let trailing = last.and_then(|last| comma(text, last.value.end()..close));
    let from = trailing.map(|comma| comma + 1).or(last.map(|last| last.value.end())).unwrap_or(open + 1);
    let (at, to_line_end) = past_comments(text, from);
    let beside = last.filter(|last| begins_line(text, last.range.start));
    let base = indentation(text, open);
    let lines = to_line_end || beside.is_some() || (last.is_none() && !style.one_line);
    let indent = match beside {
        Some(beside) => indentation(text, beside.range.start).to_owned(),
        None => format!("{base}{}", style.unit),
    };
    let mut new = match (lines, last) {
        (true, _) => format!("{}{indent}", style.newline),
        (false, Some(_)) => style.gap().to_owned(),
        (false, None) => String::new(),
    };
    new.push_str(&style.member(key, value, lines.then_some(indent.as_str())));
    if trailing.is_some() {
        new.push(',');
    }
    if lines && last.is_none() && !text[at..close].contains(['\r', '\n']) {
        new.push_str(style.newline);
        new.push_str(base);
    }
    let separator =
        last.filter(|_| trailing.is_none()).map(|last| (last.value.end()..last.value.end(), ",".to_owned()));
    separator.into_iter().chain([(at..at, new)]).collect()
}

/// A member out of an object, with the comma that it needed.
fn removal(text: &str, object: &Object<'_>, index: usize) -> Vec<Splice> {
    let (own, close) = (&object.properties[index], object.range.end - 1);
    let (space, own_line) = space_before(text, own.range.start);
    let end = own.value.end();
    let next = object.properties.get(index + 1).map_or(close, |next| next.range.start);
    let following = comma(text, end..next);
    let preceding = || {
        let before = object.properties.get(index.checked_sub(1)?)?;
        comma(text, before.value.end()..own.range.start)
    };
    let separator = following.or_else(preceding).map(|comma| comma..comma + 1);
    let mut gone: Vec<_> = separator.into_iter().collect();
    gone.push(space.start..end);
    if own_line && object.properties.len() == 1 {
        // The line of the closing brace was ours, too, if nothing but white space is left between the braces.
        let after = following.map_or(end, |comma| comma + 1);
        let tail = &text[after..close];
        let line_end = if tail.starts_with("\r\n") { 2 } else { usize::from(tail.starts_with('\n')) };
        let rest = tail[line_end..].strip_prefix(indentation(text, object.range.start));
        if let Some(rest) = rest.filter(|rest| line_end > 0 && rest.chars().all(|c| c == ' ' || c == '\t')) {
            gone.push(after..close - rest.len());
        }
    }
    gone.into_iter().map(|range| (range, String::new())).collect()
}

fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|(range, _)| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len() + 512), 0);
    for (range, new) in splices {
        out.push_str(&text[done..range.start]);
        out.push_str(&new);
        done = range.end;
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests;
