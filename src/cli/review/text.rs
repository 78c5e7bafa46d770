//! A difference between two texts as words that are gone and words that are new, in a little of what is around them.

use std::borrow::Cow;

use crate::route::review::Piece;

use super::lines::{Lines, Tone};

/// Characters of what is the same that are shown beside a difference.
const CONTEXT: usize = 48;
/// What stands for what is left out.
const ELISION: &str = "…";

/// Puts a text that is only on one side or the same on both.
pub(super) fn plain(lines: &mut Lines, text: &str) {
    put(lines, Tone::Plain, text);
}

/// Puts the pieces one after the other.
pub(super) fn difference(lines: &mut Lines, pieces: &[Piece]) {
    let last = pieces.len().saturating_sub(1);
    for (n, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Same(text) => same(lines, text, n == 0, n == last),
            Piece::Removed(text) => changed(lines, Tone::Removed, text, ["[-", "-]"]),
            Piece::Added(text) => changed(lines, Tone::Added, text, ["{+", "+}"]),
        }
    }
}

/// What is the same: a little after what differs before it, and a little before what differs after it.
fn same(lines: &mut Lines, text: &str, first: bool, last: bool) {
    let (head, tail) = (if first { 0 } else { CONTEXT }, if last { 0 } else { CONTEXT });
    let start = text.char_indices().nth(head).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().rev().nth(tail.max(1) - 1).map_or(0, |(at, _)| at);
    let end = if tail == 0 { text.len() } else { end };
    // To leave out less than is shown of it is not worth its mark.
    if end < start + CONTEXT {
        return put(lines, Tone::Faint, text);
    }
    // Whole words, where there are some.
    let start = text[..start].rfind(' ').filter(|_| head > 0).unwrap_or(start);
    let end = if tail == 0 { end } else { text[end..].find(' ').map_or(end, |at| end + at + 1) };
    let (before, after) = (text[..start].trim_end_matches(['\n', ' ']), text[end..].trim_start_matches(['\n', ' ']));
    put(lines, Tone::Faint, before);
    let blank = |text: &str| if text.is_empty() { "" } else { " " };
    lines.put(Tone::Faint, &format!("{}{ELISION}{}", blank(before), blank(after)));
    put(lines, Tone::Faint, after);
}

fn changed(lines: &mut Lines, tone: Tone, text: &str, [open, close]: [&str; 2]) {
    // A blank or a line end alone has nothing to be coloured.
    let shown: Cow<'_, str> = if text.trim().is_empty() {
        text.chars().flat_map(char::escape_unicode).collect::<String>().into()
    } else {
        text.into()
    };
    if lines.has_colours() {
        return put(lines, tone, &shown);
    }
    let begins = shown.starts_with(['}', ']']);
    let ends = shown.ends_with(['{', '[']);
    lines.put(tone, open);
    put_all(lines, tone, &shown, begins, ends);
    lines.put(tone, close);
}

fn put(lines: &mut Lines, tone: Tone, text: &str) {
    put_all(lines, tone, text, false, false);
}

/// Puts a text in which nothing can be taken for a mark; `begins` and `ends` say that its first or last character would
/// make one with a mark beside it.
fn put_all(lines: &mut Lines, tone: Tone, text: &str, begins: bool, ends: bool) {
    if lines.has_colours() {
        return stop(lines, text, |lines, part| lines.put(tone, part));
    }
    let mut before = None;
    let last = text.char_indices().next_back().map_or(0, |(at, _)| at);
    stop(lines, text, |lines, part| {
        let base = part.as_ptr() as usize - text.as_ptr() as usize;
        for (at, c) in part.char_indices().map(|(at, c)| (base + at, c)) {
            let after = text[at + c.len_utf8()..].chars().next();
            let mark = matches!((c, after), ('{', Some('+')) | ('[', Some('-')))
                || matches!((before, c), (Some('+'), '}') | (Some('-'), ']'))
                || (begins && at == 0)
                || (ends && at == last);
            if mark {
                lines.put(tone, &c.escape_unicode().to_string());
            } else {
                lines.put(tone, c.encode_utf8(&mut [0; 4]));
            }
            before = Some(c);
        }
    });
}

/// Hands on a text, and no more of it than is shown: what is left is only counted.
fn stop<'a>(lines: &mut Lines, text: &'a str, mut put: impl FnMut(&mut Lines, &'a str)) {
    const STEP: usize = 1024;
    let mut rest = text;
    while !rest.is_empty() {
        if lines.is_full() {
            return lines.skip(rest.chars().count());
        }
        let mut at = rest.len().min(STEP);
        while !rest.is_char_boundary(at) {
            at += 1;
        }
        let (part, after) = rest.split_at(at);
        put(lines, part);
        rest = after;
    }
}
