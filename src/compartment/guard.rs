//! The guard of a server's network: a server of the program's own that the other one's container joins, started and proven
//! like any. Knows neither what it carries nor who decides on that.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{GUARD, Network, Server, resolve};
use crate::downstream::link::Link;
use crate::egress::Policy;
use crate::error::{Class, Fault};

use super::seat::Seat;
use super::verify::Evidence;
use super::{Compartment, Engine, Lease, Owner};

/// Its image.
pub const GUARD_IMAGE: &str = "bulkhead/guard";
/// Where that has its program.
const PROGRAM: &str = "/guard";

/// A guard that was started for one server and one principal, and proven. There is no other way to one.
#[derive(Clone, Debug)]
pub struct Guard {
    container: String,
    image: String,
    evidence: Arc<Evidence>,
    /// The digest of the server's configuration, which holds what it may reach.
    digest: String,
    owner: Owner,
    proxy: Option<u16>,
    seat: Option<Arc<Seat>>,
    /// Its network as the kernel names it.
    namespace: String,
}

/// What a server may reach, for an instance that is not there yet; none where it is nothing.
pub fn policy(server: &Server) -> Option<Policy> {
    let Network::Guarded { rules, host_ports } = &server.network else { return None };
    Some(Policy {
        server: server.name.as_str().to_owned(),
        instance: String::new(),
        rules: rules.clone(),
        host_ports: host_ports.clone(),
        limits: server.egress_limits,
    })
}

impl Guard {
    /// Starts the guard of a server that may do so much; the link is to whatever listens to it.
    pub async fn start(
        engine: &Engine,
        server: &Server,
        policy: &Policy,
        owner: &Owner,
        lease: Lease,
        within: Duration,
    ) -> Result<(Guard, Link), Fault> {
        let unusable = |fault: Fault| {
            let told = |text: &str| format!("server {}: the guard of its network cannot be used: {text}", server.name);
            Fault::new(fault.class, told(&fault.outward)).with_inward(told(&fault.inward))
        };
        let image = engine.own_image(GUARD_IMAGE).await.map_err(unusable)?;
        let own = entry(policy).map_err(unusable)?;
        let compartment = Compartment::guarding(&server.name, &own, &image, owner, lease).map_err(unusable)?;
        let confined = super::start(engine, compartment, within).await.map_err(unusable)?;
        let guard = Guard {
            container: confined.container,
            image: confined.image,
            evidence: Arc::new(confined.evidence),
            digest: server.digest.clone(),
            owner: owner.clone(),
            proxy: policy.proxy_port(),
            seat: confined.seat,
            namespace: confined.namespace,
        };
        Ok((guard, confined.link))
    }

    /// Its container's id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Its image's id.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The proof that it is confined itself.
    pub fn evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// Its processors, where its server is to be, too.
    pub(super) fn seat(&self) -> Option<&Arc<Seat>> {
        self.seat.as_ref()
    }

    /// Its network as the kernel names it.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where the proxy is that it leads to, if there is one.
    pub(super) fn proxy(&self) -> Option<u16> {
        self.proxy
    }

    /// Whether it was started for that server, as it is configured, and that principal.
    pub(super) fn is_of(&self, server: &Server, owner: &Owner) -> bool {
        self.digest == server.digest && self.owner == *owner
    }
}

/// The guard's own entry.
fn entry(policy: &Policy) -> Result<Server, Fault> {
    let mut command = vec![PROGRAM.to_owned()];
    command.extend(policy.listeners().iter().map(|(port, _)| port.to_string()));
    // The lists of JSON are lists of TOML.
    let command = serde_json::Value::from(command);
    let (memory, cpus, pids) = (GUARD.memory >> 10, GUARD.cpus, GUARD.pids);
    let entry =
        format!("image = {GUARD_IMAGE:?}\ncommand = {command}\nmemory = \"{memory}k\"\ncpus = {cpus:?}\npids = {pids}");
    resolve::own("guard", &entry).map_err(|faults| Fault::new(Class::Bug, format!("it cannot be configured: {faults}")))
}

#[cfg(test)]
impl Guard {
    /// One of a test's, which runs nowhere.
    pub(super) fn of(server: &Server, owner: &Owner, container: &str) -> Self {
        Guard {
            container: container.to_owned(),
            image: "sha256:0".to_owned(),
            evidence: Arc::new(Evidence { digest: "e1".to_owned(), controls: Vec::new() }),
            digest: server.digest.clone(),
            owner: owner.clone(),
            proxy: policy(server).and_then(|policy| policy.proxy_port()),
            seat: None,
            namespace: super::testing::NAMESPACE.to_owned(),
        }
    }
}
