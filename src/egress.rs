//! What a server may reach beyond its container, and the only way there: asked for inside, decided, made and counted by
//! the gateway. Knows nothing of MCP, JSON-RPC and engines: it is handed a pair of streams.
//!
//! A server that may reach something has a network namespace with nothing in it but loopback, like any other. A guard in
//! the same namespace (`images/guard`) listens there and carries what connects to it over its own standard streams:
//!
//! 1. [`tunnel`] is our end of that: one stream a connection, and which of the guard's ports it came to.
//! 2. A port is either one of the host's loopback, or the [`proxy`], which hears in HTTP or SOCKS where it is to go.
//! 3. [`rule`] says whether that [`host`] and port are allowed, [`dial`] whether the [`address`]es that [`resolve`] gives
//!    for it are, and connects to one of them.
//! 4. [`relay`] carries the bytes, and [`passage`] counts them, against limits and a day's [`allowance`], and tells the audit.
//!
//! What the guard says is only which port it was; a guard that lied could name another port of the same server's.

pub mod address;
pub mod allowance;
pub mod dial;
pub mod environment;
pub mod host;
pub mod passage;
pub mod proxy;
pub mod refusal;
pub mod relay;
pub mod resolve;
pub mod rule;
pub mod subnet;
#[cfg(test)]
mod testing;
pub mod tunnel;

use std::sync::Arc;

use tokio::net::TcpStream;

use allowance::Allowance;
use dial::Dialer;
use passage::{Account, Limits, Open, Passage, Usage, Witness};
use refusal::{Kind, Refusal};
use resolve::Resolve;
use rule::{Rules, Target};

/// Where the proxy listens inside, or the next port above that is not one of the host's.
const PROXY_PORT: u16 = 3128;

/// What one server may reach.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The server's name, for texts and records.
    pub server: String,
    /// The instance it is for, for records.
    pub instance: String,
    /// Where the proxy may go; where there is none, there is no proxy.
    pub rules: Rules,
    /// Ports of the host's loopback that are the container's own, too.
    pub host_ports: Vec<u16>,
    /// How much.
    pub limits: Limits,
}

/// What a port of the guard's leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Wherever the client says, by the rules.
    Proxy,
    /// That port of the host's loopback.
    HostPort(u16),
}

impl Policy {
    /// The ports that the guard is to listen on, in the order of its arguments, and what they lead to.
    pub fn listeners(&self) -> Vec<(u16, Listener)> {
        let proxy = self.proxy_port().map(|port| (port, Listener::Proxy));
        proxy.into_iter().chain(self.host_ports.iter().map(|port| (*port, Listener::HostPort(*port)))).collect()
    }

    /// Where the proxy listens inside, if there is one.
    pub fn proxy_port(&self) -> Option<u16> {
        let free = (PROXY_PORT..).find(|port| !self.host_ports.contains(port));
        free.filter(|_| !self.rules.is_empty())
    }
}

/// One instance's way out.
pub struct Egress {
    policy: Policy,
    dialer: Dialer,
    account: Arc<Account>,
    witness: Arc<dyn Witness>,
}

impl Egress {
    /// For an instance, with what its server has used today, what knows names and what keeps records.
    pub fn new(policy: Policy, today: Arc<Allowance>, resolver: Arc<dyn Resolve>, witness: Arc<dyn Witness>) -> Self {
        let account = Arc::new(Account::new(policy.limits, today));
        Egress { policy, dialer: Dialer::new(resolver), account, witness }
    }

    /// What it may.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What it has used.
    pub fn usage(&self) -> Usage {
        self.account.usage()
    }

    /// All that is open is about to be cut, for this reason, which the records have.
    pub fn close(&self, why: &'static str) {
        self.account.close(why);
    }

    /// What a tool inside is told.
    fn told(&self, refusal: &Refusal) -> String {
        format!("bulkhead: server {} {}", self.policy.server, refusal.outward)
    }

    /// A connection to a target, if the rules allow it.
    async fn connect(&self, target: &Target) -> Result<(TcpStream, Open), Refusal> {
        let rules = &self.policy.rules;
        let allowed = dial::allowed(target, rules);
        self.make(target.to_string(), allowed, self.dialer.dial(target, rules, self.policy.limits.connect)).await
    }

    /// A connection to one of the ports of the host's loopback that are granted.
    async fn host_port(&self, port: u16) -> Result<(TcpStream, Open), Refusal> {
        self.make(format!("127.0.0.1:{port}"), Ok(()), self.dialer.host_port(port, self.policy.limits.connect)).await
    }

    async fn make(
        &self,
        target: String,
        allowed: Result<(), Refusal>,
        dial: impl Future<Output = Result<TcpStream, Refusal>>,
    ) -> Result<(TcpStream, Open), Refusal> {
        let mut open = self.open(target);
        let made = async {
            open.pace().await;
            allowed?;
            open.enter()?;
            open.record().await?;
            dial.await
        };
        match made.await {
            Ok(stream) => {
                open.made();
                Ok((stream, open))
            }
            Err(refusal) => Err(self.refused(open, refusal)),
        }
    }

    /// A request that says nothing that can be decided.
    async fn malformed(&self, text: impl Into<String>) -> Refusal {
        let open = self.open(String::new());
        open.pace().await;
        self.refused(open, Refusal::new(Kind::Malformed, text))
    }

    fn refused(&self, open: Open, refusal: Refusal) -> Refusal {
        tracing::info!(server = %self.policy.server, "egress refused: {refusal}");
        open.refused(&refusal);
        refusal
    }

    fn open(&self, target: String) -> Open {
        let (server, instance) = (self.policy.server.clone(), self.policy.instance.clone());
        let passage = Passage {
            connection: uuid::Uuid::now_v7().to_string(),
            server,
            instance,
            target,
            decision: "allow",
            reason: None,
            bytes_out: 0,
            bytes_in: 0,
            ms: 0,
        };
        Open::new(passage, self.account.clone(), self.witness.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::rule::Rule;
    use super::*;

    #[test]
    fn listeners_are_the_proxy_where_there_are_rules_and_each_port() {
        let ports = |policy: &Policy| policy.listeners();
        let mut policy = Policy { host_ports: vec![5432, 3128], ..Policy::default() };
        let granted = [(5432, Listener::HostPort(5432)), (3128, Listener::HostPort(3128))];
        assert_eq!(ports(&policy), granted);
        policy.rules = Rules::new([Rule::parse("a.org:443").unwrap()]);
        assert_eq!(ports(&policy), [[(3129, Listener::Proxy)].as_slice(), &granted].concat());
        policy.host_ports.clear();
        assert_eq!(ports(&policy), [(3128, Listener::Proxy)]);
    }
}
