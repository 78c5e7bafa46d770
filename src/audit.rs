//! What was asked, by whom, under which rule, and what came of it: an append-only file of chained records. Knows nothing of
//! JSON-RPC, engines and limits.
//!
//! A [`record`] is made of fields; [`redact`] takes secrets out of them and [`text`] makes them harmless to look at;
//! [`chain`] seals them into a line that holds the hash of the line before. [`writer`] is the handle that calls are made
//! with: one thread that owns a [`ledger`], the file that other gateways may be writing too. [`query`] reads it back.

pub mod chain;
mod key;
mod ledger;
mod lines;
mod place;
pub mod query;
pub mod record;
pub mod redact;
mod tail;
mod text;
pub mod writer;

pub use record::{Ended, GatewayEvent, GatewayWord, Intent, Isolation, Outcome, Record, ServerEvent, ServerWord};
pub use redact::Redactor;
pub use writer::{Audit, Written};

use crate::error::{Class, Fault};

/// The audit cannot be written or read; `inward` says of which file and why.
fn unavailable(inward: impl Into<String>) -> Fault {
    Fault::new(Class::Audit, "the audit is unavailable, so nothing is called").with_inward(inward)
}

#[cfg(test)]
mod fixture {
    //! Records with something in every field, and a directory for a file of them.

    use std::path::PathBuf;

    use super::{Ended, GatewayEvent, GatewayWord, Intent, Isolation, Outcome, ServerEvent, ServerWord};
    use crate::name::{CallId, Role};

    pub fn dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        (dir, path)
    }

    pub fn intent(call: CallId) -> Intent {
        let some = |text: &str| Some(text.to_owned());
        Intent {
            call,
            principal: some("me"),
            actor: "stdio:me".into(),
            role: Role::User,
            face: "stdio",
            session: some("s-1"),
            client: some("inspector 1.0"),
            method: "tools/call".into(),
            exposed: some("time__now"),
            server: some("time"),
            tool: some("now"),
            allow: true,
            policy: vec!["min-role"],
            args_bytes: 2,
            args_hash: some("abc"),
            instance: some("c0ffee"),
            image: some("sha256:1"),
            isolation: Some(Isolation::Proven),
            evidence: some("sha256:2"),
        }
    }

    pub fn outcome(call: CallId) -> Outcome {
        Outcome { call, outcome: Ended::Ok, detail: None, ms: 12, result_bytes: 34 }
    }

    pub fn server() -> ServerEvent {
        let (container, image) = (Some("c0ffee".to_owned()), Some("sha256:1".to_owned()));
        let reason = Some("asked to".to_owned());
        ServerEvent { server: "time".into(), event: ServerWord::Stopped, container, image, evidence: None, reason }
    }

    pub fn gateway(event: GatewayWord) -> GatewayEvent {
        GatewayEvent { event, config_digest: Some("d1".into()), policy_digest: Some("d2".into()) }
    }
}
