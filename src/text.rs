//! A stranger's text for people: what would steer a terminal, or is not seen as what it is, becomes an escape. Pure; knows
//! nothing of where a text comes from or goes to.

use unicode_width::UnicodeWidthChar as _;

/// More marks than this upon one character draw over the lines around it.
const MARKS: usize = 2;

/// Whether a character acts on others or on the terminal, or shows nothing at all: controls, marks of direction,
/// separators, joiners, fillers, soft hyphens, annotations, variation selectors, tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text on one line for a terminal or a log, cut after `max` characters. The selector that makes a symbol an emoji
/// stays, since it is seen.
pub fn visible(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut symbol = false;
    for (n, c) in text.chars().enumerate() {
        if n == max {
            out.push('…');
            break;
        }
        let selects = c == '\u{fe0f}' && symbol;
        if is_hidden(c) && !selects {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        symbol = !c.is_ascii() && !is_hidden(c);
    }
    out
}

/// The text for a comparison: no two texts become the same, and line feeds stay. Beyond what is hidden, blanks that are no
/// space, characters that only some fonts have, and marks piled upon marks are escapes; and so is a backslash where an
/// escape would seem to begin.
pub fn exact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = 0;
    for (at, c) in text.char_indices() {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        let odd = is_hidden(c) || marks > MARKS || is_unclear(c) || (c == '\\' && text[at + 1..].starts_with("u{"));
        if odd && c != '\n' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

fn is_unclear(c: char) -> bool {
    (c.is_whitespace() && c != ' ') || matches!(c, '\u{2800}' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_shown() {
        assert_eq!(visible("a\x1b[31mb\u{202e}", 99), "a\\u{1b}[31mb\\u{202e}");
        assert_eq!(visible("abcdef", 3), "abc…");
        let all = "\u{ad}\u{61c}\u{180e}\u{200b}\u{2028}\u{2066}\u{206f}\u{fe01}\u{feff}\u{e0041}\u{e0100}\u{3164}";
        assert!(visible(all, 99).is_ascii(), "{}", visible(all, 99));
        assert_eq!(
            visible("naïve 日本語 ❤\u{fe0f}\u{fe0f} a\u{fe0f}", 99),
            "naïve 日本語 ❤\u{fe0f}\\u{fe0f} a\\u{fe0f}"
        );
    }

    #[test]
    fn no_two_texts_are_exactly_the_same() {
        assert_eq!(exact("a\u{a0}b\u{2800}\tc\nd\u{f8ff}"), "a\\u{a0}b\\u{2800}\\u{9}c\nd\\u{f8ff}");
        assert_eq!(exact("❤\u{fe0f}"), "❤\\u{fe0f}");
        assert_ne!(exact("\\u{202e}"), exact("\u{202e}"));
        assert_eq!(exact("\\d \\u{1} \\\\u{"), "\\d \\u{5c}u{1} \\\\u{5c}u{");
        assert_eq!(exact("e\u{301}\u{302}\u{303}\u{304}x"), "e\u{301}\u{302}\\u{303}\\u{304}x");
    }
}
