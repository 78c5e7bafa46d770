//! The official clients, each with its own SDK, in front of the program with a server in a container.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::site::{BULKHEAD, ran};
use crate::support::{Site, contained, repository};

/// The calls that every client makes, with what each has to come to.
const CALLS: [(&str, &str, &str); 5] = [
    ("fx__echo", r#"{"text":"grüße","n":[1,{"z":null}]}"#, "ok"),
    ("fx__count", "{}", "ok"),
    ("fx__progress", r#"{"n":3,"ms":20}"#, "ok"),
    ("fx__tool_error", r#"{"text":"told so"}"#, "tool_error"),
    ("fx__rpc_error", r#"{"code":-32050,"message":"refused"}"#, "rpc_error"),
];

/// Where `scripts/clients` has put the SDKs: below the repository, or where a target directory is shared.
fn installed() -> PathBuf {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    let usual = [repository("target/clients"), shared];
    let named = std::env::var_os("BULKHEAD_CLIENTS").map(PathBuf::from);
    let found = named.or_else(|| usual.into_iter().find(|place| place.is_dir()));
    found.expect("the official clients: run scripts/clients")
}

/// Walks a client through the program, checks the report but for `revision` and `progress`, and returns it.
fn walk(client: &str, flags: &[&str]) -> Value {
    let site = Site::new(&contained("fx", &[]));
    let mut command = site.with_environment(repository("tests/clients").join(client));
    command.env("BULKHEAD_CLIENTS", installed()).args(flags);
    for (tool, arguments, _) in CALLS {
        command.args(["--call", tool, arguments]);
    }
    let ran = ran({
        command.arg("--").arg(BULKHEAD).args(site.line(&["serve"]));
        command
    });
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    check_report(&report);
    check_audit(&site, report["client"].as_str().unwrap());
    report
}

fn check_report(report: &Value) {
    assert_eq!(report["server"]["name"], "bulkhead", "{report}");
    let tools = report["tools"].as_array().unwrap();
    assert!(tools.len() > 10 && tools.iter().all(|t| t.as_str().unwrap().starts_with("fx__")), "{report}");
    let [echo, count, progress, tool_error, rpc_error] = report["calls"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    for call in [echo, count, progress] {
        assert_eq!(call["ok"], true, "{call}");
    }
    assert_eq!(echo["structured"], json!({"text": "grüße", "n": [1, {"z": null}]}));
    assert_eq!(progress["text"], "3 steps");
    assert_eq!((&tool_error["ok"], &tool_error["text"]), (&json!(false), &json!("told so")));
    assert_eq!(rpc_error["ok"], false);
    assert!(rpc_error["text"].as_str().unwrap().contains("refused"), "{rpc_error}");
    assert!(rpc_error["code"].is_null() || rpc_error["code"] == -32050, "{rpc_error}");
}

/// Whatever the client does to its program, the audit is whole: every start has its stop, every call its outcome.
fn check_audit(site: &Site, client: &str) {
    // What the SDK calls itself where the program above it cannot say.
    let client = if client.starts_with("py") { "mcp" } else { client };
    for (tool, _, ended) in CALLS {
        let calls = site.calls_of(tool);
        assert_eq!(calls.len(), 1, "{tool}");
        let (intent, outcome) = &calls[0];
        assert_eq!(outcome["outcome"], ended, "{tool}");
        assert!(intent["client"].as_str().unwrap().to_lowercase().contains(client), "{intent}");
    }
    let gateways = site.records("gateway");
    let events = |event: &str| gateways.iter().filter(|record| record["event"] == *event).count();
    assert_eq!(events("start"), events("stop"));
    site.prints(&["audit", "verify"]);
}

#[test]
fn typescript_1() {
    let report = walk("ts1.mjs", &[]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2025-11-25"), &json!(3)));
}

#[test]
fn typescript_2() {
    let report = walk("ts2.mjs", &[]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2025-11-25"), &json!(3)));
}

#[test]
fn typescript_2_in_the_stateless_era() {
    let report = walk("ts2.mjs", &["--auto"]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2026-07-28"), &json!(3)));
}

#[test]
fn python_1() {
    let report = walk("py1.py", &[]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2025-11-25"), &json!(3)));
}

#[test]
fn python_2_in_the_stateless_era() {
    let report = walk("py2.py", &[]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2026-07-28"), &json!(3)));
}

#[test]
fn python_2_with_the_handshake() {
    let report = walk("py2.py", &["--legacy"]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2025-11-25"), &json!(3)));
}

#[test]
fn inspector() {
    let report = walk("inspector.sh", &[]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2025-11-25"), &Value::Null));
}

#[test]
fn inspector_in_the_stateless_era() {
    let report = walk("inspector.sh", &["--era", "modern"]);
    assert_eq!((&report["revision"], &report["progress"]), (&json!("2026-07-28"), &Value::Null));
}
