//! Clients and servers of either era, in every combination.

use serde_json::{Value, json};

use crate::support::{Serving, Site, contained, engine, on_host};

const REVISION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Params of a request that stands alone.
fn alone(mut params: Value) -> String {
    let meta = json!({
        REVISION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": {"name": "alone", "version": "2"},
    });
    let own = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
    own.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
    params.to_string()
}

/// The result of a request that stands alone.
fn ask_alone(serving: &mut Serving, method: &str, params: Value) -> Value {
    let answer = serving.request(method, &alone(params));
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    answer["result"].clone()
}

/// What a server of some kind answers to clients of both eras on one pipe.
fn assert_serves_both(entry: &str) {
    let site = Site::new(entry);
    let mut serving = site.serve();
    let listed = ask_alone(&mut serving, "tools/list", json!({}));
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fx__echo"), "{names:?}");
    let call = |name: &str| json!({"name": name, "arguments": {"x": 1}});
    let echoed = ask_alone(&mut serving, "tools/call", call("fx__echo"));
    assert_eq!(echoed["structuredContent"], json!({"x": 1}));
    let failed = ask_alone(&mut serving, "tools/call", call("fx__tool_error"));
    assert_eq!(failed["isError"], true);

    serving.initialize();
    let listed = serving.request("tools/list", "{}")["result"].clone();
    assert_eq!(listed["resultType"], Value::Null, "{listed}");
    let echoed = serving.call("fx__echo", json!({"x": 2}));
    assert_eq!(echoed["structuredContent"], json!({"x": 2}));
    assert_eq!(echoed["resultType"], Value::Null, "{echoed}");

    let params = json!({"name": "fx__progress", "arguments": {"n": 2}, "_meta": {"progressToken": "here"}});
    let id = serving.ask("tools/call", &alone(params));
    assert_eq!(serving.notification("notifications/progress")["params"]["progressToken"], "here");
    assert_eq!(serving.answer(id)["result"]["content"][0]["text"], "2 steps");
}

#[test]
fn a_handshake_server_serves_clients_of_both_eras() {
    assert_serves_both(&contained("fx", &["--era", "handshake"]));
}

#[test]
fn a_stateless_server_serves_clients_of_both_eras() {
    assert_serves_both(&contained("fx", &["--era", "stateless"]));
}

#[test]
fn a_server_of_both_eras_that_keeps_the_first_serves_clients_of_both() {
    assert_serves_both(&contained("fx", &["--era", "both", "--lock-era"]));
}

#[test]
fn a_server_that_dies_of_unknown_methods_serves_clients_of_both_eras() {
    assert_serves_both(&contained("fx", &["--fragile"]));
}

#[test]
fn the_revision_of_each_server_is_shown() {
    let entries = [
        on_host("old", &["--revision", "2024-11-05"]),
        on_host("new", &[]),
        on_host("stateless", &["--era", "stateless"]),
    ];
    let site = Site::new(&entries.concat());
    let _serving = site.open();
    for (name, revision) in [("old", "2024-11-05"), ("new", "2025-11-25"), ("stateless", "2026-07-28")] {
        assert_eq!(site.server_in(name, "ready")["instances"][0]["revision"], revision);
    }
}

#[test]
fn a_handshake_is_answered_with_the_revision_asked_for() {
    let site = Site::new("");
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("tomorrow", "2025-11-25"),
    ] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = site.serve().request("initialize", &params.to_string());
        assert_eq!(answer["result"]["protocolVersion"], answered);
    }
}

#[test]
fn a_discover_does_not_lock_the_pipe() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.serve();
    let found = ask_alone(&mut serving, "server/discover", json!({}));
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "bulkhead");
    assert_eq!(serving.initialize()["protocolVersion"], "2025-11-25");
    assert_eq!(serving.text("fx__echo", json!({})), "{}");
    assert_eq!(ask_alone(&mut serving, "server/discover", json!({})), found);
    assert_eq!(ask_alone(&mut serving, "tools/call", json!({"name": "fx__echo"}))["content"][0]["text"], "{}");
}

#[test]
fn a_call_without_a_list_before_it_starts_only_the_server_it_names() {
    let site = Site::new(&["a", "ab", "a-b"].map(|name| contained(name, &[])).concat());
    let mut serving = site.serve();
    let echoed = ask_alone(&mut serving, "tools/call", json!({"name": "a__echo"}));
    assert_eq!(echoed["content"][0]["text"], "{}");
    assert_eq!(engine::servers(&site.gateway()), ["a"]);
}

#[test]
fn a_request_of_a_revision_that_is_not_spoken_is_told_which_are() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.serve();
    for method in ["server/discover", "tools/list", "tools/call"] {
        let params = alone(json!({"name": "fx__echo"})).replace("2026-07-28", "2031-01-01");
        let error = serving.request(method, &params)["error"].clone();
        assert_eq!(error["code"], -32022, "{error}");
        assert_eq!(error["data"]["requested"], "2031-01-01");
        assert!(error["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")), "{error}");
    }
    let lacking = json!({"_meta": {REVISION: "2026-07-28"}}).to_string();
    assert_eq!(serving.request("tools/list", &lacking)["error"]["code"], -32602);
    assert_eq!(serving.request("ping", &alone(json!({})))["error"]["code"], -32601, "that era has no ping");
}

#[test]
fn a_stateless_client_is_told_failures_in_its_own_era() {
    let site = Site::new(&(on_host("fx", &[]) + "[servers.gone]\nimage = \"bulkhead/no-such-image\"\n"));
    let mut serving = site.serve();
    let failed = ask_alone(&mut serving, "tools/call", json!({"name": "gone__echo"}));
    assert_eq!(failed["isError"], true);
    let unknown = serving.request("tools/call", &alone(json!({"name": "fx__absent"})));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let (intent, _) = site.calls_of("fx__absent").pop().unwrap();
    assert_eq!(intent["client"], "alone 2");
}

#[test]
fn input_that_a_stateless_server_wants_is_not_relayed_and_said_so() {
    let site = Site::new(&on_host("fx", &["--era", "stateless"]));
    let mut serving = site.open();
    let answer = {
        let id = serving.ask_tool("fx__ask", json!({}));
        serving.answer(id)
    };
    assert_eq!(answer["error"]["code"], -32021, "the client's capabilities are not promised to servers: {answer}");
    let raw = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","inputRequests":{}}}"#;
    let failure = serving.failure("fx__raw", json!({ "line": raw }));
    assert!(failure.contains("asks for input, which is not relayed"), "{failure}");
}
