//! What servers reach, told to the audit. Decides nothing.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::audit::{self, Audit};
use crate::egress::passage::{Passage, Witness};
use crate::error::Fault;

/// Writes a record before each connection and one after it.
pub struct Recorded(pub Arc<Audit>);

impl Witness for Recorded {
    fn opens<'a>(&'a self, passage: &'a Passage) -> BoxFuture<'a, Result<(), Fault>> {
        let record = record(passage.clone());
        self.0.opens(audit::Egress { bytes_out: None, bytes_in: None, ms: None, ..record }).boxed()
    }

    fn ended(&self, passage: Passage) {
        let made = passage.decision == ALLOWED;
        let record = record(passage);
        // Nobody waits for it: it is written in its order.
        drop(if made { self.0.ended(record) } else { self.0.kept_from(record) });
    }
}

/// What is decided on a connection that is made.
const ALLOWED: &str = "allow";

fn record(passage: Passage) -> audit::Egress {
    let Passage { connection, server, instance, target, decision, reason, bytes_out, bytes_in, ms } = passage;
    let (bytes_out, bytes_in, ms) = (Some(bytes_out), Some(bytes_in), Some(ms));
    audit::Egress { connection, server, instance, target, decision, reason, bytes_out, bytes_in, ms }
}
