//! The JSON-RPC envelope of one message: what kind it is, its id, method, and where its payload lies. Knows no MCP.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::object::Object;

/// A request id exactly as it was written: `1`, `"1"` and `1.0` are three ids.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// The id of a value that is a string or a number.
    pub fn of(value: &RawValue) -> Option<Self> {
        let text = value.get();
        let first = text.as_bytes().first()?;
        (*first == b'"' || *first == b'-' || first.is_ascii_digit()).then(|| Id(text.into()))
    }

    /// Its JSON text.
    pub fn json(&self) -> &str {
        &self.0
    }
}

impl From<u64> for Id {
    fn from(n: u64) -> Self {
        Id(n.to_string().into())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One parsed message.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// The whole message.
    pub object: Object<'a>,
    /// What it is.
    pub kind: Kind<'a>,
}

/// What a message is.
#[derive(Debug)]
pub enum Kind<'a> {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters, if any; `null` counts as none.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters, if any.
        params: Option<&'a RawValue>,
    },
    /// A result for one of our requests.
    Result {
        /// The id as it came.
        id: Id,
        /// The result.
        result: &'a RawValue,
    },
    /// An error for one of our requests.
    Error {
        /// The id as it came; `None` where it is null.
        id: Option<Id>,
        /// The error.
        error: &'a RawValue,
    },
}

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It is no JSON. JSON-RPC 2.0 section 5.1: -32700.
    NotJson,
    /// It is JSON, but no message: -32600. With the id, where there is one to answer.
    NotMessage {
        /// The id to answer under.
        id: Option<Id>,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Members that decide what is done with a message, so that a second one of the same name is refused.
const DECIDING: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

impl<'a> Envelope<'a> {
    /// Parses one message.
    pub fn parse(text: &'a str) -> Result<Self, Defect> {
        let object = match Object::parse(text) {
            Ok(object) => object,
            Err(_) if serde_json::from_str::<&RawValue>(text).is_ok() => {
                return Err(Defect::NotMessage { id: None, why: "a message is one JSON object" });
            }
            Err(_) => return Err(Defect::NotJson),
        };
        let kind = Self::kind(&object)?;
        Ok(Envelope { object, kind })
    }

    fn kind(object: &Object<'a>) -> Result<Kind<'a>, Defect> {
        let raw_id = object.get("id");
        let id = raw_id.and_then(Id::of);
        let defect = |why| Err(Defect::NotMessage { id: id.clone(), why });
        if let Some(twice) = DECIDING.iter().find(|key| object.repeats(key)) {
            let _ = twice;
            return defect("a member occurs twice");
        }
        if let Some(method) = object.get("method") {
            let Ok(method) = serde_json::from_str::<String>(method.get()) else {
                return defect("method must be a string");
            };
            let method = Cow::Owned(method);
            let params = object.get("params").filter(|p| p.get() != "null");
            return match (raw_id, id) {
                (None, _) => Ok(Kind::Notification { method, params }),
                (Some(_), Some(id)) => Ok(Kind::Request { id, method, params }),
                (Some(_), None) => Err(Defect::NotMessage { id: None, why: "id must be a string or a number" }),
            };
        }
        // Some servers write "error": null beside a result, or the reverse.
        let error = object.get("error").filter(|e| e.get() != "null");
        match (error, object.get("result"), id) {
            (Some(error), _, id) => Ok(Kind::Error { id, error }),
            (None, Some(result), Some(id)) => Ok(Kind::Result { id, result }),
            (None, _, id) => {
                Err(Defect::NotMessage { id, why: "neither a method, nor a result with its id, nor an error" })
            }
        }
    }
}

/// The id in the ends of a message that was too long to be parsed, if it can be found without doubt: the only top-level
/// `"id"` member of the part that is there.
pub fn find_id(head: &[u8], tail: &[u8]) -> Option<Id> {
    id_near(head, true).or_else(|| id_near(tail, false))
}

/// Looks for a top-level `"id":` by walking from the start, or, in a tail, for one directly before the last brace.
fn id_near(part: &[u8], from_start: bool) -> Option<Id> {
    let text = String::from_utf8_lossy(part);
    if from_start {
        return walk(&text);
    }
    let body = text.trim_end().strip_suffix('}')?;
    let at = body.rfind("\"id\"")?;
    let value = body[at + 4..].trim_start().strip_prefix(':')?.trim();
    serde_json::from_str::<&RawValue>(value).ok().and_then(Id::of)
}

/// The value of the first `"id"` at depth one.
fn walk(text: &str) -> Option<Id> {
    let (mut depth, mut chars) = (0usize, text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            '"' => {
                let end = string_end(text, at)?;
                let rest = text[end..].trim_start();
                if depth == 1
                    && &text[at..end] == "\"id\""
                    && let Some(value) = rest.strip_prefix(':')
                {
                    let mut values = serde_json::Deserializer::from_str(value).into_iter::<&RawValue>();
                    return values.next()?.ok().and_then(Id::of);
                }
                while chars.clone().next().is_some_and(|(n, _)| n < end) {
                    chars.next();
                }
            }
            _ => {}
        }
    }
    None
}

/// The place behind the closing quote of the string that begins at `start`.
fn string_end(text: &str, start: usize) -> Option<usize> {
    let mut escaped = false;
    for (n, c) in text[start + 1..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(start + 1 + n + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> String {
        match Envelope::parse(text) {
            Ok(e) => match e.kind {
                Kind::Request { id, method, .. } => format!("request {id:?} {method}"),
                Kind::Notification { method, .. } => format!("notification {method}"),
                Kind::Result { id, result } => format!("result {id:?} {}", result.get()),
                Kind::Error { id, error } => format!("error {id:?} {}", error.get()),
            },
            Err(Defect::NotJson) => "not json".into(),
            Err(Defect::NotMessage { id, .. }) => format!("not a message {id:?}"),
        }
    }

    #[test]
    fn kinds() {
        for (text, want) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
            (r#"{"id":"1","method":"ping","params":null}"#, "request \"1\" ping"),
            (r#"{"id":90071992547409931234,"method":"x"}"#, "request 90071992547409931234 x"),
            (r#"{"method":"n"}"#, "notification n"),
            (r#"{"id":1,"result":{},"error":null}"#, "result 1 {}"),
            (r#"{"id":1,"result":null,"error":{"code":1}}"#, "error Some(1) {\"code\":1}"),
            (r#"{"id":null,"error":{}}"#, "error None {}"),
            (r#"{"id":null,"method":"x"}"#, "not a message None"),
            (r#"{"id":[1],"method":"x"}"#, "not a message None"),
            (r#"{"id":7,"method":5}"#, "not a message Some(7)"),
            (r#"{"id":7,"method":"a","method":"b"}"#, "not a message Some(7)"),
            (r#"{"id":7}"#, "not a message Some(7)"),
            ("[1,2]", "not a message None"),
            ("[1,2", "not json"),
            ("{ not json", "not json"),
            ("\0", "not json"),
            ("", "not json"),
        ] {
            assert_eq!(kind(text), want, "{text}");
        }
    }

    #[test]
    fn deep_nesting_and_odd_numbers_are_no_defect() {
        let deep = format!(r#"{{"id":1,"result":{{"a":{}1e400{}}}}}"#, "[".repeat(500), "]".repeat(500));
        assert!(Envelope::parse(&deep).is_ok());
    }

    #[test]
    fn the_id_of_a_message_that_is_too_long_is_found_at_either_end() {
        let find = |head: &str, tail: &str| find_id(head.as_bytes(), tail.as_bytes()).map(|id| id.json().to_owned());
        assert_eq!(find(r#"{"jsonrpc":"2.0","id":17,"method":"x","params":{"a":"xxx"#, ""), Some("17".into()));
        assert_eq!(find(r#"{"id":"a\"b","method":"#, ""), Some(r#""a\"b""#.into()));
        assert_eq!(find(r#"{"result":{"id":3,"t":"xx"#, r#"xx"},"id": 4 }"#), Some("4".into()));
        assert_eq!(find(r#"{"result":{"id":3,"t":"xx"#, r#"xx"}}"#), None);
        assert_eq!(find("xxxx", "xxx"), None);
    }
}
