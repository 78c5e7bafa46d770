//! How a text is laid out, so that what is put into it looks as if it had always been there. Knows no key.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp};
use jsonc_parser::common::Ranged as _;

use super::entry::Json;

/// The habits of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style<'t> {
    /// Its line end.
    pub(super) newline: &'static str,
    /// One step of indentation.
    pub(super) unit: &'t str,
    /// Whether all of it is one line.
    pub(super) one_line: bool,
    /// Whether nothing stands between a colon or a comma and what follows in the same line.
    pub(super) tight: bool,
}

impl<'t> Style<'t> {
    /// What shows in a text, with the usual where nothing does.
    pub(super) fn of(text: &'t str, root: Option<&Object<'_>>) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let own_line = root.and_then(|root| root.properties.iter().find(|p| begins_line(text, p.range.start)));
        let tabs = text.lines().any(|line| line.starts_with('\t'));
        let unit = match (own_line.map(|property| indentation(text, property.range.start)), root) {
            (Some(indent), Some(root)) if !indent.is_empty() => {
                indent.strip_prefix(indentation(text, root.range.start)).filter(|i| !i.is_empty()).unwrap_or(indent)
            }
            _ if tabs => "\t",
            _ => "  ",
        };
        let one_line = root
            .is_some_and(|root| !root.properties.is_empty() && !text[root.range.start..root.range.end].contains('\n'));
        let tight = root.and_then(|root| root.properties.first()).is_some_and(|p| after_colon(text, p).is_empty());
        Style { newline, unit, one_line, tight }
    }

    /// What stands between a colon or a comma and what follows in the same line.
    pub(super) fn gap(&self) -> &'static str {
        if self.tight { "" } else { " " }
    }

    /// A key, its colon and its value: over several lines from the indentation on, or in one.
    pub(super) fn member(&self, key: &str, value: &Json<'_>, indent: Option<&str>) -> String {
        format!("{}:{}{}", quoted(key), self.gap(), self.value(value, indent))
    }

    /// A value, the same way.
    pub(super) fn value(&self, value: &Json<'_>, indent: Option<&str>) -> String {
        let in_line = |items: Vec<String>| items.join(&format!(",{}", self.gap()));
        match (value, indent) {
            (Json::Text(text), _) => quoted(text),
            (Json::List(items), _) => format!("[{}]", in_line(items.iter().map(|item| quoted(item)).collect())),
            (Json::Object(members), None) => {
                format!("{{{}}}", in_line(members.iter().map(|(key, value)| self.member(key, value, None)).collect()))
            }
            (Json::Object(members), Some(indent)) => {
                let (newline, inner) = (self.newline, format!("{indent}{}", self.unit));
                let members = members.iter().map(|(key, value)| self.member(key, value, Some(&inner)));
                let members = members.collect::<Vec<_>>().join(&format!(",{newline}{inner}"));
                format!("{{{newline}{inner}{members}{newline}{indent}}}")
            }
        }
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn after_colon<'t>(text: &'t str, property: &ObjectProp<'_>) -> &'t str {
    let between = &text[property.name_end()..property.value.start()];
    between.split_once(':').map_or(" ", |(_, after)| after)
}

trait NameEnd {
    fn name_end(&self) -> usize;
}

impl NameEnd for ObjectProp<'_> {
    fn name_end(&self) -> usize {
        use jsonc_parser::ast::ObjectPropName;
        match &self.name {
            ObjectPropName::String(lit) => lit.range.end,
            ObjectPropName::Word(lit) => lit.range.end,
        }
    }
}

/// Where the line of a byte begins.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// What the line of a byte is indented by.
pub(super) fn indentation(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Whether nothing stands before a byte in its line, and another line before that.
pub(super) fn begins_line(text: &str, at: usize) -> bool {
    let start = line_start(text, at);
    start > 0 && text[start..at].chars().all(|c| c == ' ' || c == '\t')
}

/// The white space before a byte back to the end of the line before, and with that line end if nothing else stands
/// between; the second tells whether it does.
pub(super) fn space_before(text: &str, at: usize) -> (Range<usize>, bool) {
    let head = text[..at].trim_end_matches([' ', '\t']);
    let above = head.strip_suffix('\n').map(|above| above.strip_suffix('\r').unwrap_or(above));
    (above.unwrap_or(head).len()..at, above.is_some())
}

/// The first comma outside of comments.
pub(super) fn comma(text: &str, within: Range<usize>) -> Option<usize> {
    let mut at = within.start;
    while at < within.end {
        match comment(text, at) {
            Some(comment) => at = comment.end,
            None if text.as_bytes()[at] == b',' => return Some(at),
            None => at += 1,
        }
    }
    None
}

/// Where the comments end that stand in the same line from a byte on, and whether the last one reaches to its end.
pub(super) fn past_comments(text: &str, from: usize) -> (usize, bool) {
    let (mut end, mut to_line_end) = (from, false);
    loop {
        let rest = &text[end..];
        let next = end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
        match comment(text, next) {
            Some(comment) => {
                to_line_end = text[comment.clone()].starts_with("//");
                end = comment.end;
            }
            None => return (end, to_line_end),
        }
    }
}

/// The comment that begins at a byte.
pub(super) fn comment(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    let length = if rest.starts_with("//") {
        rest.find(['\r', '\n']).unwrap_or(rest.len())
    } else {
        rest.strip_prefix("/*")?.find("*/").map_or(rest.len(), |end| end + 4)
    };
    Some(at..at + length)
}
