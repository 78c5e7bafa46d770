//! Characters that are not seen, and letters that pass for others.

use super::Suspicion;
use super::letters::is_lookalike;
use crate::text::{exact, is_hidden};

/// Code points that are named one by one.
const NAMED: usize = 4;
/// Longest text in tags that is shown, in characters.
const TAGGED: usize = 60;
/// So many letters of another style are no variable of a formula.
const STYLED: usize = 4;

pub(super) fn look(text: &str, put: &mut impl FnMut(Suspicion, String, usize)) {
    if text.is_ascii() && !text.bytes().any(|b| b.is_ascii_control()) {
        return;
    }
    characters(text, put);
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_ascii());
    if let Some(word) = words.find(|word| disguises(word)) {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        put(Suspicion::Lookalike, "letters that pass for others".to_owned(), at);
    }
}

fn characters(text: &str, put: &mut impl FnMut(Suspicion, String, usize)) {
    let (mut count, mut first, mut named) = (0usize, None, Vec::new());
    let mut tagged = String::new();
    let (mut before, mut flag) = (' ', false);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |(_, c)| *c);
        let tag = ('\u{e0020}'..='\u{e007f}').contains(&c);
        flag = c == '\u{1f3f4}' || (flag && tag);
        if is_hidden(c) && !(flag && tag) && !is_usual(before, c, after) {
            count += 1;
            first = first.or(Some(at));
            if named.len() < NAMED && !named.contains(&c) {
                named.push(c);
            }
            if tag && tagged.len() < TAGGED {
                tagged.extend(char::from_u32(c as u32 - 0xe0000));
            }
        }
        before = c;
    }
    let Some(first) = first else { return };
    let names: Vec<String> = named.iter().map(|c| format!("U+{:04X}", *c as u32)).collect();
    let characters = if count == 1 { "character that is" } else { "characters that are" };
    let mut says = format!("{count} {characters} not seen ({})", names.join(", "));
    if named.iter().any(|c| turns(*c)) {
        says.push_str(", by which text changes its direction");
    }
    if !tagged.is_empty() {
        says.push_str(&format!(", which spell \"{}\"", exact(&tagged)));
    }
    put(Suspicion::Hidden, says, first);
}

fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a hidden character does its work where it stands: line ends, what makes a symbol an emoji, and joiners
/// within emojis and scripts that need them.
fn is_usual(before: char, c: char, after: char) -> bool {
    let symbol = |c: char| !c.is_ascii() && !c.is_alphanumeric() && !is_hidden(c) && !c.is_whitespace();
    match c {
        '\n' | '\t' => true,
        '\r' => after == '\n',
        '\u{fe0f}' => symbol(before) || matches!(before, '#' | '*' | '0'..='9') && after == '\u{20e3}',
        '\u{200d}' => (symbol(before) || before == '\u{fe0f}') && symbol(after) || joins(before) && joins(after),
        '\u{200c}' => joins(before) && joins(after),
        _ => false,
    }
}

/// Arabic, Persian and the scripts of India, where joiners change how letters connect.
fn joins(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{6ff}' | '\u{750}'..='\u{77f}' | '\u{900}'..='\u{dff}')
}

/// Whether a word mixes letters with others that look like them, or is all in another style of them.
fn disguises(word: &str) -> bool {
    let styled = |c: &char| matches!(c, '\u{1d400}'..='\u{1d7ff}' | '\u{ff21}'..='\u{ff5a}' | '\u{24b6}'..='\u{24e9}');
    word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(|c| is_lookalike(c) && !styled(&c))
        || word.chars().filter(styled).count() >= STYLED
}
