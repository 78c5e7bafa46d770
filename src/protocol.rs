//! The words of MCP: revisions, eras, reserved keys, error codes. Pure; knows no transport and no server.

use rmcp::model::ErrorCode;

pub mod adapt;
pub mod meta;

/// JSON-RPC and MCP error codes that we author.
pub mod code {
    use super::ErrorCode;

    /// The line is no JSON (JSON-RPC 2.0 section 5.1).
    pub const PARSE: i32 = ErrorCode::PARSE_ERROR.0;
    /// It is JSON, but no message that can be served now.
    pub const INVALID_REQUEST: i32 = ErrorCode::INVALID_REQUEST.0;
    /// No such method.
    pub const METHOD_NOT_FOUND: i32 = ErrorCode::METHOD_NOT_FOUND.0;
    /// Unknown tool, bad cursor, bad arguments.
    pub const INVALID_PARAMS: i32 = ErrorCode::INVALID_PARAMS.0;
    /// A failure of ours or of a server that is no tool result.
    pub const INTERNAL: i32 = ErrorCode::INTERNAL_ERROR.0;
    /// The revision is not supported (2026-07-28).
    pub const UNSUPPORTED_VERSION: i32 = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0;
}

/// How a conversation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, then a session.
    Handshake,
    /// 2026-07-28: every request stands alone, with its `_meta`.
    Stateless,
}

/// The revision of the stateless era.
pub const STATELESS: &str = "2026-07-28";

/// The newest revision of the handshake era.
pub const NEWEST_HANDSHAKE: &str = "2025-11-25";

/// Every revision we speak, newest first.
pub fn revisions() -> Vec<&'static str> {
    vec![STATELESS, NEWEST_HANDSHAKE, "2025-06-18", "2025-03-26", "2024-11-05"]
}

/// The revision to answer `initialize` with: the one asked for where it is of the handshake era, else the newest of it
/// (lifecycle, version negotiation: the server MUST answer with the same version if it supports it).
pub fn negotiate(asked: &str) -> &'static str {
    revisions().into_iter().skip(1).find(|r| *r == asked).unwrap_or(NEWEST_HANDSHAKE)
}

#[cfg(test)]
mod tests {
    use rmcp::model::ProtocolVersion;

    use super::*;

    #[test]
    fn initialize_is_answered_with_the_same_revision_or_the_newest_handshake_one() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("2025-06-18"), "2025-06-18");
        for odd in ["2026-07-28", "1999-01-01", ""] {
            assert_eq!(negotiate(odd), NEWEST_HANDSHAKE);
        }
    }

    #[test]
    fn the_types_we_author_with_know_every_revision() {
        let known = |revision: &str| ProtocolVersion::KNOWN_VERSIONS.iter().any(|v| v.as_str() == revision);
        assert!(revisions().into_iter().all(known));
    }
}
