//! The fence of a server's network: a container of the program's own on a bridge of its own, which the server's container
//! joins once nothing but public addresses can be reached from there. Started and proven like any. Knows neither what is
//! said through it nor to whom.
//!
//! What an engine's bridge reaches is its host's to decide, and a gateway need have no rights there. So the decision is
//! made within: the fence (`images/fence`) begins with the right to set up its own network, refuses there what is not
//! public, by routes and by a packet filter, and gives that right up for good before it is proven.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::config::{FENCE, Server, resolve};
use crate::downstream::link::{Ending, Link, Process};
use crate::egress::address::{Class as Kind, not_public};
use crate::egress::subnet::Subnet;
use crate::error::{Class, Fault};

use super::here::Here;
use super::lan::{Lan, Place};
use super::owner::ROLE;
use super::spec::{DIGEST, SERVER};
use super::verify::Evidence;
use super::{Compartment, Engine, Lease, Owner};

/// Its image.
pub const FENCE_IMAGE: &str = "bulkhead/fence";
/// Where that has its program.
pub(super) const PROGRAM: &str = "/fence";

/// What it has until it has set up its network: that right, and those to give it up.
pub(super) const CAPABILITIES: [&str; 4] = ["NET_ADMIN", "SETGID", "SETPCAP", "SETUID"];

/// The port that is tried where none may be reached.
const PORT: u16 = 80;
/// A port where nobody answers.
const DISCARD: u16 = 9;

/// A fence that was started for one server and one principal, and proven. There is no other way to one.
#[derive(Clone, Debug)]
pub struct Fence {
    container: String,
    image: String,
    evidence: Arc<Evidence>,
    /// The digest of the server's configuration.
    digest: String,
    owner: Owner,
    bounds: Arc<Bounds>,
    /// Its network as the kernel names it.
    namespace: String,
}

/// A network at the engine, and what may be reached from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The network.
    pub place: Place,
    /// The public addresses of the engine's host; none where they are not known.
    pub host: Option<Vec<Ipv4Addr>>,
    /// The name servers that are asked; none where they are not known.
    pub names: Option<Vec<Ipv4Addr>>,
}

/// Something that is tried inside, and how it is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// To be routed there: it is prohibited.
    Route(SocketAddrV4),
    /// To send to all who listen on the link, which asks no route: it is filtered.
    Send(SocketAddrV4),
}

impl Attempt {
    /// As the probe is told of it, and tells of it.
    pub fn text(self) -> String {
        match self {
            Attempt::Route(to) => to.to_string(),
            Attempt::Send(to) => format!("!{to}"),
        }
    }

    /// The number of the error that it is to end with: EACCES, EPERM.
    pub fn error(self) -> i32 {
        match self {
            Attempt::Route(_) => 13,
            Attempt::Send(_) => 1,
        }
    }
}

impl Bounds {
    fn of(place: Place, here: Here) -> Self {
        Bounds { place, host: here.addresses, names: here.names }
    }

    /// The networks that may not be reached.
    pub fn refused(&self) -> Vec<Subnet> {
        let mut all: Vec<Subnet> = not_public().into_iter().map(|(subnet, _)| subnet).collect();
        let own = self.host.iter().flatten().map(|address| Subnet::host(*address));
        for more in [self.place.subnet].into_iter().chain(own) {
            if !all.contains(&more) {
                all.push(more);
            }
        }
        all
    }

    /// What may be reached at the port of name servers although it is refused.
    pub fn asked_for_names(&self) -> Vec<Subnet> {
        match &self.names {
            Some(servers) => {
                let all = self.refused();
                let servers = servers.iter().map(|address| Subnet::host(*address));
                servers.filter(|server| all.iter().any(|refused| refused.holds(*server))).collect()
            }
            // An engine that is not here has its own, mostly on a network of its own.
            None => {
                let private = not_public().into_iter().filter(|(_, kind)| matches!(kind, Kind::Private | Kind::Shared));
                private.map(|(subnet, _)| subnet).collect()
            }
        }
    }

    /// What is tried inside, to see that it fails: an address of each network, and what needs no route.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        let to = |address: Ipv4Addr| SocketAddrV4::new(address, PORT);
        let subnet = self.place.subnet;
        let last = Ipv4Addr::from_bits(subnet.address().to_bits() | !subnet.mask().to_bits());
        let neighbour = Ipv4Addr::from_bits(last.to_bits().saturating_sub(1));
        let own = [self.place.gateway, neighbour, Ipv4Addr::new(169, 254, 169, 254)];
        let names = self.names.iter().flatten().copied();
        let names = names.filter(|server| self.refused().iter().any(|refused| refused.holds(Subnet::host(*server))));
        let mut all: Vec<Attempt> = Vec::new();
        for address in own.into_iter().chain(self.refused().into_iter().map(Subnet::example)).chain(names) {
            let attempt = Attempt::Route(to(address));
            if !all.contains(&attempt) {
                all.push(attempt);
            }
        }
        let link = [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)];
        all.extend(link.map(|address| Attempt::Send(SocketAddrV4::new(address, DISCARD))));
        all
    }

    /// The arguments of the program that sets this up and becomes another one as that user.
    pub(super) fn arguments(&self, user: u32) -> [String; 6] {
        let list = |all: Vec<Subnet>| match all.is_empty() {
            true => "-".to_owned(),
            false => all.iter().map(Subnet::to_string).collect::<Vec<_>>().join(","),
        };
        [
            PROGRAM.to_owned(),
            "up".to_owned(),
            self.place.gateway.to_string(),
            list(self.refused()),
            list(self.asked_for_names()),
            user.to_string(),
        ]
    }

    /// What can be reached, in words.
    pub fn reach(&self) -> Vec<String> {
        let mut all = vec!["the internet (public IPv4 addresses)".to_owned()];
        match &self.names {
            Some(_) => {
                let private = self.asked_for_names();
                all.extend(private.iter().map(|server| format!("the name server {}:53", server.address())));
            }
            None => all.push("name servers on private networks (port 53)".to_owned()),
        }
        if self.host.is_none() {
            all.push("host services on the host's public addresses".to_owned());
        }
        all
    }
}

impl Fence {
    /// Makes a network for a server and starts the fence in it. The link holds both, and ends both.
    pub async fn start(
        engine: &Engine,
        server: &Server,
        owner: &Owner,
        lease: Lease,
        within: Duration,
    ) -> Result<(Fence, Link), Fault> {
        let unusable = |fault: Fault| {
            let told = |text: &str| format!("server {}: the fence of its network cannot be used: {text}", server.name);
            Fault::new(fault.class, told(&fault.outward)).with_inward(told(&fault.inward))
        };
        let image = engine.own_image(FENCE_IMAGE).await.map_err(unusable)?;
        let own = entry().map_err(unusable)?;
        let began = std::time::Instant::now();
        let here = Here::look(&*engine.defaults().await?);
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let mut labels = owner.labels(lease);
        labels.extend(
            [(ROLE, "network"), (SERVER, server.name.as_str()), (DIGEST, &server.digest)]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let making = Lan::make(engine, format!("bulkhead-{}-{nonce:.8}", server.name.slug()), labels);
        let late = || Fault::new(Class::Timeout, format!("its network was not made within {within:?}"));
        let made = tokio::time::timeout(within, Box::pin(making)).await.unwrap_or_else(|_| Err(late()));
        let (lan, place) = made.map_err(unusable)?;
        let bounds = Arc::new(Bounds::of(place, here));
        let left = within.saturating_sub(began.elapsed());
        let started = async {
            let compartment = Compartment::fencing(&server.name, &own, &image, owner, lease, &bounds)?;
            super::start(engine, compartment, left).await
        };
        // Starts are large, and this one is part of another one's.
        let confined = match Box::pin(started).await {
            Ok(confined) => confined,
            Err(fault) => {
                lan.remove().await;
                return Err(unusable(fault));
            }
        };
        let fence = Fence {
            container: confined.container,
            image: confined.image,
            evidence: Arc::new(confined.evidence),
            digest: server.digest.clone(),
            owner: owner.clone(),
            bounds,
            namespace: confined.namespace,
        };
        let process = Fenced { container: confined.link.process, lan: Mutex::new(Some(lan)) };
        Ok((fence, Link { process: Box::new(process), ..confined.link }))
    }

    /// Its container's id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Its image's id.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The proof that it is confined itself, and that it stands.
    pub fn evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// Its network, and what may be reached from there.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Its network as the kernel names it.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether it was started for that server, as it is configured, and that principal.
    pub(super) fn is_of(&self, server: &Server, owner: &Owner) -> bool {
        self.digest == server.digest && self.owner == *owner
    }
}

/// A fence's container, and the network that goes with it.
struct Fenced {
    // In this order: what is dropped without an end goes as it can, a network only after its container.
    container: Box<dyn Process>,
    lan: Mutex<Option<Lan>>,
}

impl Process for Fenced {
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending> {
        async move {
            let ending = self.container.end(grace).await;
            let lan = self.lan.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(lan) = lan {
                lan.remove().await;
            }
            ending
        }
        .boxed()
    }
}

/// The fence's own entry.
fn entry() -> Result<Server, Fault> {
    let (memory, cpus, pids) = (FENCE.memory >> 10, FENCE.cpus, FENCE.pids);
    let entry = format!(
        "image = {FENCE_IMAGE:?}\ncommand = [{PROGRAM:?}, \"hold\"]\nmemory = \"{memory}k\"\ncpus = {cpus:?}\npids = {pids}"
    );
    resolve::own("fence", &entry).map_err(|faults| Fault::new(Class::Bug, format!("it cannot be configured: {faults}")))
}

#[cfg(test)]
impl Bounds {
    /// Those of a test's.
    pub(super) fn example() -> Self {
        let place = Place {
            id: "5e".repeat(32),
            name: "bulkhead-My-Notes-5e5e5e5e".to_owned(),
            subnet: Subnet::of(Ipv4Addr::new(172, 18, 0, 0), 16),
            gateway: Ipv4Addr::new(172, 18, 0, 1),
            labels: [("org.bulkhead.role".to_owned(), "network".to_owned())].into(),
        };
        let names = Some(vec![Ipv4Addr::new(10, 255, 255, 53), Ipv4Addr::new(9, 9, 9, 9)]);
        Bounds { place, host: Some(vec![Ipv4Addr::new(8, 8, 4, 4)]), names }
    }
}

#[cfg(test)]
impl Fence {
    /// One of a test's, which runs nowhere.
    pub(super) fn of(server: &Server, owner: &Owner, container: &str) -> Self {
        Fence {
            container: container.to_owned(),
            image: "sha256:0".to_owned(),
            evidence: Arc::new(Evidence { digest: "e1".to_owned(), controls: Vec::new() }),
            digest: server.digest.clone(),
            owner: owner.clone(),
            bounds: Arc::new(Bounds::example()),
            namespace: super::testing::NAMESPACE.to_owned(),
        }
    }
}
