//! What tests of egress share: a resolver that answers as it is told, and a witness that remembers.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Class, Fault};

use super::passage::{Limits, Passage, Witness};
use super::resolve::Resolve;
use super::rule::{Rule, Rules};
use super::{Egress, Policy};

/// Every name is here.
pub(super) struct Everywhere(pub(super) IpAddr);

impl Resolve for Everywhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let address = self.0;
        async move { Ok(vec![address]) }.boxed()
    }
}

/// Remembers what it saw; may refuse.
#[derive(Default)]
pub(super) struct Seen {
    passages: Mutex<Vec<Passage>>,
    opened: Mutex<usize>,
    broken: bool,
}

impl Seen {
    /// Cannot record anything.
    pub(super) fn broken() -> Self {
        Seen { broken: true, ..Seen::default() }
    }

    pub(super) fn opened(&self) -> usize {
        *self.opened.lock().unwrap()
    }

    /// The passages that have ended, once there are that many.
    pub(super) async fn passages(&self, count: usize) -> Vec<Passage> {
        for _ in 0..1000 {
            let passages = self.passages.lock().unwrap().clone();
            if passages.len() >= count {
                return passages;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {:?}", self.passages.lock().unwrap());
    }
}

impl Witness for Seen {
    fn opens<'a>(&'a self, _: &'a Passage) -> BoxFuture<'a, Result<(), Fault>> {
        *self.opened.lock().unwrap() += 1;
        let broken = self.broken;
        async move { if broken { Err(Fault::new(Class::Audit, "the audit is unavailable")) } else { Ok(()) } }.boxed()
    }

    fn ended(&self, passage: Passage) {
        self.passages.lock().unwrap().push(passage);
    }
}

/// Egress by these rules and host ports, where every name leads to this host's loopback.
pub(super) fn egress(rules: &[&str], host_ports: &[u16], limits: Limits) -> (Arc<Egress>, Arc<Seen>) {
    with(rules, host_ports, limits, Seen::default())
}

pub(super) fn with(rules: &[&str], host_ports: &[u16], limits: Limits, seen: Seen) -> (Arc<Egress>, Arc<Seen>) {
    let policy = Policy {
        server: "notes".into(),
        instance: "c0ffee".into(),
        rules: Rules::new(rules.iter().map(|rule| Rule::parse(rule).unwrap())),
        host_ports: host_ports.to_vec(),
        limits,
    };
    let seen = Arc::new(seen);
    (
        Arc::new(Egress::new(policy, Arc::default(), Arc::new(Everywhere("127.0.0.1".parse().unwrap())), seen.clone())),
        seen,
    )
}
