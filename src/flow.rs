//! The life of a call as one function. Every face comes through here; there is no second way to a server.
//!
//! [`Gateway::call`] reads like the list in the crate's documentation: find the target, decide, limit, take a proven
//! instance, make the intent durable, send, wait, record the outcome. The instance is taken before the intent is written,
//! so that the intent can name the container and the proof; nothing of the call leaves before the intent is durable.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::audit::record::{Ended, Outcome};
use crate::config::{Config, Server};
use crate::downstream::pool::{Entry, Pool};
use crate::error::{Class, Fault};
use crate::gate::{self, Limiter};
use crate::name::{CallId, Principal};
use crate::protocol::{Era, adapt};
use crate::route::Catalog;
use crate::route::page::{self, Seal};
use crate::wire::Object;

pub mod conversation;
mod send;
mod target;
mod trail;
pub mod turn;

pub use target::Target;
use target::{Found, Silent};
use trail::Trail;
use turn::Turn;

/// How long a first list waits for servers that were never listed before; later ones come with a notice.
const FIRST_LIST: Duration = Duration::from_secs(4);

/// Everything that a call passes through.
pub struct Gateway {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The servers.
    pub pool: Arc<Pool>,
    /// The record of what was done.
    pub audit: Arc<Audit>,
    servers: Vec<Arc<Server>>,
    limiter: Limiter,
    catalog: RwLock<(u64, Arc<Catalog>)>,
    secret: [u8; 16],
}

/// Who calls, and by which way.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity and role, settled by the face.
    pub principal: Principal,
    /// How that is known, for the audit.
    pub actor: String,
    /// `stdio` or `cli`.
    pub face: &'static str,
    /// A name for the conversation.
    pub session: String,
    /// What the client calls itself; nothing is decided by it.
    pub client: Option<String>,
}

/// A call to carry out.
pub struct ToolCall<'a> {
    /// The client's era.
    pub era: Era,
    /// What the client wants to call.
    pub target: Target<'a>,
    /// The whole `params`, as they came.
    pub params: &'a str,
    /// Where progress goes, as the `params` that came, if the client asked for it.
    pub progress: Option<&'a (dyn Fn(String) -> BoxFuture<'a, ()> + Sync)>,
    /// A deadline of the caller's over all of it, the start of the server included.
    pub timeout: Option<Duration>,
    /// Fires when the client withdraws the call.
    pub cancel: &'a CancellationToken,
    /// The call's place among those of its conversation to the same server.
    pub turn: Option<Turn>,
}

/// What became of a call.
#[derive(Debug)]
pub enum Reply {
    /// A result, in the client's era; whether it says that the tool failed.
    Result(String, bool),
    /// The server's own error, unchanged.
    ServerError(String),
    /// Unknown or forbidden: the two are one answer.
    Unknown,
    /// A failure of ours or of the server's.
    Failed(Fault),
    /// Withdrawn; nobody waits for an answer.
    Cancelled,
}

impl Gateway {
    /// Puts the parts together.
    pub fn new(config: Arc<Config>, pool: Arc<Pool>, audit: Arc<Audit>) -> Self {
        Gateway {
            servers: pool.servers.iter().map(|e| e.server.clone()).collect(),
            limiter: Limiter::new(&config),
            catalog: RwLock::new((u64::MAX, Arc::default())),
            secret: *uuid::Uuid::new_v4().as_bytes(),
            config,
            pool,
            audit,
        }
    }

    /// Carries out one call, from the name the client used to the answer, and leaves an intent and an outcome.
    pub async fn call(&self, caller: &Caller, mut call: ToolCall<'_>) -> Reply {
        let (id, began) = (CallId::new(), Instant::now());
        let mut trail = Trail::new(id, caller, &call.target, call.params, &self.audit);
        let (cancel, given) = (call.cancel.clone(), call.timeout);
        let reply = tokio::select! {
            biased;
            () = cancel.cancelled() => Reply::Cancelled,
            () = passed(given) => {
                let given = given.unwrap_or_default();
                Reply::Failed(Fault::new(Class::Timeout, format!("there was no answer within the {given:?} that were given")))
            }
            walked = self.walk(caller, &mut call, &mut trail) => walked.unwrap_or_else(Reply::Failed),
        };
        if let Err(fault) = trail.write(&self.audit).await {
            return Reply::Failed(fault);
        }
        let (outcome, detail) = ended(&reply, trail.denied());
        if let Reply::Failed(fault) = &reply {
            tracing::warn!(call = %id, class = ?fault.class, "{}", fault.inward);
        }
        let result_bytes = match &reply {
            Reply::Result(text, _) | Reply::ServerError(text) => text.len() as u64,
            _ => 0,
        };
        self.record_outcome(id, began, outcome, detail, result_bytes);
        reply
    }

    /// The way there and back. Whatever ends it early, the caller of this function records.
    async fn walk(&self, caller: &Caller, call: &mut ToolCall<'_>, trail: &mut Trail) -> Result<Reply, Fault> {
        let found = match self.find(caller, &call.target).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Reply::Unknown),
            Err(Silent { entry, fault }) => {
                trail.is_of(&entry.server, &gate::may_know(&caller.principal, &entry.server));
                return Err(fault);
            }
        };
        let Found { entry, tool, .. } = &found;
        let decision = gate::decide(&caller.principal, &entry.server, tool);
        trail.decided(&found, &decision);
        if !decision.allow {
            return Ok(Reply::Unknown);
        }
        let _permit = self.limiter.admit(&caller.principal, &entry.server)?;
        let instance = self.pool.instance(entry, &caller.principal, &caller.session).await?.hold();
        // The definition may have turned out to be another than the approved one when the instance started.
        if self.catalog().find_own(found.place, tool).is_none() {
            return Ok(Reply::Unknown);
        }
        trail.runs_in(&instance.confinement);
        trail.write(&self.audit).await?;
        send::send(call, &found, &instance).await
    }

    /// Records a call that was refused before it could be carried out, since its parameters make no sense.
    pub async fn malformed(&self, caller: &Caller, exposed: &str, params: &str, why: &str) -> Result<(), Fault> {
        let (id, began) = (CallId::new(), Instant::now());
        let mut trail = Trail::new(id, caller, &Target::Exposed(exposed), params, &self.audit);
        if let Some(found) = self.look_up(&Target::Exposed(exposed)) {
            let decision = gate::decide(&caller.principal, &found.entry.server, &found.tool);
            trail.decided(&found, &decision);
        }
        trail.write(&self.audit).await?;
        self.record_outcome(id, began, Ended::Failed(Class::Malformed), Some(why.to_owned()), 0);
        Ok(())
    }

    fn record_outcome(&self, call: CallId, began: Instant, outcome: Ended, detail: Option<String>, result_bytes: u64) {
        let ms = began.elapsed().as_millis() as u64;
        // Kept and tried again where the disk is full: the answer does not wait for it.
        drop(self.audit.outcome(Outcome { call, outcome, detail, ms, result_bytes }));
    }

    /// One page of what the caller may see, as a result in its era, and the seal of the whole list; `None` for a cursor
    /// that is not ours.
    pub async fn list(&self, caller: &Caller, era: Era, cursor: Option<&str>) -> Option<(String, Seal)> {
        self.learn(caller);
        self.learned(caller, FIRST_LIST).await;
        let catalog = self.catalog();
        let items = self.shown(&catalog, caller);
        let seal = Seal::of(&items, &self.secret);
        let page = page::page(&items, cursor, &seal)?;
        Some((adapt::list_result("tools", &page.items, page.next.as_deref(), era), seal))
    }

    /// Starts, in the background, the servers that were never listed and that the caller may know of: a list of theirs
    /// will be wanted.
    pub fn learn(&self, caller: &Caller) {
        self.pool.learn_some(&caller.principal, &caller.session, |entry| may_know(caller, entry));
    }

    /// Waits, at most so long, until each of these has answered once or failed once.
    pub async fn learned(&self, caller: &Caller, within: Duration) {
        self.pool.learned(within, |entry| may_know(caller, entry)).await;
    }

    /// Starts, in the background, an instance of every server that the caller may know of.
    pub fn start_all(&self, caller: &Caller) {
        self.pool.start_some(&caller.principal, &caller.session, |entry| may_know(caller, entry));
    }

    /// The seal of what the caller sees now: a change of what it does not see shows in no way.
    pub fn seal(&self, caller: &Caller) -> Seal {
        Seal::of(&self.shown(&self.catalog(), caller), &self.secret)
    }

    fn shown<'c>(&self, catalog: &'c Catalog, caller: &Caller) -> Vec<&'c str> {
        catalog.visible(&self.servers, &caller.principal).into_iter().map(|entry| entry.shown.as_ref()).collect()
    }

    /// The present snapshot of all tools.
    pub fn catalog(&self) -> Arc<Catalog> {
        let epoch = *self.pool.changes().borrow();
        {
            let cached = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
            if cached.0 == epoch {
                return cached.1.clone();
            }
        }
        let all = self.pool.servers.iter().map(|e| (e.server.as_ref(), e.listing()));
        let catalog = Arc::new(Catalog::build(self.config.gateway.names, all));
        for name in &catalog.contested {
            tracing::warn!("several tools claim the name {name:?}, so none of them is served");
        }
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = (epoch, catalog.clone());
        catalog
    }

    /// The input schema of a tool that the caller may call, if its server has told it by now or does so soon.
    pub async fn schema(&self, caller: &Caller, target: &Target<'_>) -> Option<serde_json::Value> {
        let found = self.find(caller, target).await.ok()??;
        let catalog = self.catalog();
        let entry = catalog.find_own(found.place, &found.tool)?;
        let allowed = gate::decide(&caller.principal, &found.entry.server, &found.tool).allow;
        let schema = Object::parse(&entry.shown).ok()?.get("inputSchema").map(|s| s.get().to_owned())?;
        allowed.then(|| serde_json::from_str(&schema).ok())?
    }

    /// The servers in the order of the configuration.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }
}

/// Whether the gate lets a caller know of a server.
pub fn may_know(caller: &Caller, entry: &Entry) -> bool {
    gate::may_know(&caller.principal, &entry.server).allow
}

/// When the time that the caller gave is over; never where it gave none.
async fn passed(given: Option<Duration>) {
    match given {
        Some(given) => tokio::time::sleep(given).await,
        None => std::future::pending().await,
    }
}

/// The outcome of a reply, with a few words where it failed.
fn ended(reply: &Reply, denied: bool) -> (Ended, Option<String>) {
    match reply {
        Reply::Result(_, false) => (Ended::Ok, None),
        Reply::Result(_, true) => (Ended::ToolError, None),
        Reply::ServerError(error) => (Ended::RpcError, Some(error.clone())),
        Reply::Unknown if denied => (Ended::Denied, None),
        Reply::Unknown => (Ended::Failed(Class::Unknown), None),
        Reply::Failed(fault) => (Ended::Failed(fault.class), Some(fault.inward.clone())),
        Reply::Cancelled => (Ended::Failed(Class::Cancelled), None),
    }
}
