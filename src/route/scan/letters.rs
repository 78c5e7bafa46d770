//! Letters that look like others. Not every one there is: those that pass for plain letters in usual fonts.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Plain letters and signs, each with what looks like it.
const LOOKALIKES: [(char, &str); 30] = [
    ('a', "аɑα"),
    ('b', "ЬƄВΒ"),
    ('c', "сϲᴄ"),
    ('d', "ԁɗ"),
    ('e', "еҽ℮Ε"),
    ('g', "ɡց"),
    ('h', "һհНΗ"),
    ('i', "іɩıɪι"),
    ('j', "јϳ"),
    ('k', "κк"),
    ('l', "ӏⅼǀ"),
    ('m', "мⅿΜ"),
    ('n', "ոпΝ"),
    ('o', "оοօσ"),
    ('p', "рρ"),
    ('q', "ԛգ"),
    ('r', "гᴦ"),
    ('s', "ѕꜱ"),
    ('t', "тτ"),
    ('u', "υսᴜ"),
    ('v', "ѵνᴠ"),
    ('w', "ԝᴡ"),
    ('x', "хχⅹ"),
    ('y', "уүγ"),
    ('z', "ᴢΖ"),
    ('-', "‐‑‒–—−"),
    ('/', "⁄∕"),
    ('.', "․"),
    ('\'', "’ʼ"),
    ('"', "“”"),
];

/// The plain lower-case letter that a character is, or looks like; the character itself in lower case where it is none.
pub(in crate::route) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let c = styled(c).unwrap_or(c);
    let lower = c.to_lowercase().next().unwrap_or(c);
    PLAIN.get(&c).or_else(|| PLAIN.get(&lower)).copied().unwrap_or(lower)
}

static PLAIN: LazyLock<HashMap<char, char>> =
    LazyLock::new(|| LOOKALIKES.iter().flat_map(|(plain, alike)| alike.chars().map(|c| (c, *plain))).collect());

/// Whether it is a letter that passes for a plain one.
pub(in crate::route) fn is_lookalike(c: char) -> bool {
    !c.is_ascii() && c.is_alphabetic() && fold(c).is_ascii_alphabetic()
}

/// The plain character of one that is only another style of it: mathematical letters, full width, circled.
fn styled(c: char) -> Option<char> {
    let nth = |first: u32, base: u8, count: u32| {
        let n = (c as u32).wrapping_sub(first);
        (n < count).then(|| (base + (n % count) as u8) as char)
    };
    match c {
        '\u{ff01}'..='\u{ff5e}' => nth(0xff01, b'!', 94),
        '\u{1d400}'..='\u{1d6a3}' => {
            let n = (c as u32 - 0x1d400) % 52;
            Some(if n < 26 { (b'A' + n as u8) as char } else { (b'a' + (n - 26) as u8) as char })
        }
        '\u{1d7ce}'..='\u{1d7ff}' => Some((b'0' + ((c as u32 - 0x1d7ce) % 10) as u8) as char),
        '\u{24b6}'..='\u{24cf}' => nth(0x24b6, b'A', 26),
        '\u{24d0}'..='\u{24e9}' => nth(0x24d0, b'a', 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_plain_letter_becomes_it() {
        let folded: String = "Ιgnоrе 𝐚𝓁𝗹 ｐｒｉｏｒ ⓔ é 日".chars().map(fold).collect();
        assert_eq!(folded, "ignore all prior e é 日");
        assert!(is_lookalike('е') && !is_lookalike('é') && !is_lookalike('e') && !is_lookalike('–'));
    }
}
