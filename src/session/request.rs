//! A client's request, checked and sorted: what it wants, in which era, or why it is rejected. Pure.

use crate::protocol::{Era, STATELESS, code, meta};
use crate::wire::Object;

/// What a request wants.
#[derive(Debug)]
pub enum Request {
    /// `initialize`.
    Initialize {
        /// The revision asked for.
        revision: String,
        /// Name and version of the client.
        client: Option<String>,
    },
    /// `server/discover`.
    Discover {
        /// Name and version of the client.
        client: Option<String>,
    },
    /// `ping`.
    Ping,
    /// A list of something the gateway has none of; clients ask whatever was declared, and drop a server on an error.
    Nothing {
        /// The member that holds the list.
        key: &'static str,
        /// The era of the request.
        era: Era,
    },
    /// `tools/list`.
    List {
        /// The era of the request.
        era: Era,
        /// Where the page begins; an empty string is a cursor too.
        cursor: Option<String>,
    },
    /// `tools/call`.
    Call {
        /// The era of the request.
        era: Era,
        /// The name the client used.
        exposed: String,
        /// All parameters, as they came.
        params: String,
        /// The client's progress token, as JSON.
        token: Option<String>,
        /// Name and version of a stateless client.
        client: Option<String>,
    },
}

/// Why a request is not carried out.
#[derive(Debug)]
pub struct Rejected {
    /// The error code.
    pub code: i32,
    /// The message.
    pub why: String,
    /// The error's `data`, as JSON.
    pub data: Option<String>,
}

fn rejected<T>(code: i32, why: impl Into<String>) -> Result<T, Rejected> {
    Err(Rejected { code, why: why.into(), data: None })
}

impl Request {
    /// Sorts a request; `open` says whether `initialize` came before.
    pub fn parse(method: &str, params: Option<&str>, open: bool) -> Result<Self, Rejected> {
        let Ok(params) = Object::parse(params.unwrap_or("{}")) else {
            return rejected(code::INVALID_PARAMS, "params must be an object");
        };
        if params.repeats("_meta") {
            return rejected(code::INVALID_PARAMS, "\"_meta\" occurs twice in params");
        }
        if method == "initialize" {
            return initialize(&params);
        }
        let own = params.object("_meta");
        let era = era(own.as_ref())?;
        if era == Era::Handshake {
            match method {
                "ping" => return Ok(Request::Ping),
                "server/discover" => {
                    return rejected(code::INVALID_PARAMS, format!("_meta must hold \"{}\"", meta::PROTOCOL_VERSION));
                }
                _ if !open => return rejected(code::INVALID_REQUEST, "initialize first"),
                _ => {}
            }
        }
        let client = own.as_ref().and_then(|m| m.object(meta::CLIENT_INFO)).and_then(|info| client(&info));
        match method {
            "server/discover" => Ok(Request::Discover { client }),
            "tools/list" => list(&params, era),
            "tools/call" => call(&params, era, client),
            "prompts/list" => Ok(Request::Nothing { key: "prompts", era }),
            "resources/list" => Ok(Request::Nothing { key: "resources", era }),
            "resources/templates/list" => Ok(Request::Nothing { key: "resourceTemplates", era }),
            _ => rejected(code::METHOD_NOT_FOUND, format!("no such method: {method:?}")),
        }
    }
}

/// The era of a request by its `_meta`, which the stateless era demands on every request (basic, `_meta`).
fn era(own: Option<&Object<'_>>) -> Result<Era, Rejected> {
    let Some(own) = own.filter(|m| m.get(meta::PROTOCOL_VERSION).is_some()) else { return Ok(Era::Handshake) };
    match own.string(meta::PROTOCOL_VERSION) {
        None => rejected(code::INVALID_PARAMS, format!("\"{}\" must be a string", meta::PROTOCOL_VERSION)),
        Some(version) if version != STATELESS => Err(Rejected {
            code: code::UNSUPPORTED_VERSION,
            why: format!("revision {version:?} is not supported"),
            data: Some(super::supported(&version)),
        }),
        Some(_) if own.object(meta::CLIENT_CAPABILITIES).is_none() => {
            rejected(code::INVALID_PARAMS, format!("_meta must hold the object \"{}\"", meta::CLIENT_CAPABILITIES))
        }
        Some(_) => Ok(Era::Stateless),
    }
}

fn initialize(params: &Object<'_>) -> Result<Request, Rejected> {
    match params.string("protocolVersion") {
        Some(revision) => {
            Ok(Request::Initialize { revision, client: params.object("clientInfo").and_then(|info| client(&info)) })
        }
        None => rejected(code::INVALID_PARAMS, "protocolVersion must be a string"),
    }
}

/// Name and version as one short text.
fn client(info: &Object<'_>) -> Option<String> {
    let name = info.string("name")?;
    let version = info.string("version").unwrap_or_default();
    let text: String = format!("{name} {version}").trim().chars().take(120).collect();
    Some(text)
}

fn list(params: &Object<'_>, era: Era) -> Result<Request, Rejected> {
    match params.get("cursor") {
        None => Ok(Request::List { era, cursor: None }),
        Some(raw) if raw.get() == "null" => Ok(Request::List { era, cursor: None }),
        Some(_) => match params.string("cursor") {
            Some(cursor) => Ok(Request::List { era, cursor: Some(cursor) }),
            None => rejected(code::INVALID_PARAMS, "cursor must be a string"),
        },
    }
}

/// Whether a lenient parser behind us could take a key for `name` or `arguments`: other case, look-alike letters, hidden
/// characters.
fn is_lookalike(key: &str) -> bool {
    let folded: String = key.to_uppercase().to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    matches!(folded.as_str(), "name" | "arguments") && !matches!(key, "name" | "arguments")
}

fn call(params: &Object<'_>, era: Era, client: Option<String>) -> Result<Request, Rejected> {
    // What is decided on must not be readable in two ways by the parsers behind us.
    if let Some(twice) = ["name", "arguments"].into_iter().find(|key| params.repeats(key)) {
        return rejected(code::INVALID_PARAMS, format!("{twice:?} occurs twice in params"));
    }
    if let Some((odd, _)) = params.members().iter().find(|(key, _)| is_lookalike(key)) {
        return rejected(code::INVALID_PARAMS, format!("{odd:?} can be mistaken for a member that is decided on"));
    }
    let Some(exposed) = params.string("name") else {
        return rejected(code::INVALID_PARAMS, "name must be a string");
    };
    if params.get("arguments").is_some_and(|a| a.get() != "null") && params.object("arguments").is_none() {
        return rejected(code::INVALID_PARAMS, "arguments must be an object");
    }
    let token = params.object("_meta").and_then(|m| m.get(meta::PROGRESS_TOKEN)).map(|t| t.get().to_owned());
    if token.as_deref().is_some_and(|t| !t.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())) {
        return rejected(code::INVALID_PARAMS, "progressToken must be a string or a number");
    }
    Ok(Request::Call { era, exposed, params: params.text().to_owned(), token, client })
}
