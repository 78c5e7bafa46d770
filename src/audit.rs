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

pub use record::{
    Egress, Ended, GatewayEvent, GatewayWord, Intent, Isolation, Outcome, Record, Reload, ServerEvent, ServerWord,
};
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

    use super::{Egress, Ended, GatewayEvent, GatewayWord, Intent, Isolation, Outcome, ServerEvent, ServerWord};
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

    pub fn egress() -> Egress {
        Egress {
            connection: "c1".into(),
            server: "time".into(),
            instance: "c0ffee".into(),
            target: "a.org:443".into(),
            decision: "allow",
            reason: None,
            bytes_out: Some(1),
            bytes_in: Some(2),
            ms: Some(3),
        }
    }

    pub fn gateway(event: GatewayWord) -> GatewayEvent {
        GatewayEvent { event, config_digest: Some("d1".into()), policy_digest: Some("d2".into()), reload: None }
    }

    /// A disk that is soon full, gone with this value.
    #[cfg(target_os = "linux")]
    pub struct SmallDisk(tempfile::TempDir);

    #[cfg(target_os = "linux")]
    impl SmallDisk {
        /// `None`, said on stderr, where we may not mount.
        pub fn new(kib: u32) -> Option<Self> {
            use std::io::Write as _;
            let dir = tempfile::tempdir().unwrap();
            let options = std::ffi::CString::new(format!("size={kib}k,mode=0700")).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            match rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, options.as_c_str()) {
                Ok(()) => Some(SmallDisk(dir)),
                Err(e) => {
                    let _ = writeln!(std::io::stderr(), "skipped: a small disk cannot be mounted here ({e})");
                    None
                }
            }
        }

        pub fn path(&self) -> PathBuf {
            self.0.path().join("audit.jsonl")
        }

        /// Leaves `spare` bytes free, as far as pages allow.
        pub fn fill(&self, spare: usize) {
            use std::io::Write as _;
            let mut ballast = std::fs::File::create(self.0.path().join("ballast")).unwrap();
            while ballast.write_all(&[0; 4096]).is_ok() {}
            let len = ballast.metadata().unwrap().len();
            ballast.set_len(len.saturating_sub(spare as u64)).unwrap();
        }

        pub fn empty(&self) {
            std::fs::remove_file(self.0.path().join("ballast")).unwrap();
        }
    }

    #[cfg(target_os = "linux")]
    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}
