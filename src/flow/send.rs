//! The call at its server: sent raw, watched by two deadlines, withdrawn when nobody waits any more.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::instance::Instance;
use crate::downstream::peer::{Answer, Peer};
use crate::error::{Class, Fault};
use crate::protocol::{Era, adapt, meta};
use crate::wire::edit::quoted;
use crate::wire::{Edit, Object};

use super::target::Found;
use super::{Reply, ToolCall};

/// Sends the call and waits for its answer; `None` where it was not sent, since by its turn it `may` not be any more.
pub(super) async fn send(
    call: &mut ToolCall<'_>,
    found: &Found,
    instance: &Instance,
    may: impl Fn() -> bool,
) -> Result<Option<Reply>, Fault> {
    let peer = &instance.peer;
    let (server, tool) = (&found.entry.server, &found.tool);
    let idle = server.timeout;
    let total = Instant::now() + server.max_time.max(idle);
    let mut quiet = Instant::now() + idle;
    let late = |limit: Duration, what: &str| {
        let text = format!("server {}, tool {tool}: {what} within {limit:?}", server.name);
        Err(Fault::new(Class::Timeout, text))
    };
    let mut turn = call.turn.take();
    let sent = async {
        if let Some(turn) = &mut turn {
            turn.come().await;
        }
        match may() {
            true => peer.ask("tools/call", |id| params(call, tool, peer.era(), id)).await.map(Some),
            false => Ok(None),
        }
    };
    // A server that takes nothing in must not hold a call for longer than one that does not answer.
    let Ok(asked) = tokio::time::timeout_at(quiet, sent).await else { return late(idle, "it takes no call in") };
    let Some(mut asked) = asked? else {
        call.turn = turn;
        return Ok(None);
    };
    // It is on its way: the next one may follow.
    drop(turn);
    let pending = Pending { peer, id: asked.id };
    loop {
        // A flood of progress must not hide the end of the time.
        if Instant::now() >= total {
            return late(server.max_time, "no answer");
        }
        tokio::select! {
            biased;
            Some(params) = asked.progress.recv() => {
                quiet = Instant::now() + idle;
                if let Some(progress) = call.progress {
                    // The client may be slow to read, but not for longer than the call may last.
                    let _ = tokio::time::timeout_at(total, progress(params)).await;
                }
            }
            answer = &mut asked.answer => {
                pending.done();
                return match answer {
                    Ok(answer) => read(answer, call.era, found).map(Some),
                    Err(_) => Err(peer.fault().await),
                };
            }
            () = tokio::time::sleep_until(quiet.min(total)) => {
                instance.doubted.notify_one();
                return if quiet <= total { late(idle, "no answer and no progress") } else { late(server.max_time, "no answer") };
            }
        }
    }
}

/// The client's parameters as this server is to see them; only the name, an `arguments: null` and what of `_meta` speaks
/// to us are touched.
fn params(call: &ToolCall<'_>, tool: &str, era: Era, id: u64) -> Option<String> {
    let object = Object::parse(call.params).ok()?;
    let mut edit = Edit::new(&object);
    edit.set("name", quoted(tool));
    if object.get("arguments").is_some_and(|a| a.get() == "null") {
        edit.remove("arguments");
    }
    let token = call.progress.map(|_| id.to_string());
    meta::for_server(&object, &mut edit, era, token.as_deref());
    Some(edit.apply())
}

fn read(answer: Answer, client: Era, found: &Found) -> Result<Reply, Fault> {
    let server = &found.entry.server;
    let defect =
        |why: &str| Err(Fault::new(Class::Malformed, format!("server {} answered wrongly: {why}", server.name)));
    match answer {
        Answer::Result(result) => match adapt::tool_result(result, client) {
            Ok((text, failed)) => Ok(Reply::Result(text, failed)),
            Err(why) => defect(why),
        },
        Answer::Error(error) => match adapt::check_error(&error) {
            Ok(()) => Ok(Reply::ServerError(error)),
            Err(why) => defect(why),
        },
        Answer::Malformed(why) => defect(why),
        Answer::TooLarge(length) => Err(Fault::new(
            Class::TooLarge,
            format!(
                "server {}, tool {}: the result of {length} bytes is over the limit max_result = {} bytes",
                server.name, found.tool, server.max_result
            ),
        )),
    }
}

/// A request at a server; dropping it before it is done withdraws it there.
struct Pending<'a> {
    peer: &'a Peer,
    id: u64,
}

impl Pending<'_> {
    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.peer.withdraw(self.id, "the caller no longer waits");
    }
}
