//! Text that cannot be passed on as it came: lone surrogates become U+FFFD; what is hidden becomes visible. Pure.

use std::borrow::Cow;

pub use crate::text::visible;

/// Replaces escapes of lone surrogates (`\ud83d` without its other half), which are no characters and which strict
/// parsers refuse with the whole message. Everything else stays.
pub fn mend_surrogates(json: &str) -> Cow<'_, str> {
    if memchr::memmem::find(json.as_bytes(), b"\\u").is_none() {
        return Cow::Borrowed(json);
    }
    let bytes = json.as_bytes();
    let (mut out, mut done, mut at) = (String::new(), 0, 0);
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + found;
        match surrogate(bytes, start) {
            Some(High) if surrogate(bytes, start + 6) == Some(Low) => at = start + 12,
            Some(_) => {
                out.push_str(&json[done..start]);
                out.push_str("\\ufffd");
                done = start + 6;
                at = done;
            }
            None => at = (start + 2).min(bytes.len()),
        }
    }
    if done == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[done..]);
    Cow::Owned(out)
}

use Half::{High, Low};

#[derive(PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// Which half of a surrogate pair the escape at `start` is, if it is one.
fn surrogate(bytes: &[u8], start: usize) -> Option<Half> {
    let escape = bytes.get(start..start + 6)?;
    if &escape[..2] != b"\\u" {
        return None;
    }
    let value = u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()?;
    match value {
        0xd800..=0xdbff => Some(High),
        0xdc00..=0xdfff => Some(Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_mended() {
        assert_eq!(mend_surrogates(r#""\ud83d""#), r#""\ufffd""#);
        assert_eq!(mend_surrogates(r#""\uDE00\ud83d\uD83D\ude00""#), r#""\ufffd\ufffd\uD83D\ude00""#);
        for same in [r#""\\ud83d""#, r#""\u00e9""#, r#""\ud83d\ude00""#, "\"x\"", r#""\u""#, r#""\"#] {
            assert!(matches!(mend_surrogates(same), Cow::Borrowed(s) if s == same), "{same}");
        }
    }
}
