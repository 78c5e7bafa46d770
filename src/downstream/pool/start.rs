//! The life of one instance, from the decision to start it to the moment when nothing of it is left.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::audit::record::{Isolation, ServerEvent, ServerWord};
use crate::compartment::guard::policy;
use crate::compartment::verify::Evidence;
use crate::compartment::{self, Compartment, Confined, Fence, Guard, ImageFacts, Lease, Owner};
use crate::config::{Network, Run, Server};
use crate::egress::allowance::Allowance;
use crate::egress::resolve::System;
use crate::egress::{Egress, Policy};
use crate::error::{Class, Fault};

use super::super::budget::Share;
use super::super::guarded::{self, Held, Way};
use super::super::handshake;
use super::super::instance::{Confinement, Instance, Next};
use super::super::link::{Ending, Link};
use super::super::peer::{Limits, Peer};
use super::super::trouble::{SUSTAINED, When};
use super::super::unisolated;
use super::super::witness::Recorded;
use super::entry::Leaving;
use super::{Entry, GRACE, Pool, Slot, lock};

/// How long a server may take to answer a ping once it has left a call without an answer.
const PING: Duration = Duration::from_secs(10);

/// Room for the envelope around a result of the largest size.
const ENVELOPE: usize = 4096;

impl Pool {
    /// Starts an instance, tells whoever waits, and stays with it to its end.
    pub(super) async fn live(
        self: Arc<Self>,
        entry: Arc<Entry>,
        owner: String,
        tell: watch::Sender<Option<Result<Arc<Instance>, Fault>>>,
    ) {
        let share = match self.room(&entry).await {
            Ok(share) => share,
            Err(fault) => {
                lock(&entry.stock.slots).remove(&owner);
                lock(&entry.stock.trouble).failed(fault.clone(), When::WithoutFault, Instant::now());
                self.changed();
                tell.send_replace(Some(Err(fault)));
                return;
            }
        };
        let began = Instant::now();
        let started = self.start(&entry, &owner).await.map_err(|fault| self.without_secrets(fault));
        match &started {
            Ok(instance) => {
                lock(&entry.stock.slots).insert(owner.clone(), Slot::Running(instance.clone()));
            }
            Err(fault) => {
                lock(&entry.stock.slots).remove(&owner);
                if !self.closing.is_cancelled() && entry.stock.leaving().is_none() {
                    tracing::warn!("cannot be used: {}", fault.inward);
                    let when = if fault.class == Class::Engine { When::WithoutFault } else { When::Starting };
                    lock(&entry.stock.trouble).failed(fault.clone(), when, Instant::now());
                }
                self.changed();
            }
        }
        tell.send_replace(Some(started.clone()));
        if let Ok(instance) = started {
            tracing::info!(server = %entry.server.name, ms = began.elapsed().as_millis() as u64, "ready");
            self.supervise(&entry, &owner, &instance).await;
        }
        drop(share);
    }

    /// A share of the totals. What is about to end since its configuration has changed gives its share back, which is
    /// waited for.
    async fn room(&self, entry: &Entry) -> Result<Share, Fault> {
        let patience = tokio::time::sleep(entry.server.start_timeout);
        tokio::pin!(patience);
        loop {
            // Listened for before it is looked, so that nothing is missed between the two.
            let freed = self.budget.freed();
            let taken = self.budget.take(entry.server.takes());
            if taken.is_ok() || self.leaving().is_empty() {
                return taken;
            }
            tokio::select! {
                () = freed => {}
                () = &mut patience => return taken,
                () = self.closing.cancelled() => return taken,
                () = entry.stock.left() => return Err(entry.gone()),
            }
        }
    }

    async fn start(&self, entry: &Arc<Entry>, owner: &str) -> Result<Arc<Instance>, Fault> {
        let server = &entry.server;
        let deadline = Instant::now() + server.start_timeout;
        let lease = Lease::from_now(self.engine.terms().instance);
        let (link, confinement, way) = tokio::select! {
            launched = self.launch(entry, owner, lease, deadline) => launched?,
            // Whatever there is of it goes with its being dropped.
            () = entry.stock.left() => return Err(entry.gone()),
        };
        self.record(entry, ServerWord::Started, &confinement, None);
        let limits = Limits { cap: server.max_result + ENVELOPE, grace: GRACE };
        let peer = Peer::new(server.name.clone(), link, limits, self.redactor.clone());
        let opened = async {
            let greeting = handshake::greet(&peer, &server.name, deadline).await?;
            let told = handshake::list(&peer, &greeting, deadline).await?;
            Ok((greeting, told))
        };
        let opened = tokio::select! {
            opened = opened => opened,
            () = self.closing.cancelled() => Err(Fault::new(Class::Unavailable, "the gateway is shutting down")),
            () = entry.stock.left() => Err(entry.gone()),
        };
        match opened {
            Ok((greeting, told)) => {
                self.meet(entry, &greeting, confinement.image.clone(), told).await;
                let lease = confinement.container.is_some().then_some(lease);
                Ok(Arc::new(Instance::new(peer, greeting, owner.to_owned(), confinement, way, lease)))
            }
            Err(fault) => {
                if let (Some(way), Some(_)) = (&way, entry.stock.leaving()) {
                    way.shut().await;
                }
                let running = peer.ended().is_none();
                let ending = peer.close().await;
                let (word, reason) = ended(&ending, running, &fault.inward);
                self.record(entry, word, &confinement, Some(reason));
                let class = if ending.lost { Class::Engine } else { fault.class };
                Err(Fault { class, ..fault })
            }
        }
    }

    /// A server's own words are part of most failures, and a server knows the secrets it was given.
    fn without_secrets(&self, fault: Fault) -> Fault {
        let clean = |text: &str| self.redactor.redact(text);
        Fault { class: fault.class, outward: clean(&fault.outward), inward: clean(&fault.inward) }
    }

    async fn launch(
        &self,
        entry: &Entry,
        owner: &str,
        lease: Lease,
        deadline: Instant,
    ) -> Result<(Link, Confinement, Option<Way>), Fault> {
        let server = &entry.server;
        if let Some(permit) = unisolated::Permit::of(server) {
            let confinement =
                Confinement { isolation: Isolation::Unisolated, container: None, image: None, evidence: None };
            let reason = permit.reason().as_str().to_owned();
            self.record(entry, ServerWord::Unisolated, &confinement, Some(reason));
            return Ok((unisolated::start(&permit, &self.host)?, confinement, None));
        }
        let confined = self.confine(entry, owner, lease, deadline).await.map_err(|fault| naming(server, fault));
        match confined {
            Ok((confined, way)) => {
                let confinement = Confinement {
                    isolation: Isolation::Proven,
                    container: Some(confined.container),
                    image: Some(confined.image),
                    evidence: Some(Arc::new(confined.evidence)),
                };
                self.record(entry, ServerWord::Proven, &confinement, None);
                Ok((confined.link, confinement, way))
            }
            Err(fault) => {
                if matches!(fault.class, Class::Isolation | Class::Unapproved) {
                    let nothing =
                        Confinement { isolation: Isolation::Refused, container: None, image: None, evidence: None };
                    self.record(entry, ServerWord::Refused, &nothing, Some(fault.inward.clone()));
                }
                Err(fault)
            }
        }
    }

    async fn confine(
        &self,
        entry: &Entry,
        owner: &str,
        lease: Lease,
        deadline: Instant,
    ) -> Result<(Confined, Option<Way>), Fault> {
        let server = &entry.server;
        let reference = match &server.run {
            Run::Image { reference, .. } => reference,
            Run::Package(_) => entry.image.as_ref().ok_or_else(|| Fault::new(Class::Bug, "it is not locked"))?,
            Run::Unisolated { .. } | Run::Remote { .. } => {
                return Err(Fault::new(Class::Bug, "this kind of server has no compartment"));
            }
        };
        let image = self.engine.image(reference).await.map_err(|fault| absent(server, reference, fault))?;
        if let Some(approved) = entry.approved_image().filter(|approved| *approved != image.id) {
            return Err(moved(server, reference, &approved, &image.id));
        }
        let principal = owner;
        let owner = self.owner.for_principal(owner);
        match &server.network {
            Network::None => {
                let compartment = Compartment::plan(server, &image, &owner, lease)?;
                Ok((compartment::start(&self.engine, compartment, left(deadline)).await?, None))
            }
            Network::Guarded { .. } => {
                let today = self.allowances.of(server.name.as_str(), principal);
                let guarded = self.behind_a_guard(entry, &image, &owner, lease, deadline, today);
                let (confined, way) = Box::pin(guarded).await?;
                Ok((confined, Some(way)))
            }
            Network::Bridge => {
                let (confined, way) = Box::pin(self.within_a_fence(entry, &image, &owner, lease, deadline)).await?;
                Ok((confined, Some(way)))
            }
        }
    }

    async fn behind_a_guard(
        &self,
        entry: &Entry,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
        deadline: Instant,
        today: Arc<Allowance>,
    ) -> Result<(Confined, Way), Fault> {
        let server = &entry.server;
        let policy = policy(server).ok_or_else(|| Fault::new(Class::Bug, "there is nothing that it may reach"))?;
        let (guard, link) = Guard::start(&self.engine, server, &policy, owner, lease, left(deadline)).await?;
        let proof = confinement_of(guard.container(), guard.image(), guard.evidence());
        self.record(entry, ServerWord::Proven, &proof, Some("the guard of its network".to_owned()));
        let met = guarded::meet(link, policy.limits, deadline).await?;
        let started = async {
            let compartment = Compartment::behind(server, image, owner, lease, &guard)?;
            compartment::start(&self.engine, compartment, left(deadline)).await
        };
        let confined = match started.await {
            Ok(confined) => confined,
            Err(fault) => {
                met.end().await;
                return Err(fault);
            }
        };
        let policy = Policy { instance: confined.container.clone(), ..policy };
        let witness = Arc::new(Recorded(self.audit.clone()));
        let egress = Arc::new(Egress::new(policy, today, Arc::new(System), witness));
        let (link, way) = met.serve(guard, egress, confined.link);
        Ok((Confined { link, ..confined }, way))
    }

    async fn within_a_fence(
        &self,
        entry: &Entry,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
        deadline: Instant,
    ) -> Result<(Confined, Way), Fault> {
        let server = &entry.server;
        let (fence, link) = Fence::start(&self.engine, server, owner, lease, left(deadline)).await?;
        let proof = confinement_of(fence.container(), fence.image(), fence.evidence());
        let reach = fence.bounds().reach().join(", ");
        self.record(entry, ServerWord::Proven, &proof, Some(format!("the fence of its network; can reach: {reach}")));
        let held = Held::new(link);
        let started = async {
            let compartment = Compartment::within(server, image, owner, lease, &fence)?;
            compartment::start(&self.engine, compartment, left(deadline)).await
        };
        let confined = match started.await {
            Ok(confined) => confined,
            Err(fault) => {
                held.end().await;
                return Err(fault);
            }
        };
        let link = held.stay(confined.link);
        Ok((Confined { link, ..confined }, Way::Fenced(fence)))
    }

    /// Stays with a running instance: notices when its tools change, stops it when it is idle or its lease ends,
    /// and clears up after it.
    async fn supervise(self: &Arc<Self>, entry: &Arc<Entry>, owner: &str, instance: &Arc<Instance>) {
        let began = Instant::now();
        let margin = self.engine.terms().margin;
        let (mut stopped, mut sustained) = (None, false);
        loop {
            // Not one of the events below: a server that tells of changes without end must not put its own end off.
            let leaving = entry.stock.leaving();
            let next = match leaving {
                Some(Leaving { why, until }) => instance.last(why, until),
                None => instance.next(entry.stock.idle_stop(), margin, SystemTime::now()),
            };
            let wait = match next {
                Next::Ask(wait) => wait,
                Next::Stop(why) => {
                    tracing::info!(server = %entry.server.name, "stopped, since {why}");
                    stopped = Some(why);
                    instance.peer.close().await;
                    break;
                }
            };
            tokio::select! {
                _ = instance.peer.gone() => break,
                () = instance.peer.changed.notified() => self.learn_again(entry, instance).await,
                () = instance.doubted.notified() => {
                    if is_stuck(instance).await {
                        stopped = Some("it answered neither a call in time nor a ping");
                        instance.peer.close().await;
                    }
                }
                () = tokio::time::sleep(wait) => {}
                () = entry.stock.left(), if leaving.is_none() => {}
                () = tokio::time::sleep(SUSTAINED.saturating_sub(began.elapsed())), if !sustained => {
                    sustained = true;
                    lock(&entry.stock.trouble).sustained();
                }
            }
        }
        let ending = instance.peer.gone().await;
        let ours = instance.peer.is_closing();
        if !ours {
            let fault = instance.peer.fault().await;
            let when = if ending.lost { When::WithoutFault } else { When::Running };
            lock(&entry.stock.trouble).failed(fault, when, Instant::now());
        }
        let mut slots = lock(&entry.stock.slots);
        if matches!(slots.get(owner), Some(Slot::Running(here)) if Arc::ptr_eq(here, instance)) {
            slots.remove(owner);
        }
        drop(slots);
        let (word, reason) = ended(&ending, ours, &instance.peer.with_tail(&ending.to_string()));
        let reason = stopped.map_or(reason.clone(), |why| format!("{why}: {reason}"));
        if !ours {
            tracing::warn!(server = %entry.server.name, "ended by itself: {reason}");
        }
        self.record(entry, word, &instance.confinement, Some(reason));
    }

    pub(super) fn record(&self, entry: &Entry, event: ServerWord, confinement: &Confinement, reason: Option<String>) {
        let event = ServerEvent {
            server: entry.server.name.as_str().to_owned(),
            event,
            container: confinement.container.clone(),
            image: confinement.image.clone(),
            evidence: confinement.digest(),
            reason,
        };
        // Nobody waits for it: it is written in its order, and a full disk shows at the next intent.
        drop(self.audit.server(event));
    }
}

/// Whether it does nothing any more, for anybody: what works on a call of somebody else's is let be.
async fn is_stuck(instance: &Instance) -> bool {
    let answered = instance.peer.ask_within("ping", None, PING).await;
    answered.is_err_and(|fault| fault.class == Class::Timeout) && instance.idle().is_some()
}

/// What confines the keeper of a server's network.
fn confinement_of(container: &str, image: &str, evidence: &Arc<Evidence>) -> Confinement {
    Confinement {
        isolation: Isolation::Proven,
        container: Some(container.to_owned()),
        image: Some(image.to_owned()),
        evidence: Some(evidence.clone()),
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn ended(ending: &Ending, ours: bool, reason: &str) -> (ServerWord, String) {
    let word = match (ours, ending.oom) {
        // A process of it may have run out of memory long before; the reason says so.
        (true, _) => ServerWord::Stopped,
        (false, true) => ServerWord::Oom,
        (false, false) => ServerWord::Crashed,
    };
    (word, reason.to_owned())
}

/// An image that is not there, with what makes it: a package's is baked when it is locked.
fn absent(server: &Server, image: &str, fault: Fault) -> Fault {
    let (name, class) = (&server.name, fault.class);
    match (&server.run, class) {
        (Run::Package(_), Class::Isolation) => Fault::new(
            class,
            format!("server {name}: its image {image:?} is not on the engine; run: bulkhead lock {name}"),
        ),
        _ => fault,
    }
}

/// The fault with the name of the server that it is about; an engine knows of none.
fn naming(server: &Server, fault: Fault) -> Fault {
    let start = format!("server {}", server.name);
    let named = |text: String| if text.starts_with(&start) { text } else { format!("{start}: {text}") };
    Fault { class: fault.class, outward: named(fault.outward), inward: named(fault.inward) }
}

/// What a name stands for may change; what was approved does not.
fn moved(server: &Server, reference: &str, approved: &str, now: &str) -> Fault {
    let name = &server.name;
    let text = format!("server {name} has changed since approval; run: bulkhead approve {name}");
    let inward = format!(
        "server {name}: image {reference:?} has become another one since approval ({approved:.19} -> {now:.19}); \
         run: bulkhead approve {name}"
    );
    Fault::new(Class::Unapproved, text).with_inward(inward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::env::Fixed;
    use crate::config::resolve::load;

    fn server(entry: &str) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulkhead.toml");
        std::fs::write(&path, format!("[servers.s]\n{entry}\n")).unwrap();
        load(&path, &Fixed::default()).unwrap().servers.remove(0)
    }

    #[test]
    fn a_failure_to_start_names_its_server_and_what_to_do() {
        let package = server("package = \"npx:notes\"");
        let image = server("image = \"notes\"");
        let missing = || Fault::new(Class::Isolation, "image \"x\" is not on the engine: build it, pull it");
        let told = |server: &Server, fault| naming(server, absent(server, "x", fault)).outward;
        assert_eq!(told(&package, missing()), "server s: its image \"x\" is not on the engine; run: bulkhead lock s");
        assert_eq!(told(&image, missing()), "server s: image \"x\" is not on the engine: build it, pull it");
        let away = Fault::new(Class::Engine, "the container engine does not answer").with_inward("at unix:///x");
        let away = naming(&package, absent(&package, "x", away));
        assert_eq!(
            (away.outward.as_str(), away.inward.as_str()),
            ("server s: the container engine does not answer", "server s: at unix:///x",)
        );
        let named = Fault::new(Class::Crashed, "server s: it ended");
        assert_eq!(naming(&image, named.clone()), named);
    }
}
