//! A client's text with nothing in it that could be a secret: what may be shown of it. Pure.
//!
//! Arguments, addresses and comments hold secrets as well as environments do, so nobody guesses: of what is not ours, the
//! keys are shown, and the values are not.

use std::ops::Range;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged as _;

use super::document::{Wrong, find, member, root, split};
use super::edit::Target;
use super::entry::{OWN, Whose, whose};
use super::layout::comment;

/// What stands for a value.
const MASK: &str = "\"…\"";

/// The text in which every text and number is masked, but for what our entry starts, and every comment.
pub fn masked(text: &str, target: Target<'_>) -> Result<String, Wrong> {
    let text = split(text).1;
    let mut hidden = Vec::new();
    if let Some(root) = root(text)? {
        values(&root, &mut hidden);
        let shown = shown(text, &root, target)?;
        hidden.retain(|(range, _)| !shown.contains(&range.start));
    }
    hidden.extend(comments(text));
    hidden.sort_by_key(|(range, _)| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (range, mask) in hidden {
        out.push_str(&text[done..range.start]);
        out.push_str(mask);
        done = range.end;
    }
    out.push_str(&text[done..]);
    Ok(out)
}

type Hidden = (Range<usize>, &'static str);

fn values(object: &Object<'_>, hidden: &mut Vec<Hidden>) {
    object.properties.iter().for_each(|property| value(&property.value, hidden));
}

fn value(of: &Value<'_>, hidden: &mut Vec<Hidden>) {
    match of {
        Value::Object(object) => values(object, hidden),
        Value::Array(array) => array.elements.iter().for_each(|item| value(item, hidden)),
        Value::StringLit(_) => hidden.push((of.start()..of.end(), MASK)),
        Value::NumberLit(_) => hidden.push((of.start()..of.end(), "…")),
        Value::BooleanLit(_) | Value::NullKeyword(_) => {}
    }
}

/// Where the values begin that may be shown: those that we write, in an entry that is ours.
fn shown(text: &str, root: &Object<'_>, target: Target<'_>) -> Result<Vec<usize>, Wrong> {
    let entry = member(text, root, target.key)?.and_then(|servers| find(servers, target.name));
    let Some(entry) = entry.filter(|p| whose(&p.value, target.program) == Whose::Ours) else { return Ok(Vec::new()) };
    let own = entry.value.as_object().into_iter().flat_map(|object| &object.properties);
    let mut all = Vec::new();
    own.filter(|property| OWN.contains(&property.name.as_str())).for_each(|property| value(&property.value, &mut all));
    Ok(all.into_iter().map(|(range, _)| range.start).collect())
}

fn comments(text: &str) -> Vec<Hidden> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        if let Some(range) = comment(text, at) {
            at = range.end;
            let mask = if text[range.clone()].starts_with("//") { "// …" } else { "/* … */" };
            found.push((range, mask));
        } else if text.as_bytes()[at] == b'"' {
            at = past_text(text, at);
        } else {
            at += 1;
        }
    }
    found
}

/// Where a text in quotes ends.
fn past_text(text: &str, from: usize) -> usize {
    let mut at = from + 1;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'_> = Target { key: "mcpServers", name: "bulkhead", program: "/b" };

    fn holds_secret(text: &str) -> bool {
        (1..=9).any(|n| text.contains(&format!("S{n}")))
    }

    #[test]
    fn of_what_is_not_ours_the_keys_are_shown_and_nothing_else() {
        let text = "\u{feff}{ // S1\n \"token\": \"S2\", /* S3\n S4 */ \"pin\": 1234,\n \"mcpServers\": {\"a\": {\"args\": [\"--key=S5\", \"//S6\", \"\\\"S7\"],\n\
            \"env\": {\"K\": \"S8\"}, \"on\": true}, \"bulkhead\": {\"command\": \"/b\", \"args\": [\"serve\"], \"env\": {\"E\": \"S9\"}}}}";
        let masked = masked(text, TARGET).unwrap();
        assert!(!masked.contains("1234") && !holds_secret(&masked), "{masked}");
        assert_eq!(
            masked,
            "{ // …\n \"token\": \"…\", /* … */ \"pin\": …,\n \"mcpServers\": {\"a\": {\"args\": [\"…\", \"…\", \"…\"],\n\
            \"env\": {\"K\": \"…\"}, \"on\": true}, \"bulkhead\": {\"command\": \"/b\", \"args\": [\"serve\"], \"env\": {\"E\": \"…\"}}}}"
        );
    }

    #[test]
    fn an_entry_of_that_name_that_is_not_ours_is_masked_too() {
        let text = "{\"mcpServers\": {\"bulkhead\": {\"command\": \"S1\", \"args\": [\"S2\"]}}}";
        assert!(!holds_secret(&masked(text, TARGET).unwrap()));
    }
}
