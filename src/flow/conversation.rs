//! One client's conversation at work: what the pure session asks for is carried out, and answers go back in order of
//! their arrival. Knows no transport.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::outbox::Outbox;
use crate::name::ServerName;
use crate::protocol::{adapt, code};
use crate::route::page::Seal;
use crate::session::{Body, Call, Effect, Key, List, Refuse, Session};
use crate::wire::Line;

use super::target::Target;
use super::turn::{Turn, Turns};
use super::{Caller, Gateway, Reply, ToolCall};

/// Changes that come within this time are told once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// A conversation with one client.
pub struct Conversation {
    gateway: Arc<Gateway>,
    caller: Caller,
    session: Mutex<Session>,
    out: Outbox,
    cancels: Mutex<HashMap<Key, CancellationToken>>,
    turns: Mutex<Turns<Queue>>,
    tasks: TaskTracker,
    abandon: CancellationToken,
    /// The list that the client knows.
    told: Mutex<Option<Seal>>,
}

/// What calls queue for.
#[derive(PartialEq, Eq, Hash, Debug)]
enum Queue {
    Server(ServerName),
    Name(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Conversation {
    /// A conversation whose lines go to `out`.
    pub fn new(gateway: Arc<Gateway>, caller: Caller, out: Outbox) -> Arc<Self> {
        let conversation = Arc::new(Conversation {
            session: Mutex::new(Session::new(&gateway.pool.roster().config.gateway.name)),
            gateway,
            caller,
            out,
            cancels: Mutex::default(),
            turns: Mutex::default(),
            tasks: TaskTracker::new(),
            abandon: CancellationToken::new(),
            told: Mutex::default(),
        });
        tokio::spawn(tell_changes(conversation.clone()));
        conversation
    }

    /// Takes in one line of the client, once what waits for it to read has left.
    pub async fn line(self: &Arc<Self>, line: Line) {
        self.out.room().await;
        let (effect, opened) = {
            let mut session = lock(&self.session);
            let before = session.is_open();
            let effect = session.line(line);
            (effect, !before && session.is_open())
        };
        if opened {
            // The client will want the list next; servers that were never listed start now.
            self.gateway.learn(&self.caller);
        }
        match effect {
            None => {}
            Some(Effect::Send(line)) => self.out.send(line).await,
            Some(Effect::Cancel(key)) => {
                if let Some(token) = lock(&self.cancels).remove(&key) {
                    token.cancel();
                }
            }
            Some(Effect::Call(call)) => {
                let token = self.abandon.child_token();
                lock(&self.cancels).insert(call.key, token.clone());
                let turn = lock(&self.turns).next(self.queue(&call.exposed));
                self.tasks.spawn(self.clone().call(call, token, turn));
            }
            Some(Effect::Refuse(refuse)) => drop(self.tasks.spawn(self.clone().refuse(refuse))),
            Some(Effect::List(list)) => drop(self.tasks.spawn(self.clone().list(list))),
        }
    }

    /// Lets calls in flight end by themselves for at most so long, then withdraws the rest.
    pub async fn drain(&self, within: Duration) {
        self.tasks.close();
        if tokio::time::timeout(within, self.tasks.wait()).await.is_err() {
            tracing::warn!("{} calls were still in flight and are withdrawn", self.tasks.len());
            self.abandon.cancel();
            let _ = tokio::time::timeout(Duration::from_secs(1), self.tasks.wait()).await;
        }
        self.abandon.cancel();
    }

    /// Whom a call queues behind: those to the same server, or to the same name where that is not known.
    fn queue(&self, exposed: &str) -> Queue {
        let now = self.gateway.now();
        match now.catalog.find(exposed) {
            Some(entry) => Queue::Server(now.roster.entries[entry.server].server.name.clone()),
            None => Queue::Name(exposed.to_owned()),
        }
    }

    fn caller(&self) -> Caller {
        Caller { client: lock(&self.session).client().map(str::to_owned), ..self.caller.clone() }
    }

    async fn refuse(self: Arc<Self>, refuse: Refuse) {
        let Refuse { line, exposed, params, why } = refuse;
        if let Err(fault) = self.gateway.malformed(&self.caller(), &exposed, &params, &why).await {
            tracing::warn!("a refused call is not recorded: {fault}");
        }
        self.out.send(line).await;
    }

    async fn call(self: Arc<Self>, call: Call, cancel: CancellationToken, turn: Turn) {
        let caller = self.caller();
        let progress = |params: String| -> BoxFuture<'_, ()> {
            let line = lock(&self.session).progress(call.key, &params);
            async {
                if let Some(line) = line {
                    self.out.send(line).await;
                }
            }
            .boxed()
        };
        let reply = self
            .gateway
            .call(
                &caller,
                ToolCall {
                    era: call.era,
                    target: Target::Exposed(&call.exposed),
                    params: &call.params,
                    progress: call.progress.then_some(&progress),
                    timeout: None,
                    cancel: &cancel,
                    turn: Some(turn),
                },
            )
            .await;
        lock(&self.cancels).remove(&call.key);
        let body = match reply {
            Reply::Result(json, _) => Body::Result(json),
            Reply::ServerError(json) => Body::RawError(json),
            Reply::Unknown => Body::Error(code::INVALID_PARAMS, format!("unknown tool: {:?}", call.exposed)),
            Reply::Failed(fault) => Body::Result(adapt::tool_failure(&fault.outward, call.era)),
            // Withdrawn by us at the end of a drain: the client still waits.
            Reply::Cancelled => Body::Result(adapt::tool_failure("the gateway is shutting down", call.era)),
        };
        self.answer(call.key, body).await;
    }

    async fn list(self: Arc<Self>, list: List) {
        let body = match self.gateway.list(&self.caller, list.era, list.cursor.as_deref()).await {
            Some((result, seal)) => {
                *lock(&self.told) = Some(seal);
                Body::Result(result)
            }
            None => Body::Error(code::INVALID_PARAMS, "the cursor is not one of this list".into()),
        };
        self.answer(list.key, body).await;
    }

    async fn answer(&self, key: Key, body: Body) {
        let line = lock(&self.session).answered(key, body);
        if let Some(line) = line {
            self.out.send(line).await;
        }
    }
}

/// Tells the client when what it was shown is no longer what there is.
async fn tell_changes(conversation: Arc<Conversation>) {
    let gateway = &conversation.gateway;
    let (mut changes, mut roster) = (gateway.pool.changes(), gateway.pool.roster());
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = conversation.abandon.cancelled() => return,
        }
        tokio::time::sleep(DEBOUNCE).await;
        changes.mark_unchanged();
        if !gateway.pool.is_in_force(&roster) {
            roster = gateway.pool.roster();
            // What a list of another configuration will hold is learnt as for the first list.
            if lock(&conversation.session).is_open() {
                gateway.learn(&conversation.caller);
            }
        }
        let now = gateway.seal(&conversation.caller);
        let news = lock(&conversation.told).replace(now).is_some_and(|before| before != now);
        if news {
            let line = lock(&conversation.session).list_changed();
            if let Some(line) = line {
                conversation.out.send(line).await;
            }
        }
    }
}
