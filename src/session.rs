//! One client's conversation as a state machine: it takes lines and answers in, and gives effects out. Pure: no I/O, no
//! clock, no server, no engine.
//!
//! Both eras are spoken on one pipe, request by request: a request that carries the stateless era's `_meta` is of that
//! era, whatever came before, so that a `server/discover` never locks the pipe.

use std::collections::HashMap;

use crate::protocol::{Era, adapt, code, meta, negotiate, revisions};
use crate::wire::envelope::find_id;
use crate::wire::{Defect, Edit, Envelope, Id, Kind, Line, Object, reply};

pub mod request;

use request::{Rejected, Request};

/// Which of the session's open requests an effect or an answer speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(u64);

/// What is to be done for the client.
#[derive(Debug)]
pub enum Effect {
    /// Send this line to the client.
    Send(String),
    /// Call a tool, then tell [`Session::answered`].
    Call(Call),
    /// List the tools, then tell [`Session::answered`].
    List(List),
    /// The client withdrew that request; no answer to it will be sent.
    Cancel(Key),
    /// A call that makes no sense: record it, then send the line.
    Refuse(Refuse),
}

/// A tool call to carry out.
#[derive(Debug)]
pub struct Call {
    /// The open request.
    pub key: Key,
    /// The era of the request.
    pub era: Era,
    /// The name the client used.
    pub exposed: String,
    /// The whole `params`, as they came.
    pub params: String,
    /// Whether the client asked for progress.
    pub progress: bool,
}

/// A call that is refused as it stands.
#[derive(Debug)]
pub struct Refuse {
    /// The answer.
    pub line: String,
    /// The name the client used, as far as there is one.
    pub exposed: String,
    /// The whole `params`, as they came.
    pub params: String,
    /// What is wrong with it.
    pub why: String,
}

/// A list to answer.
#[derive(Debug)]
pub struct List {
    /// The open request.
    pub key: Key,
    /// The era of the request.
    pub era: Era,
    /// Where the page begins.
    pub cursor: Option<String>,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// A result, as JSON.
    Result(String),
    /// A server's own error, as JSON, passed on unchanged.
    RawError(String),
    /// An error of ours.
    Error(i32, String),
}

/// One conversation.
#[derive(Debug)]
pub struct Session {
    name: String,
    revision: Option<&'static str>,
    client: Option<String>,
    open: HashMap<Key, Open>,
    keys: HashMap<Id, Key>,
    next: u64,
}

/// A request without an answer yet.
#[derive(Debug)]
struct Open {
    id: Id,
    /// The client's progress token, as JSON.
    token: Option<String>,
}

impl Session {
    /// A conversation that has not begun; `name` is what we call ourselves.
    pub fn new(name: &str) -> Self {
        Session {
            name: name.to_owned(),
            revision: None,
            client: None,
            open: HashMap::new(),
            keys: HashMap::new(),
            next: 0,
        }
    }

    /// What the client said it is, for the audit; nothing is decided by it.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Whether `initialize` has been answered.
    pub fn is_open(&self) -> bool {
        self.revision.is_some()
    }

    /// Requests without an answer yet.
    #[cfg(test)]
    fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Takes in one line of the client.
    pub fn line(&mut self, line: Line) -> Option<Effect> {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong { head, tail, length } => {
                let why = format!("a message of {length} bytes is over the limit");
                let id = find_id(&head, &tail);
                return Some(Effect::Send(reply::error(id.as_ref(), code::INVALID_REQUEST, &why, None)));
            }
        };
        let Ok(text) = std::str::from_utf8(&bytes) else { return Some(not_json("it is not UTF-8")) };
        let envelope = match Envelope::parse(text) {
            Ok(envelope) => envelope,
            Err(Defect::NotJson) => return Some(not_json("it is no JSON")),
            Err(Defect::NotMessage { id, why }) => {
                return Some(Effect::Send(reply::error(id.as_ref(), code::INVALID_REQUEST, why, None)));
            }
        };
        match envelope.kind {
            Kind::Request { id, method, params } => Some(self.request(id, &method, params.map(|p| p.get()))),
            Kind::Notification { method, params } => self.notification(&method, params.map(|p| p.get())),
            // We ask the client nothing yet, so there is nothing these could answer.
            Kind::Result { .. } | Kind::Error { .. } => None,
        }
    }

    /// The line for an answer; `None` if the client withdrew the request meanwhile.
    pub fn answered(&mut self, key: Key, body: Body) -> Option<String> {
        let open = self.open.remove(&key)?;
        self.keys.remove(&open.id);
        Some(match body {
            Body::Result(json) => reply::result(&open.id, &json),
            Body::RawError(json) => {
                format!(r#"{{"jsonrpc":"2.0","id":{},"error":{json}}}"#, open.id.json())
            }
            Body::Error(code, message) => reply::error(Some(&open.id), code, &message, None),
        })
    }

    /// The line for a server's progress notice; `None` where the client did not ask or no longer waits.
    pub fn progress(&self, key: Key, params: &str) -> Option<String> {
        let token = self.open.get(&key)?.token.as_deref()?;
        let params = Object::parse(params).ok()?;
        let mut edit = Edit::new(&params);
        edit.set(meta::PROGRESS_TOKEN, token);
        Some(reply::notification("notifications/progress", Some(&edit.apply())))
    }

    /// The notice that the tools may be others now; `None` before the client has opened a session of the handshake era.
    pub fn list_changed(&self) -> Option<String> {
        self.revision.map(|_| reply::notification("notifications/tools/list_changed", None))
    }

    fn request(&mut self, id: Id, method: &str, params: Option<&str>) -> Effect {
        if self.keys.contains_key(&id) {
            let why = "this id belongs to a request that is not answered yet";
            return Effect::Send(reply::error(Some(&id), code::INVALID_REQUEST, why, None));
        }
        let answer = |json: &str| Effect::Send(reply::result(&id, json));
        match Request::parse(method, params, self.revision.is_some()) {
            Ok(Request::Initialize { revision, client }) => {
                let revision = negotiate(&revision);
                self.revision = Some(revision);
                self.client = client;
                answer(&adapt::initialize_result(&self.name, revision))
            }
            Ok(Request::Discover { client }) => {
                self.client = client;
                answer(&adapt::discover_result(&self.name))
            }
            Ok(Request::Ping) => answer("{}"),
            Ok(Request::Nothing { key, era }) => answer(&adapt::list_result(key, &[], None, era)),
            Ok(Request::List { era, cursor }) => Effect::List(List { key: self.keep(id, None), era, cursor }),
            Ok(Request::Call { era, exposed, params, token, client }) => {
                self.client = client.or_else(|| self.client.take());
                let progress = token.is_some();
                Effect::Call(Call { key: self.keep(id, token), era, exposed, params, progress })
            }
            Err(Rejected { code, why, data }) => {
                let line = reply::error(Some(&id), code, &why, data.as_deref());
                match method {
                    "tools/call" => {
                        let params = params.unwrap_or("{}").to_owned();
                        let exposed = Object::parse(&params).ok().and_then(|p| p.string("name")).unwrap_or_default();
                        Effect::Refuse(Refuse { line, exposed, params, why })
                    }
                    _ => Effect::Send(line),
                }
            }
        }
    }

    fn keep(&mut self, id: Id, token: Option<String>) -> Key {
        let key = Key(self.next);
        self.next += 1;
        self.keys.insert(id.clone(), key);
        self.open.insert(key, Open { id, token });
        key
    }

    fn notification(&mut self, method: &str, params: Option<&str>) -> Option<Effect> {
        if method != "notifications/cancelled" {
            return None;
        }
        let params = Object::parse(params?).ok()?;
        let key = self.keys.remove(&Id::of(params.get("requestId")?)?)?;
        self.open.remove(&key);
        Some(Effect::Cancel(key))
    }
}

fn not_json(why: &str) -> Effect {
    Effect::Send(reply::error(None, code::PARSE, &format!("the line cannot be read: {why}"), None))
}

/// The `data` of an unsupported-version error (2026-07-28, versioning).
fn supported(asked: &str) -> String {
    serde_json::json!({ "supported": revisions(), "requested": asked }).to_string()
}

#[cfg(test)]
mod tests;
