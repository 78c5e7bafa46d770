//! The life of a call as one function. Every face comes through here; there is no second way to a server.
//!
//! [`Gateway::call`] reads like the list in the crate's documentation: find the target, decide, limit, take a proven
//! instance, make the intent durable, send, wait, record the outcome. The instance is taken before the intent is written,
//! so that the intent can name the container and the proof; nothing of the call leaves before the intent is durable.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::audit::record::{Ended, Outcome};
use crate::downstream::pool::{Handover, Pool};
use crate::error::{Class, Fault};
use crate::gate::{self, Limiter, Permit};
use crate::name::ServerName;
use crate::protocol::{Era, adapt};
use crate::route::page::{self, Seal};
use crate::wire::Object;

pub mod conversation;
mod send;
pub mod snapshot;
mod target;
mod trail;
pub mod turn;

use snapshot::Snapshot;
pub use target::Target;
use target::{Found, Silent};
use trail::Trail;
use turn::Turn;

/// How long a first list waits for servers that were never listed before; later ones come with a notice.
const FIRST_LIST: Duration = Duration::from_secs(4);

/// How long a call begins anew because another configuration has come into force before it was sent.
const UNSETTLED: Duration = Duration::from_secs(60);

/// Everything that a call passes through.
pub struct Gateway {
    /// The servers, by the configuration in force.
    pub pool: Arc<Pool>,
    /// The record of what was done.
    pub audit: Arc<Audit>,
    limiter: Limiter,
    snapshot: RwLock<Arc<Snapshot>>,
    secret: [u8; 16],
}

/// Who calls, and by which way.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity, settled by the face; its role is a matter of the configuration in force.
    pub id: Option<Arc<str>>,
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
    pub fn new(pool: Arc<Pool>, audit: Arc<Audit>) -> Self {
        let (roster, epoch) = (pool.roster(), *pool.changes().borrow());
        Gateway {
            limiter: Limiter::new(&roster.config),
            snapshot: RwLock::new(Snapshot::of(roster, epoch)),
            secret: *uuid::Uuid::new_v4().as_bytes(),
            pool,
            audit,
        }
    }

    /// Carries out one call, from the name the client used to the answer, and leaves an intent and an outcome.
    pub async fn call(&self, caller: &Caller, mut call: ToolCall<'_>) -> Reply {
        let mut trail = self.trail(caller, &call.target, call.params);
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
            tracing::warn!(call = %trail.id(), class = ?fault.class, "{}", fault.inward);
        }
        let result_bytes = match &reply {
            Reply::Result(text, _) | Reply::ServerError(text) => text.len() as u64,
            _ => 0,
        };
        self.record_outcome(&trail, outcome, detail, result_bytes);
        reply
    }

    /// The way there and back. Where another configuration comes into force before anything of the call has left, the call
    /// begins it anew: none is sent by a rule that no longer holds. Whatever ends it early, the caller of this function
    /// records.
    async fn walk(&self, caller: &Caller, call: &mut ToolCall<'_>, trail: &mut Trail) -> Result<Reply, Fault> {
        let mut admitted = None;
        loop {
            if let Some(reply) = self.try_once(caller, call, trail, &mut admitted).await? {
                return Ok(reply);
            }
            if trail.began().elapsed() > UNSETTLED {
                let text = "the configuration keeps changing, and the call was not sent; try again later";
                return Err(Fault::new(Class::Unavailable, text));
            }
            let anew = self.trail(caller, &call.target, call.params).since(trail.began());
            if trail.is_written() {
                let why = format!("not sent, since the configuration has changed; it goes on as {}", anew.id());
                self.record_outcome(trail, Ended::Failed(Class::Unavailable), Some(why), 0);
            }
            *trail = anew;
        }
    }

    /// The same under the configuration that is in force; `None` where another one is before the call has left.
    async fn try_once(
        &self,
        caller: &Caller,
        call: &mut ToolCall<'_>,
        trail: &mut Trail,
        admitted: &mut Option<(ServerName, Permit)>,
    ) -> Result<Option<Reply>, Fault> {
        let found = match self.find(caller, &call.target).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Some(Reply::Unknown)),
            Err(Silent { now, .. }) if !self.is_in_force(&now) => return Ok(None),
            Err(Silent { now, entry, fault }) => {
                let principal = now.principal(caller);
                trail.is_of(&principal, &entry.server, &gate::may_know(&principal, &entry.server));
                return Err(fault);
            }
        };
        let Found { now, entry, tool, .. } = &found;
        let principal = now.principal(caller);
        let decision = gate::decide(&principal, &entry.server, tool);
        trail.decided(&principal, &found, &decision);
        if !decision.allow {
            return Ok(Some(Reply::Unknown));
        }
        if let Some(why) = &found.held {
            return Err(target::unapproved(entry, tool, why));
        }
        let name = &entry.server.name;
        if admitted.as_ref().is_none_or(|(of, _)| of != name) {
            *admitted = Some((name.clone(), self.limiter.admit(&principal, &entry.server)?));
        }
        let instance = match self.pool.instance(entry, &principal, &caller.session).await {
            Ok(instance) => instance.hold(),
            Err(_) if !self.is_in_force(now) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        // From here on the instance is in use, and is not ended before the call is. Before that it might be.
        if !self.is_in_force(now) {
            return Ok(None);
        }
        // The definition may have turned out to be another than the approved one when the instance started.
        let met = self.now();
        if met.catalog.find_own(found.place, tool).is_none() && self.is_in_force(now) {
            return match met.catalog.find_own_held(found.place, tool) {
                Some(held) => Err(target::unapproved(entry, tool, &held.why)),
                None => Ok(Some(Reply::Unknown)),
            };
        }
        trail.runs_in(&instance.confinement);
        trail.write(&self.audit).await?;
        send::send(call, &found, &instance, || self.is_in_force(now)).await
    }

    /// Records a call that was refused before it could be carried out, since its parameters make no sense.
    pub async fn malformed(&self, caller: &Caller, exposed: &str, params: &str, why: &str) -> Result<(), Fault> {
        let mut trail = self.trail(caller, &Target::Exposed(exposed), params);
        let now = self.now();
        let principal = now.principal(caller);
        if let Some(found) = target::look_up(&now, &Target::Exposed(exposed)) {
            let decision = gate::decide(&principal, &found.entry.server, &found.tool);
            trail.decided(&principal, &found, &decision);
        }
        trail.write(&self.audit).await?;
        self.record_outcome(&trail, Ended::Failed(Class::Malformed), Some(why.to_owned()), 0);
        Ok(())
    }

    fn trail(&self, caller: &Caller, target: &Target<'_>, params: &str) -> Trail {
        Trail::new(caller, self.now().principal(caller).role, target, params, &self.audit)
    }

    fn record_outcome(&self, trail: &Trail, outcome: Ended, detail: Option<String>, result_bytes: u64) {
        let ms = trail.began().elapsed().as_millis() as u64;
        // Kept and tried again where the disk is full: the answer does not wait for it.
        drop(self.audit.outcome(Outcome { call: trail.id(), outcome, detail, ms, result_bytes }));
    }

    /// One page of what the caller may see, as a result in its era, and the seal of the whole list; `None` for a cursor
    /// that is not ours.
    pub async fn list(&self, caller: &Caller, era: Era, cursor: Option<&str>) -> Option<(String, Seal)> {
        self.learn(caller);
        self.learned(caller, FIRST_LIST).await;
        let now = self.now();
        let items = shown(&now, caller);
        let seal = Seal::of(&items, &self.secret);
        let page = page::page(&items, cursor, &seal)?;
        Some((adapt::list_result("tools", &page.items, page.next.as_deref(), era), seal))
    }

    /// Starts, in the background, the servers that were never listed and that the caller may know of: a list of theirs
    /// will be wanted.
    pub fn learn(&self, caller: &Caller) {
        let now = self.now();
        self.pool.learn_some(&now.principal(caller), &caller.session, |entry| now.may_know(caller, entry));
    }

    /// Waits, at most so long, until each of these has answered once or failed once.
    pub async fn learned(&self, caller: &Caller, within: Duration) {
        self.pool.learned(within, |entry| self.now().may_know(caller, entry)).await;
    }

    /// Starts, in the background, an instance of each of these servers that the caller may know of.
    pub fn start_some(&self, caller: &Caller, selected: impl Fn(&str) -> bool) {
        let now = self.now();
        self.pool.start_some(&now.principal(caller), &caller.session, |entry| {
            now.may_know(caller, entry) && selected(entry.server.name.as_str())
        });
    }

    /// Puts another configuration in force for whatever comes from now on, and returns when it holds.
    pub async fn hand_over(&self, handover: Handover) {
        self.limiter.reload(handover.next.config.limits);
        self.pool.hand_over(handover).await;
    }

    /// The seal of what the caller sees now: a change of what it does not see shows in no way.
    pub fn seal(&self, caller: &Caller) -> Seal {
        Seal::of(&shown(&self.now(), caller), &self.secret)
    }

    /// The input schema of a tool that the caller may call, if its server has told it by now or does so soon.
    pub async fn schema(&self, caller: &Caller, target: &Target<'_>) -> Option<serde_json::Value> {
        let found = self.find(caller, target).await.ok()??;
        let entry = found.now.catalog.find_own(found.place, &found.tool)?;
        let allowed = gate::decide(&found.now.principal(caller), &found.entry.server, &found.tool).allow;
        let schema = Object::parse(&entry.shown).ok()?.get("inputSchema").map(|s| s.get().to_owned())?;
        allowed.then(|| serde_json::from_str(&schema).ok())?
    }
}

/// The definitions that a caller sees.
fn shown<'s>(now: &'s Snapshot, caller: &Caller) -> Vec<&'s str> {
    now.visible(caller).into_iter().map(|entry| entry.shown.as_ref()).collect()
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
