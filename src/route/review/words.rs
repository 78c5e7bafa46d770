//! What differs between two texts, word by word. Knows nothing of how it is shown.

use std::collections::HashMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::route::scan::letters::{fold, is_lookalike};

/// Texts that differ in more words than this are not compared word by word: the effort grows with the square.
const MOST: usize = 1_500;
/// Longer words are compared character by character where they differ at one place.
const LONG: usize = 24;
/// What two texts have in common between two differences is no help if it is shorter.
const SHORT: usize = 4;

/// A piece of the two texts, in the form of [`crate::text::exact`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In both.
    Same(String),
    /// Only in the old one.
    Removed(String),
    /// Only in the new one.
    Added(String),
}

/// Both texts as pieces: without those added it is the old one, without those removed the new one, letters that are
/// written as escapes aside.
pub fn pieces(before: &str, now: &str) -> Vec<Piece> {
    let (old, new) = (tokens(before), tokens(now));
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let mut runs = Runs::default();
    runs.same(&old[..start].concat());
    if a.len().max(b.len()) > MOST {
        runs.replace(&a.concat(), &b.concat());
    } else {
        runs.compare(a, b);
    }
    runs.same(&old[old.len() - end..].concat());
    runs.into_pieces()
}

/// Words, runs of blanks, escapes, and every other character alone.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let run = |belongs: fn(char) -> bool| rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let len = if rest.starts_with("\\u{") {
            rest.find('}').map_or(1, |at| at + 1)
        } else if c == ' ' {
            run(|c| c == ' ')
        } else if is_word(c) {
            run(is_word)
        } else {
            c.len_utf8()
        };
        let (token, after) = rest.split_at(len);
        found.push(token);
        rest = after;
    }
    found
}

/// Letters of scripts that are written without blanks are words of their own.
fn is_word(c: char) -> bool {
    (c.is_alphanumeric() || c == '_')
        && !matches!(c, '\u{2e80}'..='\u{a4cf}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// What is the same, and what is there instead of what, by turns.
#[derive(Default)]
struct Runs(Vec<Run>);

enum Run {
    Same(String),
    Other(String, String),
}

impl Runs {
    fn compare(&mut self, a: &[&str], b: &[&str]) {
        let mut known = HashMap::new();
        let mut number = |token| {
            let next = known.len() as u32;
            *known.entry(token).or_insert(next)
        };
        let old: Vec<u32> = a.iter().copied().map(&mut number).collect();
        let new: Vec<u32> = b.iter().copied().map(&mut number).collect();
        for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
            let (was, is) = (a[op.old_range()].concat(), b[op.new_range()].concat());
            match op {
                DiffOp::Equal { .. } => self.same(&was),
                _ => self.replace(&was, &is),
            }
        }
    }

    fn same(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Run::Same(last)) => last.push_str(text),
            _ => self.0.push(Run::Same(text.to_owned())),
        }
    }

    fn replace(&mut self, was: &str, is: &str) {
        if was.is_empty() && is.is_empty() {
            return;
        }
        // A few characters in common do not help to read two texts that are not the same.
        if let [.., Run::Other(..), Run::Same(between)] = &self.0[..]
            && between.chars().count() < SHORT
            && !between.contains('\n')
        {
            let Some(Run::Same(between)) = self.0.pop() else { return };
            if let Some(Run::Other(a, b)) = self.0.last_mut() {
                a.push_str(&between);
                b.push_str(&between);
            }
        }
        match self.0.last_mut() {
            Some(Run::Other(a, b)) => {
                a.push_str(was);
                b.push_str(is);
            }
            _ => self.0.push(Run::Other(was.to_owned(), is.to_owned())),
        }
    }

    fn into_pieces(self) -> Vec<Piece> {
        let mut found = Vec::new();
        for run in self.0 {
            match run {
                Run::Same(text) => found.push(Piece::Same(text)),
                Run::Other(was, is) => other(&was, &is, &mut found),
            }
        }
        found
    }
}

fn other(was: &str, is: &str, found: &mut Vec<Piece>) {
    let mut put = |piece: fn(String) -> Piece, text: String| (!text.is_empty()).then(|| found.push(piece(text)));
    let words = |text: &str| text.split(' ').all(|word| word.len() <= LONG);
    let (start, end) = if words(was) && words(is) { (0, 0) } else { common(was, is) };
    let (a, b) = (&was[start..was.len() - end], &is[start..is.len() - end]);
    // What looks the same is told apart by what the characters are.
    let alike = !a.is_empty() && looks(a) == looks(b);
    let show = |text: &str| if alike { spelled(text, |c| !c.is_ascii()) } else { disguised(text) };
    put(Piece::Same, was[..start].to_owned());
    put(Piece::Removed, show(a));
    put(Piece::Added, show(b));
    put(Piece::Same, was[was.len() - end..].to_owned());
}

/// How many bytes two texts have in common at either end, no escape cut.
fn common(a: &str, b: &str) -> (usize, usize) {
    let width = |pairs: &mut dyn Iterator<Item = (char, char)>| {
        pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>()
    };
    let mut start = width(&mut a.chars().zip(b.chars()));
    // An escape that one of the texts goes on with belongs to what differs.
    if let Some(open) = a[..start].rfind("\\u{").filter(|open| !a[*open..start].contains('}')) {
        start = open;
    }
    let mut end = width(&mut a[start..].chars().rev().zip(b[start..].chars().rev()));
    let tail = &a[a.len() - end..];
    if let Some(close) = tail.find('}')
        && !tail[..close].contains("\\u{")
        && tail[..close].bytes().all(|b| b"\\u{".contains(&b) || b.is_ascii_hexdigit())
    {
        end = tail.len() - close - 1;
    }
    (start, end)
}

fn looks(text: &str) -> String {
    text.chars().map(fold).collect()
}

/// Letters of another script that hide in a word of plain ones become escapes.
fn disguised(text: &str) -> String {
    let word = |word: &str| {
        let mixed = word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(is_lookalike);
        if mixed { spelled(word, is_lookalike) } else { word.to_owned() }
    };
    text.split_inclusive(|c: char| !c.is_alphanumeric()).map(word).collect()
}

fn spelled(text: &str, which: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if which(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}
