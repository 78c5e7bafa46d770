//! The audit of real calls: two records each, one whole chain, no secret, and no call without it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{PATIENCE, Site, contained, on_host, wait_until};

#[test]
fn every_call_has_an_intent_before_and_an_outcome_after() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    serving.text("fx__echo", json!({"x": 1}));
    serving.text("fx__echo", json!({"x": 1}));
    serving.text("fx__echo", json!({"x": 2}));
    serving.failure("fx__tool_error", json!({}));
    serving.unknown("fx__absent");
    let senseless = serving.request("tools/call", r#"{"name":"fx__params","arguments":[1]}"#);
    assert_eq!(senseless["error"]["code"], -32602);
    assert!(serving.close().status.success());

    let (mut open, mut calls) = (BTreeMap::new(), 0);
    for record in site.audit() {
        match record["kind"].as_str().unwrap() {
            "intent" => assert!(open.insert(record["call"].to_string(), record).is_none()),
            "outcome" => {
                assert!(open.remove(&record["call"].to_string()).is_some(), "an outcome before its intent: {record}");
                calls += 1;
            }
            _ => {}
        }
    }
    assert_eq!((calls, open.len()), (6, 0));

    let echoes = site.calls_of("fx__echo");
    let hashes: Vec<&Value> = echoes.iter().map(|(intent, _)| &intent["args_hash"]).collect();
    assert!(hashes[0] == hashes[1] && hashes[1] != hashes[2], "equal arguments show as equal");
    let (intent, outcome) = &echoes[0];
    for (key, value) in [
        ("principal", json!("me")),
        ("actor", json!("stdio:me")),
        ("role", json!("user")),
        ("face", json!("stdio")),
        ("client", json!("tests 1")),
        ("method", json!("tools/call")),
        ("server", json!("fx")),
        ("tool", json!("echo")),
        ("decision", json!("allow")),
        ("policy", json!(["min-role"])),
        ("args_bytes", json!(7)),
        ("isolation", json!("unisolated")),
        ("instance", Value::Null),
        ("evidence", Value::Null),
    ] {
        assert_eq!(intent[key], value, "{key}");
    }
    assert!(outcome["result_bytes"].as_u64().unwrap() > 0);
    assert_eq!(site.outcomes_of("fx__tool_error"), ["tool_error"]);
    assert_eq!(site.outcomes_of("fx__absent"), ["unknown"]);
    assert_eq!(site.outcomes_of("fx__params"), ["malformed"]);
}

#[test]
fn the_chain_of_several_gateways_is_whole_and_a_changed_byte_is_found() {
    let site = Site::new(&on_host("fx", &[]));
    let (mut first, mut second) = (site.open(), site.open());
    for _ in 0..5 {
        first.text("fx__echo", json!({}));
        second.text("fx__echo", json!({}));
        assert_eq!(site.run(&["call", "fx", "echo"]).code, Some(0));
    }
    assert!(first.close().status.success() && second.close().status.success());
    let said = site.prints(&["audit", "verify"]);
    let records = site.audit();
    assert!(said.contains(&format!("{} records, the chain is whole", records.len())), "{said}");
    assert!(said.contains(records.last().unwrap()["hash"].as_str().unwrap()), "{said}");
    let numbers: Vec<u64> = records.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
    assert_eq!(site.audit_file().metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let text = std::fs::read_to_string(site.audit_file()).unwrap();
    let line = text.lines().position(|line| line.contains("\"allow\"")).unwrap() + 1;
    std::fs::write(site.audit_file(), text.replacen("\"allow\"", "\"deny!\"", 1)).unwrap();
    let verified = site.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(7));
    assert!(verified.stderr.contains(&format!("audit.jsonl:{line}: ")), "{}", verified.stderr);
}

#[test]
fn a_call_that_was_cut_off_is_reported_as_interrupted() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    wait_until("the call is on its way", PATIENCE, || !site.records("intent").is_empty());
    serving.kill();
    let call = site.records("intent")[0]["call"].as_str().unwrap().to_owned();
    let said = site.prints(&["audit", "verify"]);
    assert!(said.contains(&format!("interrupted: call {call} ")), "{said}");
}

#[test]
fn the_intent_names_the_container_and_the_proof_that_the_status_shows() {
    let site = Site::new(&contained("fx", &[]));
    let mut serving = site.open();
    serving.text("fx__echo", json!({}));
    let server = site.server("fx");
    let instance = &server["instances"][0];
    let (intent, _) = site.calls_of("fx__echo").pop().unwrap();
    assert_eq!(intent["isolation"], "proven");
    assert_eq!(intent["instance"], instance["container"]);
    assert_eq!(intent["image"], server["image"]);
    assert_eq!(intent["evidence"], instance["evidence"]["digest"]);
    assert_eq!(intent["evidence"].as_str().unwrap().len(), 64);
    let controls = instance["evidence"]["controls"].as_array().unwrap();
    assert!(controls.len() > 10 && controls.iter().all(|control| control["holds"] == true), "{controls:?}");
    assert_eq!(server["isolation"], "proven");
    let proven = site.records("server").into_iter().find(|record| record["event"] == "proven").unwrap();
    assert_eq!((&proven["evidence"], &proven["container"]), (&intent["evidence"], &intent["instance"]));
}

const SECRET: &str = "s3cr3t-value-of-the-tests";

/// A server in a container that is a shell script, and has the secret.
fn scripted(name: &str, script: &str) -> String {
    let command = format!("command = [\"sh\", \"-c\", {script:?}]\n");
    format!("[servers.{name}]\nimage = \"bulkhead/fixture-server\"\n{command}{HAS_SECRET}")
}

const HAS_SECRET: &str = "secrets = { API_KEY = \"env:API_KEY\" }\n";

/// Tells it before it can be used.
const LEAKS: &str = r#"echo "key $API_KEY is refused" >&2; exit 3"#;

/// Tells it in its answer to every request, the first of which is `initialize`.
const REFUSES: &str = r#"
while read -r line; do
  n=$((n + 1))
  echo '{"jsonrpc":"2.0","id":'$n',"error":{"code":-1,"message":"key '$API_KEY' is wrong"}}'
done"#;

/// Tells it when it is called, and dies of that.
const DIES: &str = r#"
while read -r line; do
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"d","version":"1"}}' n=1 ;;
    *'"tools/list"'*) result='{"tools":[{"name":"die","inputSchema":{"type":"object"}}]}' n=2 ;;
    *'"tools/call"'*) echo "key $API_KEY is stolen" >&2; exit 4 ;;
    *) continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'$n',"result":'$result'}'
done"#;

#[test]
fn a_secret_is_in_no_record_status_or_log_whatever_a_server_does_with_it() {
    let servers = [
        contained("fx", &[]) + HAS_SECRET,
        scripted("leaks", LEAKS),
        scripted("refuses", REFUSES),
        scripted("dies", DIES),
    ];
    let mut site = Site::new(&servers.concat());
    site.set("API_KEY", SECRET);
    let mut serving = site.open();
    assert!(serving.text("fx__env", json!({})).contains(SECRET), "the server has it");
    serving.unknown(&format!("fx__{SECRET}"));
    serving.text("fx__echo", json!({ "key": SECRET }));
    serving.request("tools/call", &json!({"name": "fx__rpc_error", "arguments": {"message": SECRET}}).to_string());
    serving.text("fx__raw", json!({ "line": format!("key {SECRET}") }));
    let failures: Vec<String> =
        ["leaks__x", "refuses__x", "dies__die"].map(|tool| serving.failure(tool, json!({}))).into();
    let causes = [("leaks", "is refused"), ("refuses", "is wrong"), ("dies", "is stolen")];
    for (server, cause) in causes {
        wait_until(&format!("{server}: {cause}"), PATIENCE, || {
            site.server(server)["reason"].to_string().contains(cause)
        });
    }

    let details = site.prints(&["status", "fx", "leaks", "refuses", "dies"]);
    let scripted = [["leaks", "x"], ["refuses", "x"], ["dies", "die"]].map(|[server, tool]| {
        let ran = site.run(&["call", server, tool]);
        ran.stdout + &ran.stderr
    });
    let shown = [
        ("an answer", failures.concat()),
        ("the status", site.prints(&["status", "--json"]) + &details),
        ("a command", scripted.concat()),
        ("a check", site.run(&["check"]).stdout),
        ("the log", serving.close().stderr),
        ("the audit", std::fs::read_to_string(site.audit_file()).unwrap()),
    ];
    let told = |text: &str| causes.iter().all(|(_, cause)| text.contains(cause));
    assert!(
        shown.iter().all(|(place, text)| *place == "a check" || told(text)),
        "the words around it are kept: {shown:?}"
    );
    let leaks: Vec<&str> = shown.iter().filter(|(_, text)| text.contains(SECRET)).map(|(place, _)| *place).collect();
    assert_eq!(leaks, [""; 0]);
}

#[test]
fn without_its_audit_nothing_is_called() {
    let site = Site::new(&on_host("fx", &[]));
    let mut serving = site.open();
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);
    let moved = site.path("state/moved.jsonl");
    std::fs::rename(site.audit_file(), &moved).unwrap();
    for _ in 0..2 {
        let refusal = serving.failure("fx__count", json!({}));
        assert_eq!(refusal, "the audit is unavailable, so nothing is called");
    }
    assert!(!site.audit_file().exists(), "no new chain begins in silence");
    std::fs::write(site.audit_file(), "").unwrap();
    assert_eq!(serving.failure("fx__count", json!({})), "the audit is unavailable, so nothing is called");

    std::fs::rename(&moved, site.audit_file()).unwrap();
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":2}"#, "the refused ones never reached the server");
    assert!(serving.close().status.success());
    site.prints(&["audit", "verify"]);
}

#[test]
fn a_command_that_cannot_write_the_audit_exits_7_and_calls_nothing() {
    let site = Site::new(&on_host("fx", &[]));
    for what in ["a directory", "no audit", "a link", "open to all"] {
        let _ = std::fs::remove_dir_all(site.path("state"));
        std::fs::create_dir_all(site.path("state")).unwrap();
        match what {
            "a directory" => std::fs::create_dir(site.audit_file()).unwrap(),
            "no audit" => std::fs::write(site.audit_file(), "what is this?\n").unwrap(),
            "a link" => std::os::unix::fs::symlink(site.path("elsewhere"), site.audit_file()).unwrap(),
            _ => {
                std::fs::write(site.audit_file(), "").unwrap();
                std::fs::set_permissions(site.audit_file(), std::fs::Permissions::from_mode(0o666)).unwrap();
            }
        }
        for args in [["call", "fx", "echo"].as_slice(), &["serve"], &["tools"]] {
            let ran = site.run(args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), ""), "{what}, {args:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("audit.jsonl"), "{what}: {}", ran.stderr);
        }
    }
    assert!(!site.path("elsewhere").exists());
    let _ = std::fs::remove_dir_all(site.path("state"));
}
