//! The members of `_meta` that the protocol reserves, and how they are taken from a client and given to a server.
//! Pure; everything else in `_meta` passes untouched.

use crate::wire::edit::quoted;
use crate::wire::{Edit, Object};

use super::{Era, STATELESS};

/// Where a request says where its progress is to go.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// The revision of a stateless request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Who sends a stateless request.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the sender of a stateless request can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The log level a stateless request asks for.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answered.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Members of a client's `_meta` that speak to us and not to the server behind.
const OURS: [&str; 5] = [PROGRESS_TOKEN, PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL];

/// Sets in `params` the `_meta` that a server of `era` is to see: the client's own members less those that speak to us,
/// plus our token, plus what the stateless era demands of every request.
pub fn for_server(params: &Object<'_>, edit: &mut Edit<'_, '_>, era: Era, token: Option<&str>) {
    let theirs = params.object("_meta");
    let reserved = theirs.as_ref().is_some_and(|m| m.members().iter().any(|(k, _)| OURS.contains(&k.as_ref())));
    if !reserved && token.is_none() && era == Era::Handshake {
        return;
    }
    let mut members: Vec<String> = theirs
        .iter()
        .flat_map(|m| m.members())
        .filter(|(key, _)| !OURS.contains(&key.as_ref()))
        .map(|(key, value)| format!("{}:{}", quoted(key), value.get()))
        .collect();
    members.extend(token.map(|t| format!(r#""{PROGRESS_TOKEN}":{t}"#)));
    if era == Era::Stateless {
        members.extend(own_trio());
    }
    if members.is_empty() {
        edit.remove("_meta");
    } else {
        edit.set("_meta", format!("{{{}}}", members.join(",")));
    }
}

/// The `_meta` of a request of ours to a stateless server.
pub fn ours() -> String {
    format!("{{{}}}", own_trio().join(","))
}

fn own_trio() -> [String; 3] {
    [
        format!(r#""{PROTOCOL_VERSION}":"{STATELESS}""#),
        format!(r#""{CLIENT_INFO}":{}"#, super::adapt::implementation("bulkhead")),
        format!(r#""{CLIENT_CAPABILITIES}":{{}}"#),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_sees(params: &str, era: Era, token: Option<&str>) -> String {
        let object = Object::parse(params).unwrap();
        let mut edit = Edit::new(&object);
        for_server(&object, &mut edit, era, token);
        edit.apply()
    }

    #[test]
    fn a_meta_that_says_nothing_to_us_is_not_touched() {
        let params = r#"{"name":"x", "_meta": {"vendor": 1e400 , "traceparent":"00"}}"#;
        assert_eq!(server_sees(params, Era::Handshake, None), params);
        assert_eq!(server_sees("{}", Era::Handshake, None), "{}");
    }

    #[test]
    fn the_token_becomes_ours_and_the_rest_stays() {
        let params = r#"{"_meta":{"progressToken":"p","vendor":1E5}}"#;
        assert_eq!(server_sees(params, Era::Handshake, Some("7")), r#"{"_meta":{"vendor":1E5,"progressToken":7}}"#);
    }

    #[test]
    fn what_a_stateless_client_says_of_itself_does_not_reach_a_handshake_server() {
        let params =
            format!(r#"{{"_meta":{{"{PROTOCOL_VERSION}":"2026-07-28","{CLIENT_CAPABILITIES}":{{}}}},"name":"x"}}"#);
        assert_eq!(server_sees(&params, Era::Handshake, None), r#"{"name":"x"}"#);
    }

    #[test]
    fn a_stateless_server_gets_the_members_it_must_have() {
        let got = server_sees(r#"{"name":"x"}"#, Era::Stateless, None);
        for key in [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES] {
            assert!(got.contains(key), "{got}");
        }
    }
}
