//! JSON that is harmless to look at: whatever a terminal, an editor or a log viewer might act on is written as an escape.
//! Still the same JSON values. Pure.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// `value` as one line of JSON.
pub(super) fn to_json(value: &impl Serialize) -> String {
    let mut out = Vec::with_capacity(512);
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, Visible));
    debug_assert!(written.is_ok(), "records have text keys only, and memory takes any write");
    String::from_utf8(out).unwrap_or_default()
}

struct Visible;

impl Formatter for Visible {
    /// The fragment holds nothing that JSON itself wants escaped.
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&fragment.as_bytes()[plain..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[plain..])
    }
}

/// Characters that are not seen as themselves.
fn is_hidden(c: char) -> bool {
    c.is_control() // also ESC, with which every terminal sequence begins, and its one-byte forms above 0x7f
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'     // soft hyphen, Arabic and Mongolian marks
            | '\u{200b}'..='\u{200f}'             // zero width, direction marks
            | '\u{2028}'..='\u{202e}'             // line and paragraph separators, direction overrides
            | '\u{2060}'..='\u{206f}'             // invisible operators, direction isolates
            | '\u{fe00}'..='\u{fe0f}'             // variation selectors, which can carry hidden text
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' // byte order mark, annotations
            | '\u{e0000}'..='\u{e0fff}') // tags, further variation selectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_viewer_might_act_on_becomes_an_escape() {
        let nasty = "a\u{1b}[2J\r\n\u{7f}\u{9b}31m\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}z";
        let json = to_json(&nasty);
        assert_eq!(json, r#""a\u001b[2J\r\n\u007f\u009b31m\u2028\u2029\u202e\u2066\u200b\ufeff\udb40\udc41z""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), nasty);
    }

    #[test]
    fn ordinary_text_of_any_script_stays_readable() {
        let text = "naïve Grüße 日本語 🦀 \"quoted\" \\ /";
        assert_eq!(to_json(&text), serde_json::to_string(text).unwrap());
    }
}
