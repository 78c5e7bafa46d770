//! `bulkhead call`: one call through the whole path, with an exit code that says how it went.

use std::io::Read as _;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::app::{App, Options};
use crate::config::env::Environment;
use crate::error::{Class, Exit, Fault};
use crate::flow::{Reply, Target, ToolCall};
use crate::name::Role;
use crate::protocol::Era;
use crate::wire::Object;
use crate::wire::edit::quoted;
use crate::wire::text::visible;

use super::print;

/// What `bulkhead call` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The server, by its configured name
    server: String,
    /// The tool, by the server's own name for it
    tool: String,
    /// Arguments: a value that reads as JSON is taken as such, unless the tool wants a string
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// Arguments as one JSON object; @FILE reads a file, - reads standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<String>,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
    /// Give up after that time, such as 30s
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// The role to call as, instead of the configured one
    #[arg(long, value_parser = super::role, value_name = "ROLE")]
    role: Option<Role>,
}

/// Calls the tool and prints its result.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let given = given(&arguments)?;
    let app = App::open(&Options { role: arguments.role, ..options }, env).await?;
    let reply = call(&app, &arguments, given).await;
    let closed = app.close().await;
    let exit = show(reply, &arguments)?;
    closed?;
    Ok(exit)
}

async fn call(app: &App, arguments: &Arguments, given: Given) -> Reply {
    let caller = app.caller("cli");
    let (server, tool) = (arguments.server.as_str(), arguments.tool.as_str());
    let target = Target::Own { server, tool };
    // What the tool wants decides how a bare value is read, so the tool is looked up before the arguments are made.
    let text = match given {
        Given::Whole(text) => text,
        Given::Pairs(pairs) => {
            let schema = app.gateway.schema(&caller, &target).await;
            typed(&pairs, schema.as_ref()).to_string()
        }
    };
    let params = format!(r#"{{"name":{},"arguments":{text}}}"#, quoted(tool));
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let call = ToolCall {
        era: Era::Handshake,
        target,
        params: &params,
        progress: None,
        timeout: arguments.timeout,
        cancel: &cancel,
        turn: None,
    };
    app.gateway.call(&caller, call).await
}

fn show(reply: Reply, arguments: &Arguments) -> Result<Exit, Fault> {
    let Arguments { server, tool, json, .. } = arguments;
    match reply {
        Reply::Result(result, failed) => {
            print::line(&if *json { result } else { readable(&result) });
            Ok(if failed { Exit::ToolError } else { Exit::Fine })
        }
        Reply::ServerError(error) if *json => {
            print::line(&format!(r#"{{"error":{error}}}"#));
            Ok(Exit::ToolError)
        }
        Reply::ServerError(error) => {
            let message = Object::parse(&error).ok().and_then(|e| e.string("message")).unwrap_or_default();
            tracing::error!("server {server:?} refuses: {}", visible(&message, 500));
            Ok(Exit::ToolError)
        }
        Reply::Unknown => Err(Fault::new(Class::Unknown, format!("unknown tool: {server:?} {tool:?}"))),
        Reply::Failed(fault) => Err(fault),
        Reply::Cancelled => Err(Fault::new(Class::Cancelled, "the call was withdrawn")),
    }
}

/// Arguments as they were given.
enum Given {
    /// One JSON object.
    Whole(String),
    /// Keys and values.
    Pairs(Vec<(String, String)>),
}

fn given(arguments: &Arguments) -> Result<Given, Fault> {
    let usage = |text: String| Fault::new(Class::Usage, text);
    let Some(source) = &arguments.args else {
        let pair = |text: &String| match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(usage(format!("{text:?} is no KEY=VALUE"))),
        };
        return arguments.pairs.iter().map(pair).collect::<Result<_, _>>().map(Given::Pairs);
    };
    if !arguments.pairs.is_empty() {
        return Err(usage("give either --args or KEY=VALUE, not both".into()));
    }
    let text = match source.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|e| usage(format!("--args {source}: {e}")))?,
        None if source == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|e| usage(format!("--args -: {e}")))?;
            text
        }
        None => source.clone(),
    };
    match Object::parse(text.trim()) {
        Ok(_) => Ok(Given::Whole(text.trim().to_owned())),
        Err(error) => Err(usage(format!("--args is no JSON object: {error}"))),
    }
}

/// Values by what the tool's schema says of them: a string stays one where a string is wanted, and else whatever reads
/// as JSON is taken as JSON.
fn typed(pairs: &[(String, String)], schema: Option<&Value>) -> Value {
    let wants_text = |key: &str| {
        schema.and_then(|s| s.get("properties")?.get(key)?.get("type")?.as_str()).is_some_and(|kind| kind == "string")
    };
    let value = |key: &str, text: &str| match serde_json::from_str(text) {
        Ok(value) if !wants_text(key) => value,
        _ => Value::from(text),
    };
    Value::Object(pairs.iter().map(|(k, v)| (k.clone(), value(k, v))).collect::<Map<_, _>>())
}

/// The text of a result; what is no text is named with its size. Read block by block, since a number anywhere in it may
/// be one that no type of ours can hold.
fn readable(result: &str) -> String {
    let object = Object::parse(result).ok();
    let blocks: Option<Vec<&RawValue>> =
        object.as_ref().and_then(|o| o.get("content")).and_then(|c| serde_json::from_str(c.get()).ok());
    let (Some(object), Some(blocks)) = (object, blocks) else { return result.to_owned() };
    let text = blocks.iter().map(|block| block_text(block.get())).collect::<Vec<_>>().join("\n");
    match (text.is_empty(), object.get("structuredContent")) {
        (true, Some(structured)) => structured.get().to_owned(),
        _ => text,
    }
}

fn block_text(block: &str) -> String {
    let Ok(block) = Object::parse(block) else { return "[no content block]".to_owned() };
    match block.string("type").as_deref() {
        Some("text") => block.string("text").unwrap_or_default(),
        Some("resource_link") => block.string("uri").unwrap_or_default(),
        kind => {
            let size = block.string("data").map_or(0, |data| data.len());
            format!("[{}, {size} bytes; use --json]", kind.unwrap_or("unknown content"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_read_as_the_tool_wants_it() {
        let schema = json!({"properties": {"zip": {"type": "string"}, "n": {"type": "integer"}}});
        let pairs: Vec<(String, String)> = [("zip", "01234"), ("n", "5"), ("x", "true"), ("y", "a=b"), ("z", "[1]")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        assert_eq!(typed(&pairs, Some(&schema)), json!({"zip": "01234", "n": 5, "x": true, "y": "a=b", "z": [1]}));
    }

    #[test]
    fn a_result_reads_as_text() {
        assert_eq!(readable(r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#), "a\nb");
        assert_eq!(readable(r#"{"content":[],"structuredContent":{"x":1}}"#), r#"{"x":1}"#);
        assert!(readable(r#"{"content":[{"type":"image","data":"AAAA"}]}"#).contains("image, 4 bytes"));
    }
}
