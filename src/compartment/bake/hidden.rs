//! Secrets taken out of texts, in the spellings that they turn up in. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands where a secret was.
const INSTEAD: &str = "(hidden)";
/// Shorter ones are words that may stand anywhere by chance.
const TELLING: usize = 8;

/// The secrets of one bake.
#[derive(Clone, Default)]
pub(in crate::compartment) struct Hidden(Vec<String>);

impl Hidden {
    /// Those texts, and what they look like encoded.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let spellings = secrets.into_iter().filter(|secret| !secret.is_empty()).flat_map(|secret| {
            let quoted = serde_json::Value::from(secret).to_string();
            [
                secret.to_owned(),
                quoted.trim_matches('"').to_owned(),
                utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
                STANDARD.encode(secret).trim_end_matches('=').to_owned(),
                URL_SAFE_NO_PAD.encode(secret),
            ]
        });
        let mut all: Vec<String> = spellings.collect();
        // A secret may be a part of another one.
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Hidden(all)
    }

    /// The text without them.
    pub fn out_of(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), INSTEAD))
    }

    /// Whether one is in a text, and not by chance.
    pub fn is_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| secret.len() >= TELLING && text.contains(secret.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_however_it_is_spelled() {
        let hidden = Hidden::new(["p\"ss/w", "ci:p\"ss/w", ""]);
        for text in ["p\"ss/w", "p\\\"ss/w", "p%22ss%2Fw", "cCJzcy93", "Y2k6cCJzcy93", "ci:p\"ss/w", "ci%3Ap%22ss%2Fw"]
        {
            assert_eq!(hidden.out_of(&format!("a {text} b")), "a (hidden) b");
        }
        assert_eq!(Hidden::default().out_of("a"), "a");
        assert!(hidden.is_in("xY2k6cCJzcy93") && !hidden.is_in("x p%22ss") && !Hidden::new(["admin"]).is_in("admin"));
    }
}
