//! What becomes of a call to a server in a container: bytes, progress, withdrawal, deadlines, size, and the server's end.

use serde_json::{Value, json};

use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, contained, engine, on_host, wait_until};

/// A gateway with one contained server, with further keys for it.
fn one(flags: &[&str], keys: &str) -> Site {
    Site::new(&format!("{NO_LIMITS}{}{keys}", contained("fx", flags)))
}

/// A call whose params travel as they are; returns the line that answers it.
fn raw_call(serving: &mut Serving, params: &str) -> String {
    let id = serving.ask("tools/call", params);
    serving.answer_line(id)
}

/// A text as the server writes it: JSON with everything beyond ASCII escaped.
fn python_string(text: &str) -> String {
    let escaped = |c: char| match c {
        c if c.is_ascii() => c.to_string(),
        c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    Value::from(text).to_string().chars().map(escaped).collect()
}

#[test]
fn arguments_and_results_keep_their_bytes() {
    let site = one(&[], "");
    let mut serving = site.open();
    for arguments in [
        r#"{"z":1,"a":2,"m":{"y":1,"b":2}}"#,
        r#"{"n":1e400,"m":-1E-400,"zero":-0,"dot":1.10,"big":123456789012345678901234567890,"neg":-9007199254740993}"#,
        r#"{ "spaced" : [ 1 , 2,3 ] , "empty":{} }"#,
        "{\"esc\":\"\\u0041\\/\\b\\u00e9é\\ud83d\\ude00😀\u{2028}\u{200b}\u{feff}\"}",
        r#"{"same":1,"deep":[[[[[[{"a":[[]]}]]]]]]}"#,
        r#"{"_meta":{"progressToken":"not ours"},"name":"other","arguments":{"id":7},"jsonrpc":"1.0"}"#,
        "{}",
    ] {
        let answer = raw_call(&mut serving, &format!(r#"{{"name":"fx__echo","arguments":{arguments}}}"#));
        assert!(answer.contains(&format!(r#""structuredContent":{arguments}"#)), "{arguments}\n{answer}");
        // What the server had read is in its text, as a string of what it was.
        assert!(answer.contains(&format!(r#""text":{}"#, python_string(arguments))), "{arguments}\n{answer}");
    }
}

#[test]
fn a_call_reaches_the_server_with_nothing_changed_but_its_name_and_token() {
    let site = one(&[], "");
    let mut serving = site.open();
    let seen = |serving: &mut Serving, params: &str| -> String {
        let answer: Value = serde_json::from_str(&raw_call(serving, params)).unwrap();
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let with =
        r#"{"x-vendor":[1.0],"arguments":{ "b":1 },"name":"fx__params","_meta":{"trace":1E2,"progressToken":"mine"}}"#;
    let got = seen(&mut serving, with);
    let (before, after) = got.split_once(r#""progressToken":"#).unwrap();
    assert_eq!(before, r#"{"x-vendor":[1.0],"arguments":{ "b":1 },"name":"params","_meta":{"trace":1E2,"#);
    assert!(after.trim_end_matches('}').parse::<u64>().is_ok(), "the token is the gateway's own: {got}");
    assert_eq!(seen(&mut serving, r#"{"name":"fx__params"}"#), r#"{"name":"params"}"#);
    let null = seen(&mut serving, r#"{"name":"fx__params","arguments":null}"#);
    assert_eq!(null, r#"{"name":"params"}"#, "null stands for no arguments");
}

#[test]
fn lone_surrogates_from_a_server_are_mended_and_counted() {
    let site = one(&[], "");
    let mut serving = site.open();
    let line =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"a\ud83d-\ude00\ud83d\ude00"}]}}"#;
    let answer = {
        let id = serving.ask_tool("fx__raw", json!({ "line": line }));
        serving.answer_line(id)
    };
    assert!(answer.contains(r#""text":"a\ufffd-\ufffd\ud83d\ude00""#), "{answer}");
    assert_eq!(site.server("fx")["instances"][0]["skipped"]["mended"], 1);
}

#[test]
fn progress_comes_in_order_under_the_clients_own_token() {
    let site = one(&[], "");
    let mut serving = site.open();
    for token in [r#""p-1""#, "77", "1.0"] {
        let params = format!(r#"{{"name":"fx__progress","arguments":{{"n":20}},"_meta":{{"progressToken":{token}}}}}"#);
        serving.ask("tools/call", &params);
        for step in 1..=20 {
            let line = serving.receive();
            assert_eq!(
                line,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step},"total":20}}}}"#
                )
            );
        }
        assert!(serving.receive().contains("20 steps"));
    }
    assert_eq!(serving.text("fx__progress", json!({"n": 3})), "3 steps");
    assert_eq!(serving.settled(), [Value::Null; 0], "no progress for who did not ask");
}

#[test]
fn a_cancelled_call_is_withdrawn_at_the_server_and_never_answered() {
    let site = one(&[], "");
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    let call = serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    wait_until("the call is on its way", PATIENCE, || !site.records("intent").is_empty());
    serving.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{call}}}}}"#));
    assert_eq!(site.outcomes_of("fx__sleep"), ["cancelled"]);
    assert_eq!(serving.text("fx__echo", json!({})), "{}");
    assert_eq!(serving.settled(), [Value::Null; 0]);
    // What the server has written to standard error shows with its end.
    let told = serving.failure("fx__crash", json!({}));
    assert!(told.contains("cancelled: "), "{told}");
}

#[test]
fn a_call_without_answer_ends_at_its_timeout_and_is_withdrawn() {
    let site = one(&[], "timeout = \"700ms\"\n");
    let mut serving = site.open();
    let failure = serving.failure("fx__sleep", json!({"ms": 600_000}));
    assert!(failure.contains("server fx, tool sleep: no answer and no progress within 700ms"), "{failure}");
    assert_eq!(site.outcomes_of("fx__sleep"), ["timeout"]);
    assert!(serving.failure("fx__crash", json!({})).contains("cancelled: "));
}

#[test]
fn a_server_that_answers_nothing_any_more_is_ended_and_the_next_call_has_another() {
    let site = one(&[], "timeout = \"1s\"\n");
    let mut serving = site.open();
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);
    assert!(serving.failure("fx__wedge", json!({})).contains("no answer and no progress within 1s"));
    wait_until("its end", PATIENCE, || {
        let records = site.records("server");
        records.iter().any(|r| {
            r["event"] == "stopped" && r["reason"].as_str().unwrap().contains("neither a call in time nor a ping")
        })
    });
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#, "a new one");
    // One that only works on is let be.
    assert!(serving.failure("fx__sleep", json!({"ms": 600_000})).contains("within 1s"));
    std::thread::sleep(std::time::Duration::from_secs(11));
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":3}"#, "the same one");
}

#[test]
fn progress_puts_the_timeout_off_but_not_beyond_the_longest_time() {
    let site = one(&[], "timeout = \"2s\"\nmax_time = \"4s\"\n");
    let mut serving = site.open();
    let mut progress = |n: u32| {
        let params =
            format!(r#"{{"name":"fx__progress","arguments":{{"n":{n},"ms":250}},"_meta":{{"progressToken":"t"}}}}"#);
        let id = serving.ask("tools/call", &params);
        serving.answer(id)["result"].clone()
    };
    assert_eq!(progress(12)["content"][0]["text"], "12 steps", "longer than the timeout");
    let late = progress(1000);
    assert_eq!(late["isError"], true);
    assert!(late["content"][0]["text"].as_str().unwrap().contains("no answer within 4s"), "{late}");
    assert_eq!(site.outcomes_of("fx__progress"), ["ok", "timeout"]);
}

#[test]
fn large_results_pass_and_those_over_the_limit_are_an_error_of_the_one_call() {
    let site = one(&[], "max_result = \"21m\"\n");
    let mut serving = site.open();
    for size in [1 << 20, 20 << 20] {
        let text = serving.text("fx__big", json!({"bytes": size}));
        assert!(text.len() == size && text.bytes().all(|byte| byte == b'x'));
    }
    let failure = serving.failure("fx__big", json!({"bytes": 22 << 20}));
    assert!(failure.contains("over the limit max_result = 22020096 bytes"), "{failure}");
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":4}"#, "the server runs on");
    assert_eq!(site.outcomes_of("fx__big"), ["ok", "ok", "too_large"]);
    let (_, outcome) = &site.calls_of("fx__big")[1];
    assert!(outcome["result_bytes"].as_u64().unwrap() > 20 << 20);
}

#[test]
fn large_arguments_pass() {
    let site = one(&[], "");
    let mut serving = site.open();
    let value = "é".repeat(4 << 20);
    let echoed = serving.text("fx__echo", json!({ "value": value }));
    let echoed: Value = serde_json::from_str(&echoed).unwrap();
    assert!(echoed["value"] == value.as_str());
}

#[test]
fn a_crash_is_told_with_its_exit_code_and_last_words_and_the_server_starts_anew() {
    let site = one(&[], "");
    let mut serving = site.open();
    serving.text("fx__stderr", json!({"bytes": 300_000}));
    let other = serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    let failure = serving.failure("fx__crash", json!({"code": 7}));
    assert!(failure.contains("server fx ended: exit code 7; last lines of its stderr: eee"), "{failure}");
    let other = serving.answer(other);
    assert!(other["result"]["content"][0]["text"].as_str().unwrap().contains("exit code 7"), "{other}");
    let failed = site.server_in("fx", "failed");
    assert!(failed["reason"].as_str().unwrap().contains("exit code 7"), "{failed}");
    assert_eq!(site.outcomes_of("fx__crash"), ["crashed"]);
    assert!(site.records("server").iter().any(|record| record["event"] == "crashed"));

    // The first pause after a failure is short.
    wait_until("the server again", PATIENCE, || serving.call("fx__count", json!({}))["isError"] != true);
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":2}"#);
}

#[test]
fn a_server_out_of_memory_is_told_as_such() {
    let site = one(&[], "memory = \"64m\"\n");
    let mut serving = site.open();
    let failure = serving.failure("fx__oom", json!({}));
    assert!(failure.contains("server fx ended: out of memory"), "{failure}");
    assert!(site.server_in("fx", "failed")["reason"].as_str().unwrap().contains("out of memory"));
    wait_until("the record", PATIENCE, || site.records("server").iter().any(|record| record["event"] == "oom"));
    assert_eq!(site.outcomes_of("fx__oom"), ["crashed"]);
}

#[test]
fn calls_run_beside_each_other() {
    let site = one(&[], "");
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    let slow = serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    let quick: Vec<u64> = (0..50).map(|n| serving.ask_tool("fx__echo", json!({ "n": n }))).collect();
    for (n, id) in quick.into_iter().enumerate() {
        assert_eq!(serving.answer(id)["result"]["structuredContent"]["n"], n);
    }
    serving.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{slow}}}}}"#));
    assert_eq!(site.outcomes_of("fx__sleep"), ["cancelled"], "it was still running");
}

#[test]
fn calls_reach_their_server_in_the_order_in_which_they_were_sent() {
    let site = one(&[], "");
    let mut serving = site.open();
    serving.wait_for_tool("fx__count");
    let sent: Vec<u64> = (0..100).map(|_| serving.ask_tool("fx__count", json!({}))).collect();
    for (n, id) in (1..).zip(sent) {
        assert_eq!(serving.answer(id)["result"]["structuredContent"]["calls"], n);
    }
}

#[test]
fn a_call_in_flight_when_the_client_closes_its_end_is_still_answered() {
    let site = one(&[], "");
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    let call = serving.ask_tool("fx__sleep", json!({"ms": 700}));
    let ended = serving.close();
    assert!(ended.status.success());
    let answers: Vec<Value> = ended.lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        answers.iter().any(|a| a["id"] == call && a["result"]["content"][0]["text"] == "slept 700 ms"),
        "{answers:?}"
    );
    assert_eq!(site.outcomes_of("fx__sleep"), ["ok"]);
}

#[test]
fn a_script_gives_arguments_in_every_form_and_is_told_how_it_went() {
    let site = Site::new(&on_host("fx", &[]));
    std::fs::write(site.path("arguments.json"), "{\"from\": \"a file\"}\n").unwrap();
    for (args, printed) in [
        (["call", "fx", "echo"].as_slice(), "{}"),
        (&["call", "fx", "echo", "n=1", "t=true", "s=text", "j=[1]"], r#"{"j":[1],"n":1,"s":"text","t":true}"#),
        (&["call", "fx", "tool_error", "text=12"], "12"),
        (&["call", "fx", "echo", "--args", r#"{"x":1.10}"#], r#"{"x":1.10}"#),
        (&["call", "fx", "echo", "--args", "@arguments.json"], r#"{"from": "a file"}"#),
        (
            &["call", "fx", "count", "--json"],
            r#"{"content":[{"type":"text","text":"{\"calls\":1}"}],"structuredContent":{"calls":1}}"#,
        ),
    ] {
        let ran = site.run(args);
        assert_eq!((ran.stdout.trim(), ran.stderr.as_str()), (printed, ""), "{args:?}");
        assert_eq!(ran.code, Some(i32::from(args[2] == "tool_error")), "{args:?}");
    }
    let late = site.run(&["call", "fx", "sleep", "ms=600000", "--timeout", "500ms"]);
    assert_eq!((late.code, late.stdout.as_str()), (Some(5), ""), "{}", late.stderr);
    assert!(late.stderr.contains("no answer within the 500ms that were given"), "{}", late.stderr);
}

#[test]
fn a_script_is_shown_the_text_of_a_result_whatever_numbers_stand_beside_it() {
    let site = Site::new(&on_host("fx", &[]));
    let odd = site.run(&["call", "fx", "echo", "--args", r#"{"x":1e400}"#]);
    assert_eq!((odd.code, odd.stdout.trim()), (Some(0), r#"{"x":1e400}"#), "text is text, whatever stands beside it");
}

#[test]
fn two_servers_may_have_tools_of_one_name() {
    let site = Site::new(&(contained("first", &["--name", "one"]) + &contained("second", &["--name", "two"])));
    let mut serving = site.open();
    for (server, name) in [("first", "one"), ("second", "two")] {
        let who = serving.text(&format!("{server}__whoami"), json!({}));
        let who: Value = serde_json::from_str(&who).unwrap();
        assert_eq!(who["argv"], json!(["--name", name]));
        assert_eq!((&who["uid"], &who["net"]), (&json!(10001), &json!(["lo"])));
    }
    assert_eq!(serving.text("first__count", json!({})), r#"{"calls":2}"#);
    assert_eq!(serving.text("second__count", json!({})), r#"{"calls":2}"#);
}

#[test]
fn a_server_that_nobody_uses_is_stopped_and_starts_again_with_the_next_call() {
    let site = one(&[], "idle_stop = \"1s\"\n");
    let mut serving = site.open();
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);
    let slow = serving.text("fx__sleep", json!({"ms": 2500}));
    assert_eq!(slow, "slept 2500 ms", "a server with a call in flight is not idle");
    assert_eq!(site.server_in("fx", "idle")["instances"], json!([]));
    wait_until("its container is gone", PATIENCE, || engine::servers(&site.gateway()).is_empty());
    assert!(serving.tools().contains(&"fx__count".to_owned()));
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);
    assert_eq!(serving.settled(), [Value::Null; 0], "the client is not told of it");
}

#[test]
fn a_server_may_ping_and_is_refused_all_else() {
    let site = one(&[], "");
    let mut serving = site.open();
    let mut ask = |method: &str| -> Value {
        serde_json::from_str(&serving.text("fx__ask", json!({ "method": method }))).unwrap()
    };
    assert_eq!(ask("ping"), json!({"result": {}}));
    for method in ["roots/list", "sampling/createMessage", "elicitation/create", "made/up"] {
        assert_eq!(ask(method)["error"]["code"], -32601, "{method}");
    }
    assert_eq!(serving.settled(), [Value::Null; 0], "the client is asked nothing");
}

#[test]
fn a_servers_own_errors_pass_as_they_are() {
    let site = one(&[], "");
    let mut serving = site.open();
    let line = raw_call(
        &mut serving,
        r#"{"name":"fx__rpc_error","arguments":{"code":-32001,"message":"no","data":{"z":1e400,"a":[ ]}}}"#,
    );
    assert!(line.ends_with(r#""error":{"code":-32001,"message":"no","data":{"z":1e400,"a":[ ]}}}"#), "{line}");
    assert_eq!(serving.failure("fx__tool_error", json!({"text": "so it is"})), "so it is");
    assert_eq!(site.outcomes_of("fx__rpc_error"), ["rpc_error"]);
    assert_eq!(site.outcomes_of("fx__tool_error"), ["tool_error"]);
    let scripted = site.run(&["call", "fx", "tool_error", "text=so it is"]);
    assert_eq!((scripted.code, scripted.stdout.trim()), (Some(1), "so it is"));
    let scripted = site.run(&["call", "fx", "rpc_error", "--json"]);
    assert_eq!(scripted.code, Some(1));
    assert!(scripted.stdout.starts_with(r#"{"error":{"code":-32000"#), "{scripted:?}");
}
