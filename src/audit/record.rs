//! The records of the audit, field by field as the interface promises them. Knows nothing of files and chains. Pure.

use std::time::SystemTime;

use serde::{Serialize, Serializer};

use super::redact::{Redactor, cap};
use super::text::to_json;
use crate::error::Class;
use crate::name::{CallId, Role};

/// One record, before it is sealed.
#[derive(Clone, Debug)]
pub enum Record {
    /// A call was asked for.
    Intent(Intent),
    /// A call has ended.
    Outcome(Outcome),
    /// Something happened to a server.
    Server(ServerEvent),
    /// Something happened to the gateway.
    Gateway(GatewayEvent),
    /// A server reached something, or was kept from it.
    Egress(Egress),
}

/// A call as it was asked for and decided, before anything leaves.
#[derive(Clone, Debug, Serialize)]
pub struct Intent {
    /// The call.
    #[serde(serialize_with = "shown")]
    pub call: CallId,
    /// Who; `None` for a guest.
    pub principal: Option<String>,
    /// How that is known: `stdio:me`, a token's id, `guest`.
    pub actor: String,
    /// The role it was decided for.
    #[serde(serialize_with = "shown")]
    pub role: Role,
    /// Which front it came by: `stdio`, `http`, `sse`, `cli`.
    pub face: &'static str,
    /// A name for the conversation, never the secret that opens it.
    pub session: Option<String>,
    /// What the client calls itself.
    pub client: Option<String>,
    /// The method of the request.
    pub method: String,
    /// The name that the client used.
    pub exposed: Option<String>,
    /// The server, where the name has one.
    pub server: Option<String>,
    /// The server's own name for the tool.
    pub tool: Option<String>,
    /// Whether it may be called.
    #[serde(rename = "decision", serialize_with = "verdict")]
    pub allow: bool,
    /// The rules that decided.
    pub policy: Vec<&'static str>,
    /// Size of the arguments as they came.
    pub args_bytes: u64,
    /// Their keyed hash; see [`super::Audit::args_hash`].
    pub args_hash: Option<String>,
    /// The container, where one runs.
    pub instance: Option<String>,
    /// The digest of its image.
    pub image: Option<String>,
    /// How the server is confined, where there is a server.
    pub isolation: Option<Isolation>,
    /// The digest of the proof.
    pub evidence: Option<String>,
}

/// How a server is confined, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// What was asked is what there is.
    Proven,
    /// Nothing runs yet.
    NotRunning,
    /// It is not as asked, so nothing runs.
    Refused,
    /// On the host, by a written reason.
    Unisolated,
    /// Somewhere else.
    Remote,
}

/// How a call ended.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The call.
    #[serde(serialize_with = "shown")]
    pub call: CallId,
    /// In one word.
    pub outcome: Ended,
    /// In a few.
    pub detail: Option<String>,
    /// From the request to its answer.
    pub ms: u64,
    /// Size of the result as it came.
    pub result_bytes: u64,
}

/// How a call ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a result.
    Ok,
    /// With a result that says that the tool failed.
    ToolError,
    /// With the server's own JSON-RPC error.
    RpcError,
    /// The policy forbade it.
    Denied,
    /// We could not carry it out.
    Failed(Class),
}

/// Something that happened to a server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerEvent {
    /// The server.
    pub server: String,
    /// What happened.
    pub event: ServerWord,
    /// The container it happened to.
    pub container: Option<String>,
    /// The digest of its image.
    pub image: Option<String>,
    /// The digest of the proof.
    pub evidence: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// What happened to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the interface")]
pub enum ServerWord {
    Started,
    Proven,
    Refused,
    Stopped,
    Oom,
    Crashed,
    Changed,
    Approved,
    Unisolated,
}

/// Something that happened to the gateway.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayEvent {
    /// What happened.
    pub event: GatewayWord,
    /// The configuration in force.
    pub config_digest: Option<String>,
    /// The policy in force.
    pub policy_digest: Option<String>,
    /// Of a reload alone.
    #[serde(flatten)]
    pub reload: Option<Reload>,
}

/// What a reload came to. Where it was refused, what was in force before is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reload {
    /// The configuration that was in force before.
    pub old_config_digest: Option<String>,
    /// The policy that was in force before.
    pub old_policy_digest: Option<String>,
    /// What was changed, in words.
    pub changes: Option<String>,
    /// Why it was refused, if it was.
    pub reason: Option<String>,
}

/// What happened to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the interface")]
pub enum GatewayWord {
    Start,
    Stop,
    Reload,
    Rotate,
    Recovered,
}

/// A connection of a server's, or the attempt at one. One that is made has two such records: before it is made, without
/// what it will have carried, and when it has ended. Any other has the second alone.
#[derive(Clone, Debug, Serialize)]
pub struct Egress {
    /// Its name, which both have.
    pub connection: String,
    /// The server.
    pub server: String,
    /// The container.
    pub instance: String,
    /// `host:port` as the server asked for it.
    pub target: String,
    /// `allow`, or in one word why not.
    pub decision: &'static str,
    /// Why not, in a few.
    pub reason: Option<String>,
    /// Bytes that left.
    pub bytes_out: Option<u64>,
    /// Bytes that came.
    pub bytes_in: Option<u64>,
    /// How long it took.
    pub ms: Option<u64>,
}

impl Record {
    /// The record as JSON members, ready to be sealed. Everything that came from outside goes through `redactor`.
    pub fn body(mut self, time: SystemTime, gateway: &str, redactor: &Redactor) -> String {
        self.clean(redactor);
        let time = humantime::format_rfc3339_millis(time);
        let (kind, fields) = match &self {
            Record::Intent(intent) => ("intent", to_json(intent)),
            Record::Outcome(outcome) => ("outcome", to_json(outcome)),
            Record::Server(event) => ("server", to_json(event)),
            Record::Gateway(event) => ("gateway", to_json(event)),
            Record::Egress(passage) => ("egress", to_json(passage)),
        };
        let fields = &fields[1..fields.len() - 1];
        format!(r#""time":"{time}","kind":"{kind}","gateway":{},{fields}"#, to_json(&gateway))
    }

    /// Every text that can be long is cut, every text that others wrote is redacted too.
    fn clean(&mut self, redactor: &Redactor) {
        let outside = |text: &mut String| *text = redactor.clean(text);
        let ours = |text: &mut String| *text = cap(text);
        match self {
            Record::Intent(i) => {
                outside(&mut i.method);
                [&mut i.session, &mut i.client, &mut i.exposed, &mut i.tool].into_iter().flatten().for_each(outside);
                ours(&mut i.actor);
                [&mut i.principal, &mut i.server].into_iter().flatten().for_each(ours);
                [&mut i.args_hash, &mut i.instance, &mut i.image, &mut i.evidence].into_iter().flatten().for_each(ours);
            }
            Record::Outcome(o) => o.detail.iter_mut().for_each(outside),
            Record::Server(s) => {
                s.reason.iter_mut().for_each(outside);
                ours(&mut s.server);
                [&mut s.container, &mut s.image, &mut s.evidence].into_iter().flatten().for_each(ours);
            }
            Record::Egress(e) => {
                outside(&mut e.target);
                e.reason.iter_mut().for_each(outside);
                [&mut e.connection, &mut e.server, &mut e.instance].into_iter().for_each(ours);
            }
            Record::Gateway(g) => {
                [&mut g.config_digest, &mut g.policy_digest].into_iter().flatten().for_each(ours);
                if let Some(r) = &mut g.reload {
                    [&mut r.old_config_digest, &mut r.old_policy_digest].into_iter().flatten().for_each(ours);
                    [&mut r.changes, &mut r.reason].into_iter().flatten().for_each(outside);
                }
            }
        }
    }
}

impl GatewayEvent {
    /// A torn end of the file was set aside.
    pub(super) fn recovered() -> Self {
        GatewayEvent { event: GatewayWord::Recovered, config_digest: None, policy_digest: None, reload: None }
    }
}

impl Ended {
    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Ended::Ok => "ok",
            Ended::ToolError => "tool_error",
            Ended::RpcError => "rpc_error",
            Ended::Denied => "denied",
            Ended::Failed(class) => class.outcome(),
        }
    }
}

impl Serialize for Ended {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn shown<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn verdict<S: Serializer>(allow: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *allow { "allow" } else { "deny" })
}

#[cfg(test)]
mod tests;
