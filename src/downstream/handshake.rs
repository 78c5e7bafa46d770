//! The opening of a conversation with a server, and the list of its tools. Knows no role and no exposed name.
//!
//! `initialize` comes first, always: servers on several SDKs exit, or lock themselves to one era, when `server/discover`
//! arrives first, while a server of the stateless era merely answers `initialize` with an error and then discovers.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::error::{Class, Fault};
use crate::name::ServerName;
use crate::protocol::{Era, NEWEST_HANDSHAKE, STATELESS, adapt, meta};
use crate::wire::Object;
use crate::wire::edit::quoted;

use super::peer::{Answer, Peer};

/// Pages read of one list.
const PAGES: usize = 100;
/// Tools kept of one list.
const TOOLS: usize = 10_000;

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The revision that is spoken.
    pub revision: String,
    /// Its capabilities, as JSON.
    pub capabilities: String,
}

/// A server's tools as it listed them.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The definitions, as JSON, in the server's order.
    pub tools: Vec<String>,
    /// What was wrong with the list, if anything; what is there is served all the same.
    pub warning: Option<String>,
}

/// Opens the conversation within the deadline.
pub async fn greet(peer: &Peer, name: &ServerName, deadline: Instant) -> Result<Greeting, Fault> {
    let params = format!(
        r#"{{"protocolVersion":"{NEWEST_HANDSHAKE}","capabilities":{{}},"clientInfo":{}}}"#,
        adapt::implementation("bulkhead")
    );
    match peer.ask_within("initialize", Some(params), left(deadline)).await? {
        Answer::Result(result) => {
            peer.settle_era(Era::Handshake);
            peer.notify("notifications/initialized", None);
            greeting(&result, "protocolVersion").ok_or_else(|| odd(name, "initialize"))
        }
        Answer::Error(_) => discover(peer, name, deadline).await,
        Answer::TooLarge(_) | Answer::Malformed(_) => Err(odd(name, "initialize")),
    }
}

async fn discover(peer: &Peer, name: &ServerName, deadline: Instant) -> Result<Greeting, Fault> {
    let params = format!(r#"{{"_meta":{}}}"#, meta::ours());
    match peer.ask_within("server/discover", Some(params), left(deadline)).await? {
        Answer::Result(result) => {
            peer.settle_era(Era::Stateless);
            let object = Object::parse(&result).ok();
            let versions = object.as_ref().and_then(|o| o.get("supportedVersions")).map(|v| v.get());
            if !versions.is_some_and(|v| v.contains(&quoted(STATELESS))) {
                return Err(odd(name, "server/discover"));
            }
            let capabilities = object.and_then(|o| o.get("capabilities").map(|c| c.get().to_owned()));
            Ok(Greeting { revision: STATELESS.into(), capabilities: capabilities.unwrap_or_else(|| "{}".into()) })
        }
        Answer::Error(error) => Err(Fault::new(
            Class::Unavailable,
            format!(
                "server {name} refuses both initialize and server/discover: {}",
                crate::wire::text::visible(&error, 200)
            ),
        )),
        Answer::TooLarge(_) | Answer::Malformed(_) => Err(odd(name, "server/discover")),
    }
}

fn greeting(result: &str, revision: &str) -> Option<Greeting> {
    let object = Object::parse(result).ok()?;
    Some(Greeting {
        revision: object.string(revision)?,
        capabilities: object.get("capabilities").map_or("{}", |c| c.get()).to_owned(),
    })
}

fn odd(name: &ServerName, method: &str) -> Fault {
    Fault::new(Class::Malformed, format!("server {name} answered {method} with something else"))
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Reads all pages of the server's tools. A page that fails ends the list with a warning, and so do a cursor that comes
/// twice and a list without end; an empty cursor is a cursor.
pub async fn list_tools(peer: &Peer, greeting: &Greeting, deadline: Instant) -> Result<Listed, Fault> {
    // Servers with empty capabilities often have tools all the same; those that declare others and not these do not.
    let declared = Object::parse(&greeting.capabilities).map(|c| c.members().is_empty() || c.get("tools").is_some());
    if !declared.unwrap_or(true) {
        return Ok(Listed::default());
    }
    let (mut listed, mut cursor, mut seen) = (Listed::default(), None::<String>, Vec::new());
    for page in 0..PAGES {
        let params = page_params(peer.era(), cursor.as_deref());
        let result = match peer.ask_within("tools/list", params, left(deadline)).await {
            Ok(Answer::Result(result)) => result,
            Err(fault) if page == 0 => return Err(fault),
            Ok(Answer::Error(_)) if page == 0 && !greeting.capabilities.contains("tools") => return Ok(listed),
            other => {
                listed.warning = Some(format!("page {} of its tools failed: {}", page + 1, failure(other)));
                return Ok(listed);
            }
        };
        let Some((tools, next)) = read_page(&result) else {
            listed.warning = Some(format!("page {} of its tools is no list", page + 1));
            return Ok(listed);
        };
        listed.tools.extend(tools);
        let Some(next) = next else { return Ok(listed) };
        if listed.tools.len() > TOOLS {
            listed.tools.truncate(TOOLS);
            listed.warning = Some(format!("it lists more than {TOOLS} tools"));
            return Ok(listed);
        }
        if seen.contains(&next) {
            listed.warning = Some("its list of tools comes back to a page it had".into());
            return Ok(listed);
        }
        seen.push(next.clone());
        cursor = Some(next);
    }
    listed.warning = Some(format!("its list of tools has more than {PAGES} pages"));
    Ok(listed)
}

fn page_params(era: Era, cursor: Option<&str>) -> Option<String> {
    let mut members: Vec<String> = cursor.map(|c| format!(r#""cursor":{}"#, quoted(c))).into_iter().collect();
    if era == Era::Stateless {
        members.push(format!(r#""_meta":{}"#, meta::ours()));
    }
    (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
}

fn read_page(result: &str) -> Option<(Vec<String>, Option<String>)> {
    let object = Object::parse(result).ok()?;
    let tools: Vec<&RawValue> = serde_json::from_str(object.get("tools")?.get()).ok()?;
    Some((tools.into_iter().map(|t| t.get().to_owned()).collect(), object.string("nextCursor")))
}

fn failure(answer: Result<Answer, Fault>) -> String {
    match answer {
        Err(fault) => fault.inward,
        Ok(Answer::Error(error)) => crate::wire::text::visible(&error, 200),
        Ok(Answer::Malformed(why)) => why.into(),
        Ok(_) => "it is too large".into(),
    }
}
