//! Text from outside, fit to be kept: without the values of secrets, and no longer than it needs to be. Knows nothing of
//! records. Pure, but for what one comes to know later.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, BuildError};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::config::Sensitive;

/// What stands where a secret was.
const REDACTED: &str = "[redacted]";

/// Characters of a text that are kept.
const MAX_CHARS: usize = 500;

/// A value shorter than this is no secret worth the name, and taking it out would tear up ordinary words.
const MIN_SECRET: usize = 4;

/// Likewise for the part of a Base64 text that does not depend on what stands around the secret, and for a single line
/// of a secret of many lines.
const MIN_PART: usize = 8;

/// RFC 3986's unreserved characters stay.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same for a path.
const PATH: &AsciiSet = &COMPONENT.remove(b'/');

/// Finds secrets by their values, in the forms in which they travel. Whoever shares one knows at once what it comes to
/// know.
#[derive(Debug, Default)]
pub struct Redactor {
    /// `None` while there are no secrets.
    forms: RwLock<Option<Arc<AhoCorasick>>>,
}

impl Redactor {
    /// One that knows `secrets`, each as it is, escaped for JSON, in Base64 at any place of a longer text, and
    /// percent-encoded; likewise the lines of a secret of many lines, and the credential after a scheme (`Bearer …`).
    ///
    /// Fails only where the secrets are too large to be searched for.
    pub fn new(secrets: &[Sensitive]) -> Result<Self, BuildError> {
        Ok(Redactor { forms: RwLock::new(finder(secrets)?) })
    }

    /// Knows these from now on, and no others. On an error it knows what it knew.
    pub fn know(&self, secrets: &[Sensitive]) -> Result<(), BuildError> {
        let forms = finder(secrets)?;
        *self.forms.write().unwrap_or_else(PoisonError::into_inner) = forms;
        Ok(())
    }

    /// `text` without secrets, cut to a length that a record can bear, the full length noted.
    pub fn clean(&self, text: &str) -> String {
        shorten(&self.redact(text), text.len())
    }

    /// `text` without secrets.
    pub fn redact(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for (start, end) in self.places(text) {
            out.push_str(&text[kept..start]);
            out.push_str(REDACTED);
            kept = end;
        }
        out.push_str(&text[kept..]);
        out
    }

    /// Where secrets are, overlapping finds as one, so that no end of any of them stays.
    fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let forms = self.forms.read().unwrap_or_else(PoisonError::into_inner).clone();
        let all = forms.iter().flat_map(|forms| forms.find_overlapping_iter(text));
        let mut found: Vec<_> = all.map(|m| (m.start(), m.end())).collect();
        found.sort_unstable();
        found.dedup_by(|next, last| {
            let overlap = next.0 <= last.1;
            if overlap {
                last.1 = last.1.max(next.1);
            }
            overlap
        });
        found
    }
}

/// What finds all forms of these; `None` where there is nothing to be found.
fn finder(secrets: &[Sensitive]) -> Result<Option<Arc<AhoCorasick>>, BuildError> {
    let forms: BTreeSet<String> = secrets.iter().flat_map(|s| parts(s.reveal())).flat_map(forms).collect();
    if forms.is_empty() { Ok(None) } else { AhoCorasick::new(forms).map(|forms| Some(Arc::new(forms))) }
}

/// `text` of our own, cut in the same way.
pub(super) fn cap(text: &str) -> String {
    shorten(text, text.len())
}

/// The first characters of a text, and how long it was.
fn shorten(text: &str, full: usize) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({full} bytes)", &text[..end]),
    }
}

/// A secret and those of its parts that are as secret as the whole.
fn parts(secret: &str) -> Vec<&str> {
    let whole = secret.trim();
    let lines = whole.lines().map(str::trim).filter(|line| line.len() >= MIN_PART);
    let credential = whole.split_once(' ').map(|(_, rest)| rest.trim()).filter(|rest| rest.len() >= MIN_PART);
    let all = [secret, whole].into_iter().chain(lines).chain(credential);
    all.filter(|part| part.trim().len() >= MIN_SECRET).collect()
}

/// The forms in which a value may show up.
fn forms(value: &str) -> Vec<String> {
    let json = super::text::to_json(&value);
    let plain_json = serde_json::Value::from(value).to_string();
    let inner = |json: &str| json[1..json.len() - 1].to_owned();
    let percent = utf8_percent_encode(value, COMPONENT).to_string();
    let path = utf8_percent_encode(value, PATH).to_string();
    let mut forms = vec![
        value.to_owned(),
        inner(&json),
        inner(&plain_json),
        inner(&plain_json).replace('/', "\\/"),
        percent.replace("%20", "+"),
        lower_escapes(&percent),
        lower_escapes(&path),
        percent,
        path,
    ];
    forms.extend(base64_forms(value.as_bytes()));
    forms
}

/// `%2F` as `%2f`.
fn lower_escapes(percent: &str) -> String {
    let mut pieces = percent.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let (digits, rest) = piece.split_at(2);
        text + "%" + &digits.to_ascii_lowercase() + rest
    })
}

/// Base64 turns three bytes into four digits, so a value within a longer text (`user:secret`) has three forms. Of each, the
/// digits that also depend on a byte before are left out, and once those that depend on a byte after.
fn base64_forms(value: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for (before, first) in [(0, 0), (1, 2), (2, 3)] {
            let digits = engine.encode([&vec![0; before], value].concat());
            let last = (before + value.len()) * 8 / 6;
            let parts = [&digits[first..], &digits[first..last.max(first)]];
            forms.extend(parts.into_iter().filter(|part| part.len() >= MIN_PART).map(str::to_owned));
        }
        forms.push(engine.encode(value));
    }
    forms
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::new(&secrets.iter().map(|s| Sensitive::new(*s)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_secret_is_found_in_every_form_it_travels_in() {
        let secret = "SENTINEL-a/b+c==\"ü";
        let r = redactor(&[secret]);
        for form in forms(secret).iter().chain([&STANDARD.encode(secret)]) {
            let clean = r.clean(&format!("bad key {form}!"));
            let rest = clean.trim_end_matches(['=', '!']);
            assert_eq!(rest, "bad key [redacted]", "{form}");
        }
    }

    #[test]
    fn base64_of_a_longer_text_does_not_carry_it_out() {
        let r = redactor(&["correct horse battery"]);
        for user in ["", "a", "ab", "abc"] {
            for after in ["", "x", "xy"] {
                let text = STANDARD.encode(format!("{user}correct horse battery{after}"));
                let clean = r.clean(&text);
                assert!(clean.contains(REDACTED) && clean.len() < REDACTED.len() + 12, "{clean}");
            }
        }
    }

    #[test]
    fn the_parts_of_a_secret_are_secret() {
        let r = redactor(&[
            "Bearer SENTINEL-3",
            "-----BEGIN KEY-----\nMIIabcdefgh\nxyz\n-----END KEY-----\n",
            " padded \n",
        ]);
        for (text, clean) in [
            ("token SENTINEL-3 refused", "token [redacted] refused"),
            ("line MIIabcdefgh", "line [redacted]"),
            ("is padded?", "is [redacted]?"),
        ] {
            assert_eq!(r.clean(text), clean);
        }
    }

    #[test]
    fn overlapping_secrets_leave_no_end_behind() {
        assert_eq!(redactor(&["abcdef", "defghi"]).clean("_abcdefghi_"), "_[redacted]_");
        assert_eq!(redactor(&["secret", "secretary"]).clean("secretary secret"), "[redacted] [redacted]");
    }

    #[test]
    fn what_it_comes_to_know_it_finds_and_what_it_is_to_forget_it_does_not() {
        let r = redactor(&["old-secret"]);
        r.know(&["old-secret", "new-secret"].map(Sensitive::new)).unwrap();
        assert_eq!(r.clean("old-secret new-secret"), "[redacted] [redacted]");
        r.know(&["new-secret"].map(Sensitive::new)).unwrap();
        assert_eq!(r.clean("old-secret new-secret"), "old-secret [redacted]");
    }

    #[test]
    fn what_is_too_short_to_be_secret_tears_nothing_up() {
        assert_eq!(redactor(&["", "1", "on", " \n"]).clean("one 1 on"), "one 1 on");
    }

    #[test]
    fn a_long_text_is_cut_and_says_how_long_it_was() {
        let r = redactor(&["hush-hush"]);
        let clean = r.clean(&"ü".repeat(5_000));
        assert_eq!(clean, "ü".repeat(MAX_CHARS) + "… (10000 bytes)");
        assert_eq!(r.clean(&"x".repeat(MAX_CHARS)), "x".repeat(MAX_CHARS));
        let across = "x".repeat(MAX_CHARS - 4) + "hush-hush";
        assert!(!r.clean(&across).contains("hush"), "redacted before it is cut");
    }

    proptest! {
        #[test]
        fn no_text_around_a_secret_keeps_it_from_being_found(a in "\\PC{0,20}", secret in "\\PC{4,20}", z in "\\PC{0,20}") {
            prop_assume!(secret.trim().len() >= MIN_SECRET);
            prop_assume!(!REDACTED.contains(secret.trim()) && !a.contains(secret.trim()) && !z.contains(secret.trim()));
            let clean = redactor(&[&secret]).redact(&format!("{a}{secret}{z}"));
            prop_assert!(clean.contains(REDACTED));
        }
    }
}
