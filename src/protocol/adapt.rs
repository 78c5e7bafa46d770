//! What a result needs when the client's era is not the server's, and the texts we author ourselves. Pure.

use rmcp::model::{Implementation, ServerCapabilities, ToolsCapability};
use serde_json::Value;

use crate::wire::{Edit, Object};

use super::{Era, revisions};

/// `Implementation` with our version, as JSON.
pub fn implementation(name: &str) -> String {
    json(&Implementation::new(name, env!("CARGO_PKG_VERSION")))
}

/// What the gateway can do for a client: tools whose list may change. In the stateless era changes are told on a
/// listen stream, which is not offered yet, so they are not promised there.
fn capabilities(era: Era) -> String {
    let mut all = ServerCapabilities::default();
    let mut tools = ToolsCapability::default();
    tools.list_changed = (era == Era::Handshake).then_some(true);
    all.tools = Some(tools);
    json(&all)
}

/// The result of `initialize`.
pub fn initialize_result(name: &str, revision: &str) -> String {
    format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{},"serverInfo":{}}}"#,
        capabilities(Era::Handshake),
        implementation(name)
    )
}

/// The result of `server/discover` (2026-07-28): never cached, since what a caller sees depends on its role.
pub fn discover_result(name: &str) -> String {
    let versions = serde_json::json!(revisions());
    format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{},"ttlMs":0,"cacheScope":"private","_meta":{{"{}":{}}}}}"#,
        capabilities(Era::Stateless),
        super::meta::SERVER_INFO,
        implementation(name)
    )
}

/// A list result of ours in the client's era. `items` are JSON texts.
pub fn list_result(key: &str, items: &[&str], next: Option<&str>, era: Era) -> String {
    let room: usize = items.iter().map(|i| i.len() + 1).sum();
    let mut out = String::with_capacity(room + 128);
    out.push('{');
    if era == Era::Stateless {
        out.push_str(r#""resultType":"complete","ttlMs":0,"cacheScope":"private","#);
    }
    out.push_str(&format!(r#""{key}":["#));
    out.push_str(&items.join(","));
    out.push(']');
    if let Some(next) = next {
        out.push_str(&format!(r#","nextCursor":"{next}""#));
    }
    out.push('}');
    out
}

/// A failed tool call as a result that the model can read (`isError`), in the client's era.
pub fn tool_failure(text: &str, era: Era) -> String {
    let dress = if era == Era::Stateless { r#""resultType":"complete","# } else { "" };
    format!(r#"{{{dress}"content":[{{"type":"text","text":{}}}],"isError":true}}"#, crate::wire::edit::quoted(text))
}

/// A server's tool result as the client's era wants it. `Err` says what makes it no tool result.
///
/// `resultType` belongs to the stateless era: it is added towards it (MUST) and taken out on the way to the other, where
/// only `complete` can be passed on. A result without `content` gets an empty one, since clients refuse the whole
/// message otherwise.
///
/// Also says whether the result is the tool's own failure (`isError`).
pub fn tool_result(result: String, client: Era) -> Result<(String, bool), &'static str> {
    let Ok(object) = Object::parse(&result) else { return Err("its result is no object") };
    let kind = object.string("resultType");
    if kind.as_deref().is_some_and(|k| k != "complete") {
        return Err("its result asks for input, which is not relayed");
    }
    let failed = object.get("isError").is_some_and(|e| e.get() == "true");
    let bare = object.get("content").is_none();
    let undress = client == Era::Handshake && kind.is_some();
    let dress = client == Era::Stateless && kind.is_none();
    if !bare && !undress && !dress {
        return Ok((result, failed));
    }
    let mut edit = Edit::new(&object);
    if undress {
        edit.remove("resultType");
    }
    if dress {
        edit.set("resultType", r#""complete""#);
    }
    if bare {
        edit.set("content", "[]");
    }
    Ok((edit.apply(), failed))
}

/// Whether a server's `error` member is one (JSON-RPC 2.0 section 5.1); else what is wrong with it.
pub fn check_error(error: &str) -> Result<(), &'static str> {
    let Ok(object) = Object::parse(error) else { return Err("its error is no object") };
    let code: Option<Value> = object.get("code").and_then(|c| serde_json::from_str(c.get()).ok());
    match code {
        Some(Value::Number(n)) if n.is_i64() || n.is_u64() => {}
        _ => return Err("its error has no integer code"),
    }
    match object.string("message") {
        Some(_) => Ok(()),
        None => Err("its error has no message"),
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_the_clients_own_era_is_not_touched() {
        let same = r#"{"content":[ ] ,"structuredContent":1e400}"#;
        assert_eq!(tool_result(same.to_owned(), Era::Handshake).unwrap().0, same);
        let same = r#"{"resultType":"complete","content":[]}"#;
        assert_eq!(tool_result(same.to_owned(), Era::Stateless).unwrap().0, same);
    }

    #[test]
    fn result_type_is_added_and_taken_out_and_content_is_never_missing() {
        let dressed = tool_result(r#"{"content":[]}"#.to_owned(), Era::Stateless).unwrap().0;
        assert_eq!(dressed, r#"{"resultType":"complete","content":[]}"#);
        let bare = tool_result(r#"{"resultType":"complete","content":[]}"#.to_owned(), Era::Handshake).unwrap().0;
        assert_eq!(bare, r#"{"content":[]}"#);
        assert_eq!(tool_result("{}".to_owned(), Era::Handshake).unwrap().0, r#"{"content":[]}"#);
    }

    #[test]
    fn what_cannot_be_passed_on_is_named() {
        assert!(tool_result("null".to_owned(), Era::Handshake).is_err());
        assert!(tool_result(r#"{"resultType":"input_required"}"#.to_owned(), Era::Handshake).is_err());
        for bad in [r#""boom""#, r#"{"code":"EFAIL","message":"x"}"#, r#"{"code":-1}"#, r#"{"code":1.0,"message":"x"}"#]
        {
            assert!(check_error(bad).is_err(), "{bad}");
        }
        assert!(check_error(r#"{"code":-32602,"message":"m","data":{"k":1}}"#).is_ok());
    }

    #[test]
    fn what_we_author_is_read_back_by_the_typed_model() {
        let init: rmcp::model::InitializeResult =
            serde_json::from_str(&initialize_result("bulkhead", "2025-06-18")).unwrap();
        assert_eq!(init.server_info.name, "bulkhead");
        let discover: rmcp::model::DiscoverResult = serde_json::from_str(&discover_result("b")).unwrap();
        assert_eq!(discover.supported_versions.len(), 5);
        assert_eq!(list_result("tools", &["{}"], Some("c"), Era::Handshake), r#"{"tools":[{}],"nextCursor":"c"}"#);
    }
}
