//! The opening of a conversation with a server, and the lists of what it offers. Knows no role and no exposed name.
//!
//! `initialize` comes first, always: servers on several SDKs exit, or lock themselves to one era, when `server/discover`
//! arrives first, while a server of the stateless era merely answers `initialize` with an error and then discovers.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::error::{Class, Fault};
use crate::name::ServerName;
use crate::protocol::{Era, NEWEST_HANDSHAKE, STATELESS, adapt, code, meta};
use crate::route::listing::Told;
use crate::wire::Object;
use crate::wire::edit::quoted;

use super::peer::{Answer, Peer};

/// Pages read of one list.
const PAGES: usize = 100;
/// Items kept of one list.
const ITEMS: usize = 10_000;
/// Bytes of all that a server may offer: it is kept in the lock, and one server must not fill that of all.
const OFFER: usize = 16 << 20;
/// How long the lists beside the tools may take: nobody waits for a server whose tools are known.
const BESIDE: Duration = Duration::from_secs(5);

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The revision that is spoken.
    pub revision: String,
    /// Its capabilities, as JSON.
    pub capabilities: String,
    /// What it says of its use.
    pub instructions: Option<String>,
}

/// One list of a server, as it came.
#[derive(Debug, Default)]
struct Listed {
    /// The definitions, as JSON, in the server's order.
    items: Vec<String>,
    /// What was wrong with the list, if anything; what is there is served all the same.
    warning: Option<String>,
}

/// A list that servers have.
struct List {
    /// The capability that says that there is one.
    capability: &'static str,
    method: &'static str,
    /// The member of the result that it is in.
    member: &'static str,
    /// What it is a list of.
    of: &'static str,
}

/// Whether a server that refuses a list merely has none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Optional {
    Never,
    /// Where it says that there is no such method: many have resources, and no templates of them.
    WhereUnknown,
    Always,
}

const TOOLS: List = List { capability: "tools", method: "tools/list", member: "tools", of: "tools" };
const PROMPTS: List = List { capability: "prompts", method: "prompts/list", member: "prompts", of: "prompts" };
const TEMPLATES: List = List {
    capability: "resources",
    method: "resources/templates/list",
    member: "resourceTemplates",
    of: "resource templates",
};

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
            let capabilities = object.as_ref().and_then(|o| o.get("capabilities").map(|c| c.get().to_owned()));
            Ok(Greeting {
                revision: STATELESS.into(),
                capabilities: capabilities.unwrap_or_else(|| "{}".into()),
                instructions: object.and_then(|o| o.string("instructions")),
            })
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
        instructions: object.string("instructions"),
    })
}

fn odd(name: &ServerName, method: &str) -> Fault {
    Fault::new(Class::Malformed, format!("server {name} answered {method} with something else"))
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Asks a server for all that it offers. Its tools must be known for it to be of use; what fails of the other lists is
/// told with them.
pub async fn list(peer: &Peer, greeting: &Greeting, deadline: Instant) -> Result<Told, Fault> {
    // Servers with empty capabilities often have tools all the same; those that declare others and not these do not.
    let declared = Object::parse(&greeting.capabilities).ok();
    let declares = |list: &List| declared.as_ref().is_some_and(|c| c.get(list.capability).is_some());
    let bare = declared.as_ref().is_none_or(|c| c.members().is_empty());
    let tools = if bare || declares(&TOOLS) {
        let optional = if declares(&TOOLS) { Optional::Never } else { Optional::Always };
        pages(peer, &TOOLS, deadline, optional).await?
    } else {
        Listed::default()
    };
    let mut told = Told { tools: tools.items, instructions: greeting.instructions.clone(), ..Told::default() };
    let mut warnings: Vec<String> = tools.warning.into_iter().collect();
    for (list, items) in [(&PROMPTS, &mut told.prompts), (&TEMPLATES, &mut told.templates)] {
        if !declares(list) {
            continue;
        }
        match pages(peer, list, deadline.min(Instant::now() + BESIDE), Optional::WhereUnknown).await {
            Ok(listed) => {
                *items = listed.items;
                warnings.extend(listed.warning);
            }
            Err(fault) if peer.ended().is_some() => return Err(fault),
            Err(fault) => warnings.push(format!("its {} cannot be listed: {}", list.of, fault.inward)),
        }
    }
    let said = [&told.tools, &told.prompts, &told.templates].into_iter().flatten().map(String::len).sum::<usize>();
    if said + told.instructions.as_ref().map_or(0, String::len) > OFFER {
        let text = format!("a server offers more than {} MiB of definitions", OFFER >> 20);
        return Err(Fault::new(Class::TooLarge, text));
    }
    told.warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok(told)
}

/// Reads all pages of one list. A page that fails ends the list with a warning, and so do a cursor that comes twice and a
/// list without end; an empty cursor is a cursor. Where it is `optional` to have a list, a server that refuses it has none.
async fn pages(peer: &Peer, list: &List, deadline: Instant, optional: Optional) -> Result<Listed, Fault> {
    let (mut listed, mut cursor, mut seen) = (Listed::default(), None::<String>, Vec::new());
    let of = list.of;
    for page in 0..PAGES {
        let params = page_params(peer.era(), cursor.as_deref());
        let result = match peer.ask_within(list.method, params, left(deadline)).await {
            Ok(Answer::Result(result)) => result,
            Err(fault) if page == 0 => return Err(fault),
            // A line that was cut, as by an engine that ends: what it offers is not known, and is not nothing.
            Ok(answer @ (Answer::Malformed(_) | Answer::TooLarge(_))) if page == 0 => {
                let text = format!("its list of {of} cannot be read: {}", failure(Ok(answer)));
                return Err(Fault::new(Class::Malformed, text));
            }
            Ok(Answer::Error(_)) if page == 0 && optional == Optional::Always => return Ok(listed),
            Ok(Answer::Error(error))
                if page == 0 && optional == Optional::WhereUnknown && is_unknown_method(&error) =>
            {
                return Ok(listed);
            }
            other => {
                listed.warning = Some(format!("page {} of its {of} failed: {}", page + 1, failure(other)));
                return Ok(listed);
            }
        };
        let Some((items, next)) = read_page(&result, list.member) else {
            listed.warning = Some(format!("page {} of its {of} is no list", page + 1));
            return Ok(listed);
        };
        listed.items.extend(items);
        let Some(next) = next else { return Ok(listed) };
        if listed.items.len() > ITEMS {
            listed.items.truncate(ITEMS);
            listed.warning = Some(format!("it lists more than {ITEMS} {of}"));
            return Ok(listed);
        }
        if seen.contains(&next) {
            listed.warning = Some(format!("its list of {of} comes back to a page it had"));
            return Ok(listed);
        }
        seen.push(next.clone());
        cursor = Some(next);
    }
    listed.warning = Some(format!("its list of {of} has more than {PAGES} pages"));
    Ok(listed)
}

/// Whether a server says that it has no such method.
fn is_unknown_method(error: &str) -> bool {
    let object = Object::parse(error).ok();
    object.is_some_and(|o| o.get("code").is_some_and(|n| n.get().parse() == Ok(code::METHOD_NOT_FOUND)))
}

fn page_params(era: Era, cursor: Option<&str>) -> Option<String> {
    let mut members: Vec<String> = cursor.map(|c| format!(r#""cursor":{}"#, quoted(c))).into_iter().collect();
    if era == Era::Stateless {
        members.push(format!(r#""_meta":{}"#, meta::ours()));
    }
    (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
}

fn read_page(result: &str, member: &str) -> Option<(Vec<String>, Option<String>)> {
    let object = Object::parse(result).ok()?;
    let items: Vec<&RawValue> = serde_json::from_str(object.get(member)?.get()).ok()?;
    Some((items.into_iter().map(|t| t.get().to_owned()).collect(), object.string("nextCursor")))
}

fn failure(answer: Result<Answer, Fault>) -> String {
    match answer {
        Err(fault) => fault.inward,
        Ok(Answer::Error(error)) => crate::wire::text::visible(&error, 200),
        Ok(Answer::Malformed(why)) => why.into(),
        Ok(_) => "it is too large".into(),
    }
}
