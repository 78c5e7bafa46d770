//! Why a connection is not made: what the tool inside reads, and what the log does. Knows no protocol.

use std::fmt;

/// What kind of refusal it is; each protocol has its own word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rules do not allow it.
    Denied,
    /// More than the limits allow.
    Limit,
    /// It is no request that we understand.
    Malformed,
    /// The name or the address leads nowhere.
    Unreachable,
    /// Nobody took the connection in time.
    Late,
    /// It cannot be recorded, so it is not made.
    Unrecorded,
}

impl Kind {
    /// The word for it in the audit.
    pub fn decision(self) -> &'static str {
        match self {
            Kind::Denied => "deny",
            Kind::Limit => "limit",
            Kind::Malformed => "malformed",
            Kind::Unreachable => "unreachable",
            Kind::Late => "timeout",
            Kind::Unrecorded => "unrecorded",
        }
    }
}

/// A connection that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub kind: Kind,
    /// One sentence for the tool inside; no address that it did not ask for.
    pub outward: String,
    /// The same for the log, with addresses and the system's words.
    pub inward: String,
}

impl Refusal {
    /// A refusal whose two texts are the same.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        let outward = text.into();
        Refusal { kind, inward: outward.clone(), outward }
    }

    /// The same with a fuller text for the log.
    pub fn with_inward(mut self, inward: impl Into<String>) -> Self {
        self.inward = inward.into();
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inward)
    }
}

impl std::error::Error for Refusal {}
