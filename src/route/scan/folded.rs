//! A text as a model reads it whatever it is written in: plain letters, lower case, single blanks, nothing hidden. Knows
//! nothing of what is looked for in it.

use super::letters::fold;
use crate::text::is_hidden;

/// Every so many bytes of the folded text it is kept which byte of the original that is.
const STEP: usize = 64;

/// A folded text.
pub(super) struct Folded<'a> {
    /// The folded text.
    pub text: String,
    original: &'a str,
    /// Bytes of the original at multiples of [`STEP`] of the folded text, as pairs.
    places: Vec<(usize, usize)>,
}

impl<'a> Folded<'a> {
    pub fn new(original: &'a str) -> Self {
        let mut folded = Folded { text: String::with_capacity(original.len()), original, places: vec![(0, 0)] };
        for (at, c) in original.char_indices() {
            if folded.text.len() >= folded.places.last().map_or(0, |last| last.0) + STEP {
                folded.places.push((folded.text.len(), at));
            }
            push(&mut folded.text, c);
        }
        folded
    }

    /// The byte of the original that a byte of the folded text comes from.
    pub fn place(&self, at: usize) -> usize {
        let nth = self.places.partition_point(|(folded, _)| *folded <= at);
        let (mut length, start) = self.places[nth.saturating_sub(1)];
        let mut scratch = self.text[..length].chars().next_back().map(String::from).unwrap_or_default();
        for (offset, c) in self.original[start..].char_indices() {
            let before = scratch.len();
            push(&mut scratch, c);
            length += scratch.len() - before;
            if length > at {
                return start + offset;
            }
        }
        self.original.len()
    }

    /// The words with where each begins in the folded text.
    pub fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let base = self.text.as_ptr() as usize;
        let words = self.text.split(|c: char| !c.is_alphanumeric() && c != '\'');
        words.filter(|word| !word.is_empty()).map(move |word| (word.as_ptr() as usize - base, word))
    }
}

fn push(text: &mut String, c: char) {
    if c.is_whitespace() || c == '\u{2800}' {
        if !text.ends_with(' ') {
            text.push(' ');
        }
    } else if !is_hidden(c) {
        text.push(fold(c));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_again() {
        let original = format!("{}Ig\u{200b}nоrе \n\n  ALL{}", "é  ".repeat(100), "x".repeat(200));
        let folded = Folded::new(&original);
        let at = folded.text.find("ignore all").unwrap();
        assert!(original[folded.place(at)..].starts_with("Ig\u{200b}n"));
        assert!(original[folded.place(at + 7)..].starts_with("ALL"));
        assert!(original[folded.place(at + 9)..].starts_with("Lx"));
        assert_eq!(folded.words().nth(100), Some((at, "ignore")));
    }
}
