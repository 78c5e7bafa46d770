//! Lines that are not what they should be, from the client and from the server: each is answered or counted, and the
//! conversation goes on.

use serde_json::{Value, json};

use crate::support::{Serving, Site, contained, on_host};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The next message is an error of that code under that id.
fn assert_error(serving: &mut Serving, code: i64, id: &Value) {
    let message = parsed(&serving.receive());
    assert_eq!((&message["error"]["code"], &message["id"]), (&json!(code), id), "{message}");
}

#[test]
fn a_line_that_cannot_be_read_is_answered_and_the_session_goes_on() {
    let site = Site::new("");
    let mut serving = site.open();
    for line in [
        b"{ not json".as_slice(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"",
        b"\xff\xfe{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}",
        b"\0",
        b"}{",
    ] {
        serving.send_bytes(&[line, b"\n"].concat());
        assert_error(&mut serving, -32700, &Value::Null);
    }
    assert_eq!(serving.request("ping", "{}")["result"], json!({}));
}

#[test]
fn json_that_is_no_message_is_an_invalid_request() {
    let site = Site::new("");
    let mut serving = site.open();
    for (line, id) in [
        ("[]", Value::Null),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null),
        ("7", Value::Null),
        ("\"ping\"", Value::Null),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a")),
        (r#"{"jsonrpc":"2.0","id":"b","method":7}"#, json!("b")),
        (r#"{"jsonrpc":"2.0","id":"c","method":"ping","method":"tools/list"}"#, json!("c")),
        (r#"{"jsonrpc":"2.0","id":"d","method":"ping","params":{},"params":{}}"#, json!("d")),
    ] {
        serving.send(line);
        assert_error(&mut serving, -32600, &id);
    }
    // What decides about a call must not be readable in two ways either.
    for line in [
        r#"{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"a","arguments":{},"arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"a","arguments":[]}}"#,
        r#"{"jsonrpc":"2.0","id":"e","method":"tools/call","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":"e","method":"tools/call"}"#,
    ] {
        serving.send(line);
        assert_error(&mut serving, -32602, &json!("e"));
    }
    assert_eq!(serving.request("ping", "{}")["result"], json!({}));
}

#[test]
fn what_wants_no_answer_gets_none() {
    let site = Site::new("");
    let mut serving = site.open();
    for line in [
        "",
        "   ",
        r#"{"jsonrpc":"2.0","method":"notifications/made-up","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"x"}}"#,
    ] {
        serving.send(line);
    }
    assert_eq!(serving.settled(), [Value::Null; 0]);
}

#[test]
fn a_message_over_the_cap_is_an_error_under_its_id() {
    let site = Site::new("");
    let mut serving = site.open();
    let blank = " ".repeat(1 << 20);
    for (before, after) in [
        (r#"{"jsonrpc":"2.0","id":"first","method":"ping","params":{"x":""#, r#""}}"#),
        (r#"{"jsonrpc":"2.0","method":"ping","params":{"x":""#, r#""},"id":"last"}"#),
    ] {
        serving.send_bytes(before.as_bytes());
        for _ in 0..33 {
            serving.send_bytes(blank.as_bytes());
        }
        serving.send(after);
        let id = if after.contains("last") { "last" } else { "first" };
        assert_error(&mut serving, -32600, &json!(id));
    }
    assert_eq!(serving.request("ping", "{}")["result"], json!({}));
}

#[test]
fn ids_come_back_as_they_were_written() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    for id in ["0", "-1", "1.0", "90071992547409931234", r#""a""#, r#""\u0061""#, r#""""#, "1e3"] {
        for (method, params) in [("ping", "{}"), ("tools/call", r#"{"name":"fx__echo"}"#), ("no/such", "{}")] {
            serving.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
            let answer = serving.receive();
            assert!(answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)), "{answer}");
        }
    }
}

#[test]
fn a_second_request_under_an_id_in_flight_is_refused_and_the_first_is_answered() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    let call =
        r#"{"jsonrpc":"2.0","id":"twice","method":"tools/call","params":{"name":"fx__sleep","arguments":{"ms":1500}}}"#;
    serving.send(call);
    serving.send(call);
    assert_error(&mut serving, -32600, &json!("twice"));
    let answer = parsed(&serving.receive());
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!("twice"), &json!("slept 1500 ms")));
    serving.send(&call.replace("1500", "1"));
    assert_eq!(parsed(&serving.receive())["result"]["content"][0]["text"], "slept 1 ms");
}

#[test]
fn before_initialize_only_ping_is_served() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.serve();
    assert_eq!(serving.request("ping", "{}")["result"], json!({}));
    for method in ["tools/list", "tools/call"] {
        let answer = serving.request(method, r#"{"name":"fx__echo"}"#);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    serving.initialize();
    assert!(serving.tools().contains(&"fx__echo".to_owned()));
}

#[test]
fn byte_order_mark_and_carriage_returns_are_no_part_of_a_message() {
    let site = Site::new("");
    let mut serving = site.serve();
    serving.send_bytes(format!("\u{feff}{INITIALIZE}\r\n\r\n").as_bytes());
    assert_eq!(parsed(&serving.receive())["result"]["protocolVersion"], "2025-06-18");
    serving.send("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\r");
    assert_eq!(serving.receive(), r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
}

#[test]
fn a_bare_carriage_return_ends_no_line_for_anybody() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    let id = serving.ask("tools/call", "{\"name\":\"fx__echo\",\r\"arguments\":{\"a\":\r{\"b\":1}}}");
    assert!(serving.answer_line(id).contains(r#""structuredContent":{"a": {"b":1}}"#));
}

#[test]
fn the_last_line_needs_no_line_end() {
    let site = Site::new("");
    let mut serving = site.serve();
    serving.send_bytes(INITIALIZE.as_bytes());
    let ended = serving.close();
    assert!(ended.status.success());
    assert_eq!(parsed(&ended.lines[0])["id"], "i");
}

#[test]
fn a_servers_noise_is_skipped_and_counted() {
    let site = Site::new(&contained("fx", &["--banner", "Welcome to the fixture!"]));
    let mut serving = site.open();
    assert_eq!(serving.text("fx__noise", json!({"lines": 5})), "5 lines of noise");
    let stray = r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#;
    assert_eq!(serving.text("fx__raw", json!({"line": stray})), "written");
    let skipped = site.server("fx")["instances"][0]["skipped"].clone();
    assert_eq!((&skipped["noise"], &skipped["stray"]), (&json!(6), &json!(1)), "{skipped}");
    assert_eq!(serving.settled(), [Value::Null; 0], "none of it reaches the client");
}

#[test]
fn what_a_server_answers_wrongly_fails_the_one_call() {
    let site = Site::new(&contained("fx", &[]));
    let mut serving = site.open();
    let wrong = [
        r#"{"jsonrpc":"2.0","id":$ID,"result":"no object"}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[}}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"error":"boom"}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":"E","message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":$ID}"#,
    ];
    for line in wrong {
        let failure = serving.failure("fx__raw", json!({ "line": line }));
        assert!(failure.contains("server fx answered wrongly: "), "{failure}");
    }
    let bare = serving.call("fx__raw", json!({"line": r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#}));
    assert_eq!(bare, json!({"content": []}), "a result without content gets an empty one");
    let outcomes = site.outcomes_of("fx__raw");
    assert_eq!(outcomes, [["malformed"; 6].as_slice(), &["ok"]].concat());
    assert_eq!(serving.text("fx__echo", json!({})), "{}");
}
