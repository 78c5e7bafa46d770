//! The chain of records: how a line is sealed with the hash of the line before, and how that is checked. Pure.
//!
//! A line is `{"v":1,"seq":N,` + body + `,"prev":"…","hash":"…"}`. The hash is SHA-256 over the text of `prev` followed by
//! the line with `,"hash":"…"` cut out, so anyone can check it with a text editor's worth of tools.

use std::borrow::Cow;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// The version of the records.
const VERSION: u32 = 1;

/// What `prev` is in the first record.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const HASH_MEMBER: &[u8] = b",\"hash\":\"";
const HASH_DIGITS: usize = 64;

/// Where a chain has got to: the last record's number and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// 0 before the first record.
    pub seq: u64,
    /// Lower-case hex; zeros before the first record.
    pub hash: String,
}

/// What a line says about itself, once its own hash is found right.
#[derive(Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// The head before this line.
    pub prev: Head,
    /// The head with this line.
    pub head: Head,
    /// The kind of record.
    pub kind: Cow<'a, str>,
    /// The call it belongs to, if any.
    pub call: Option<Cow<'a, str>>,
    /// The connection it belongs to, if any.
    pub connection: Option<Cow<'a, str>>,
    /// How long that took, once it has ended.
    pub ms: Option<u64>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not one of our lines at all.
    #[error("is no audit record: {0}")]
    NoRecord(String),
    /// The bytes are not those that were hashed.
    #[error("does not have the hash that its bytes give")]
    Hash,
    /// A record is missing, doubled or out of order.
    #[error("has seq {found} where {due} is due")]
    Seq {
        /// What it says.
        found: u64,
        /// What it would have to say.
        due: u64,
    },
    /// It was sealed on top of another record.
    #[error("does not hold the hash of the record before it")]
    Prev,
    /// There is no line break after it.
    #[error("is torn: it ends without a line break")]
    Torn,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    v: u32,
    seq: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    call: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    connection: Option<Cow<'a, str>>,
    #[serde(default)]
    ms: Option<u64>,
    #[serde(borrow)]
    prev: Cow<'a, str>,
}

impl Head {
    /// Before the first record.
    pub fn start() -> Self {
        Head { seq: 0, hash: NO_HASH.to_owned() }
    }

    /// Seals `body` (JSON members without braces) as the next record; the line is without its newline.
    pub fn seal(&self, body: &str) -> (String, Head) {
        let seq = self.seq + 1;
        let mut line = format!(r#"{{"v":{VERSION},"seq":{seq},{body},"prev":"{}"}}"#, self.hash);
        let hash = hash(&self.hash, line.as_bytes(), b"");
        line.truncate(line.len() - 1);
        line.push_str(&format!(r#","hash":"{hash}"}}"#));
        (line, Head { seq, hash })
    }

    /// Checks that `line` (without its newline) is whole and is the next record.
    pub fn follow<'a>(&self, line: &'a [u8]) -> Result<Sealed<'a>, Broken> {
        let sealed = unseal(line)?;
        if sealed.head.seq != self.seq + 1 {
            return Err(Broken::Seq { found: sealed.head.seq, due: self.seq + 1 });
        }
        if sealed.prev != *self {
            return Err(Broken::Prev);
        }
        Ok(sealed)
    }
}

/// Checks a line by itself: that it is a record, and that its hash is that of its bytes.
pub fn unseal(line: &[u8]) -> Result<Sealed<'_>, Broken> {
    let (text, found) = cut(line).ok_or_else(|| Broken::NoRecord("it does not end with a hash".into()))?;
    let envelope: Envelope = serde_json::from_slice(line).map_err(|e| Broken::NoRecord(e.to_string()))?;
    if envelope.v != VERSION {
        return Err(Broken::NoRecord(format!("version {}", envelope.v)));
    }
    if hash(&envelope.prev, text, b"}").as_bytes() != found {
        return Err(Broken::Hash);
    }
    let before = envelope.seq.checked_sub(1).ok_or(Broken::Seq { found: 0, due: 1 })?;
    let head = Head { seq: envelope.seq, hash: String::from_utf8_lossy(found).into_owned() };
    let prev = Head { seq: before, hash: envelope.prev.into_owned() };
    let Envelope { kind, call, connection, ms, .. } = envelope;
    Ok(Sealed { prev, head, kind, call, connection, ms })
}

/// The line up to its hash member, and the digits of that.
fn cut(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\"}")?;
    let (line, digits) = line.split_at_checked(line.len().checked_sub(HASH_DIGITS)?)?;
    Some((line.strip_suffix(HASH_MEMBER)?, digits))
}

fn hash(prev: &str, text: &[u8], end: &[u8]) -> String {
    crate::hex(&Sha256::new().chain_update(prev).chain_update(text).chain_update(end).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = concat!(
        r#"{"v":1,"seq":1,"kind":"gateway","event":"start","#,
        r#""prev":"0000000000000000000000000000000000000000000000000000000000000000","#,
        r#""hash":"4248246214301cba18b9d5fe541c0f1ffcdf85062aeb2228ede2451bd90c3535"}"#
    );
    const SECOND_HASH: &str = "6ffb8eb37f1d6a9b74a03bb66b9b594a77066231c5330c9dbcfb87c2aa108424";

    fn chain(bodies: &[&str]) -> Vec<String> {
        let mut head = Head::start();
        let mut seal = |body: &&str| {
            let (line, next) = head.seal(body);
            head = next;
            line
        };
        bodies.iter().map(&mut seal).collect()
    }

    #[test]
    fn the_form_and_the_hash_are_the_contract() {
        let lines = chain(&[r#""kind":"gateway","event":"start""#, r#""kind":"gateway","event":"stop""#]);
        assert_eq!(lines[0], FIRST);
        assert!(lines[1].ends_with(&format!(r#","hash":"{SECOND_HASH}"}}"#)), "{}", lines[1]);
    }

    #[test]
    fn a_sealed_line_follows_its_head_and_no_other() {
        let lines = chain(&[r#""kind":"intent","call":"c1""#, r#""kind":"outcome","call":"c1""#]);
        let first = Head::start().follow(lines[0].as_bytes()).unwrap();
        assert_eq!((&*first.kind, first.call.as_deref(), first.head.seq), ("intent", Some("c1"), 1));
        assert!(first.head.follow(lines[1].as_bytes()).is_ok());
        assert_eq!(Head::start().follow(lines[1].as_bytes()), Err(Broken::Seq { found: 2, due: 1 }));
        let other = Head { hash: "f".repeat(64), ..first.head };
        assert_eq!(other.follow(lines[1].as_bytes()), Err(Broken::Prev));
    }

    #[test]
    fn no_single_byte_can_be_changed_dropped_or_added() {
        let line = chain(&[r#""kind":"intent","call":"c1","tool":"x""#]).remove(0).into_bytes();
        assert!(unseal(&line).is_ok());
        for at in 0..line.len() {
            let mut flipped = line.clone();
            flipped[at] ^= 1;
            assert!(unseal(&flipped).is_err(), "flipped at {at}");
            let mut dropped = line.clone();
            dropped.remove(at);
            assert!(unseal(&dropped).is_err(), "dropped at {at}");
            let mut doubled = line.clone();
            doubled.insert(at, b' ');
            assert!(unseal(&doubled).is_err(), "added at {at}");
            assert!(unseal(&line[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_member_given_twice_is_no_record() {
        let (line, _) = Head::start().seal(r#""kind":"intent","seq":7"#);
        assert!(matches!(unseal(line.as_bytes()), Err(Broken::NoRecord(_))));
    }
}
