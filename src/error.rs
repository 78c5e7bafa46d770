//! Failures as values: whose fault, whether a retry is safe, and two texts. Knows nothing of MCP, engines or files.
//!
//! Every failure of a call ends up as a [`Fault`]. The *outward* text goes to the caller and names no path, secret or
//! other principal; the *inward* text goes to the log under the same error id. The class decides the exit code of a
//! scripted call, the outcome in the audit, and how a session words its answer.

use std::fmt;

/// Who can mend the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The caller wrote something that cannot be served.
    Caller,
    /// The downstream server failed.
    Server,
    /// The operator's configuration, images or engine stand in the way.
    Operator,
    /// A bug of ours.
    Gateway,
}

/// What kind of failure it is; one per distinct answer, exit code or audit outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Wrong command line or configuration.
    Usage,
    /// The target does not exist, or the caller may not know that it does.
    Unknown,
    /// It is not as somebody has approved it, and has to be approved.
    Unapproved,
    /// A rate or concurrency limit refused the call.
    RateLimited,
    /// The server cannot be reached, started or used.
    Unavailable,
    /// A deadline passed.
    Timeout,
    /// The server died while it held the call.
    Crashed,
    /// A message was over its size limit.
    TooLarge,
    /// The server answered with something that is no JSON-RPC response.
    Malformed,
    /// The caller withdrew the call.
    Cancelled,
    /// The engine cannot be reached or failed.
    Engine,
    /// The compartment is not what was asked, so nothing runs.
    Isolation,
    /// The audit cannot be written, so nothing is called.
    Audit,
    /// A bug of ours.
    Bug,
}

impl Class {
    /// Who can mend a failure of this class.
    pub fn whose(self) -> Whose {
        match self {
            Class::Usage | Class::Unknown | Class::RateLimited | Class::Cancelled => Whose::Caller,
            Class::Unavailable | Class::Timeout | Class::Crashed | Class::TooLarge | Class::Malformed => Whose::Server,
            Class::Engine | Class::Isolation | Class::Audit | Class::Unapproved => Whose::Operator,
            Class::Bug => Whose::Gateway,
        }
    }

    /// The exit code of a command that ends with this failure.
    pub fn exit(self) -> Exit {
        match self {
            Class::Usage => Exit::Usage,
            Class::Unknown | Class::Unapproved => Exit::Unknown,
            Class::RateLimited => Exit::RateLimited,
            Class::Engine | Class::Isolation => Exit::Isolation,
            Class::Audit => Exit::Audit,
            Class::Bug => Exit::Bug,
            _ => Exit::Unavailable,
        }
    }

    /// The word for this failure in an audit outcome.
    pub fn outcome(self) -> &'static str {
        match self {
            Class::Unknown => "unknown",
            Class::Unapproved => "denied",
            Class::RateLimited => "rate_limited",
            Class::Timeout => "timeout",
            Class::Crashed => "crashed",
            Class::TooLarge => "too_large",
            Class::Malformed => "malformed",
            Class::Cancelled => "cancelled",
            _ => "unavailable",
        }
    }
}

/// A failure with a text for the caller and one for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub class: Class,
    /// What the caller may read: lower case, no full stop, no secret, no path of the host.
    pub outward: String,
    /// What the operator reads in the log; may be the same.
    pub inward: String,
}

impl Fault {
    /// A failure whose two texts are the same.
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        let outward = text.into();
        Fault { class, inward: outward.clone(), outward }
    }

    /// The same failure with a fuller text for the log.
    pub fn with_inward(mut self, inward: impl Into<String>) -> Self {
        self.inward = inward.into();
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inward)
    }
}

impl std::error::Error for Fault {}

/// Exit codes, a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well.
    Fine = 0,
    /// The tool answered with an error.
    ToolError = 1,
    /// Usage or configuration.
    Usage = 2,
    /// Unknown or not allowed.
    Unknown = 3,
    /// Rate limited.
    RateLimited = 4,
    /// The server is unavailable, timed out or failed.
    Unavailable = 5,
    /// The engine is unavailable, or isolation is not proven.
    Isolation = 6,
    /// The audit is unavailable.
    Audit = 7,
    /// A bug.
    Bug = 70,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_contract() {
        let of = |c: Class| c.exit() as u8;
        assert_eq!(of(Class::Usage), 2);
        assert_eq!((of(Class::Unknown), of(Class::Unapproved)), (3, 3));
        assert_eq!(of(Class::RateLimited), 4);
        for c in
            [Class::Unavailable, Class::Timeout, Class::Crashed, Class::TooLarge, Class::Malformed, Class::Cancelled]
        {
            assert_eq!(of(c), 5, "{c:?}");
        }
        assert_eq!((of(Class::Engine), of(Class::Isolation)), (6, 6));
        assert_eq!((of(Class::Audit), of(Class::Bug)), (7, 70));
    }
}
