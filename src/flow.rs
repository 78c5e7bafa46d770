//! The life of a call as one function. Every face comes through here; there is no second way to a server.
//!
//! [`Gateway::call`] reads like the list in the crate's documentation: find the target, decide, limit, take a proven
//! instance, make the intent durable, send, wait, record the outcome. The instance is taken before the intent is written,
//! so that the intent can name the container and the proof; nothing of the call leaves before the intent is durable.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::audit::record::{Ended, Outcome};
use crate::config::{Config, Server};
use crate::downstream::instance::InUse;
use crate::downstream::pool::Pool;
use crate::error::{Class, Fault};
use crate::gate::{self, Limiter};
use crate::name::{CallId, Principal};
use crate::protocol::{Era, adapt};
use crate::route::{Catalog, page};
use crate::wire::Object;

pub mod conversation;
mod send;
mod target;
mod trail;
pub mod turn;

use target::Found;
pub use target::Target;
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
    /// Where progress goes, if the client asked for it.
    pub progress: Option<&'a (dyn Fn(&str) + Sync)>,
    /// A deadline that replaces the server's own.
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
        let cancel = call.cancel.clone();
        let walked = tokio::select! {
            biased;
            () = cancel.cancelled() => Reply::Cancelled,
            reply = self.walk(caller, &mut call, &mut trail) => reply,
        };
        if let Err(fault) = trail.write(&self.audit).await {
            return Reply::Failed(fault);
        }
        let (outcome, detail) = ended(&walked, trail.denied());
        if let Reply::Failed(fault) = &walked {
            tracing::warn!(call = %id, class = ?fault.class, "{}", fault.inward);
        }
        let ms = began.elapsed().as_millis() as u64;
        let result_bytes = match &walked {
            Reply::Result(text, _) | Reply::ServerError(text) => text.len() as u64,
            _ => 0,
        };
        drop(self.audit.outcome(Outcome { call: id, outcome, detail, ms, result_bytes }));
        walked
    }

    /// The way there and back. Whatever ends it early, the caller of this function records.
    async fn walk(&self, caller: &Caller, call: &mut ToolCall<'_>, trail: &mut Trail) -> Reply {
        let found = match self.find(caller, &call.target).await {
            Ok(Some(found)) => found,
            Ok(None) => return Reply::Unknown,
            Err(fault) => return Reply::Failed(fault),
        };
        let Found { entry, tool, .. } = &found;
        let decision = gate::decide(&caller.principal, &entry.server, tool);
        trail.decided(&found, &decision);
        if !decision.allow {
            return Reply::Unknown;
        }
        let _permit = match self.limiter.admit(&caller.principal, &entry.server) {
            Ok(permit) => permit,
            Err(limited) => return Reply::Failed(limited.into()),
        };
        let instance = match self.pool.instance(entry, &caller.principal, &caller.session).await {
            Ok(instance) => instance.hold(),
            Err(fault) => return Reply::Failed(fault),
        };
        // The definition may have turned out to be another than the approved one when the instance started.
        if self.catalog().find_own(found.place, tool).is_none() {
            return Reply::Unknown;
        }
        trail.runs_in(&instance.confinement);
        if let Err(fault) = trail.write(&self.audit).await {
            return Reply::Failed(fault);
        }
        self.answer(call, &found, &instance).await
    }

    async fn answer(&self, call: &mut ToolCall<'_>, found: &Found, instance: &InUse) -> Reply {
        match send::send(call, found, instance).await {
            Ok(reply) => reply,
            Err(fault) => Reply::Failed(fault),
        }
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
        let ms = began.elapsed().as_millis() as u64;
        let (outcome, detail) = (Ended::Failed(Class::Malformed), Some(why.to_owned()));
        drop(self.audit.outcome(Outcome { call: id, outcome, detail, ms, result_bytes: 0 }));
        Ok(())
    }

    /// One page of what the caller may see, as a result in its era; `None` for a cursor that is not ours.
    pub async fn list(&self, caller: &Caller, era: Era, cursor: Option<&str>) -> Option<String> {
        self.pool.learn_all(&caller.principal, &caller.session);
        self.pool.learned(FIRST_LIST, |entry| entry.server.min_role <= caller.principal.role).await;
        let catalog = self.catalog();
        let items: Vec<&str> =
            catalog.visible(&self.servers, &caller.principal).into_iter().map(|e| e.shown.as_ref()).collect();
        let page = page::page(&items, cursor, &self.secret)?;
        Some(adapt::list_result("tools", &page.items, page.next.as_deref(), era))
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
