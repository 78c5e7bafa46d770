//! Messages that we author: results, errors, requests and notifications as lines. Knows no MCP.

use super::edit::quoted;
use super::envelope::Id;

/// A result under an id; `result` is JSON.
pub fn result(id: &Id, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.json())
}

/// An error under an id (null where it is unknown); `data` is JSON.
pub fn error(id: Option<&Id>, code: i32, message: &str, data: Option<&str>) -> String {
    let data = data.map(|d| format!(r#","data":{d}"#)).unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":{}{data}}}}}"#,
        id.map_or("null", Id::json),
        quoted(message)
    )
}

/// A request; `params` is JSON.
pub fn request(id: &Id, method: &str, params: Option<&str>) -> String {
    let params = params.map(|p| format!(r#","params":{p}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{},"method":{}{params}}}"#, id.json(), quoted(method))
}

/// A notification; `params` is JSON.
pub fn notification(method: &str, params: Option<&str>) -> String {
    let params = params.map(|p| format!(r#","params":{p}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","method":{}{params}}}"#, quoted(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_json_rpc() {
        let id = Id::from(7);
        assert_eq!(result(&id, "{}"), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert_eq!(
            error(None, -32700, "no \"JSON\"", None),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no \"JSON\""}}"#
        );
        assert_eq!(notification("n", Some("[1]")), r#"{"jsonrpc":"2.0","method":"n","params":[1]}"#);
        assert_eq!(request(&id, "m", None), r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#);
    }
}
