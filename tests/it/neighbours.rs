//! Servers that are slow, broken or silent cost the others nothing, and each is shown with its cause.

use std::time::Duration;

use serde_json::json;

use crate::support::{PATIENCE, Site, contained, wait_until};

/// A good server among bad ones.
fn among_bad_ones() -> Site {
    let hasty = "start_timeout = \"3s\"\n";
    let config = [
        contained("silent", &["--silent"]) + hasty,
        contained("slow", &["--slow-init", "600000"]) + hasty,
        contained("broken", &["--exit-at-start", "3", "--last-words", "no licence found"]),
        contained("babbling", &["--banner", "\\u0007 not JSON", "--exit-at-start", "0"]),
        "[servers.programless]\nimage = \"bulkhead/fixture-server\"\ncommand = [\"/no/such/program\"]\n".to_owned(),
        "[servers.imageless]\nimage = \"bulkhead/no-such-image\"\n".to_owned(),
        "[servers.hostless]\nunisolated = \"a test\"\ncommand = [\"/no/such/program\"]\n".to_owned(),
        contained("good", &[]),
    ];
    Site::new(&config.concat())
}

#[test]
fn bad_servers_cost_a_good_one_nothing_and_are_shown_with_their_cause() {
    let site = among_bad_ones();
    let mut serving = site.open();
    // The list waits for nobody for long: the silent ones would take all of their start time.
    let listed = serving.tools();
    assert!(listed.iter().all(|tool| tool.starts_with("good__")), "{listed:?}");
    assert_eq!(serving.text("good__count", json!({})), r#"{"calls":1}"#);

    for (server, cause) in [
        ("silent", "gave no answer to initialize within"),
        ("slow", "gave no answer to initialize within"),
        ("broken", "exit code 3"),
        ("broken", "no licence found"),
        ("babbling", "exit code 0"),
        ("programless", "/no/such/program"),
        ("imageless", "image \"bulkhead/no-such-image\" is not on the engine"),
        ("hostless", "/no/such/program"),
    ] {
        wait_until(&format!("{server} failed with {cause}"), PATIENCE, || {
            let shown = site.server(server);
            shown["state"] == "failed" && shown["reason"].as_str().unwrap_or_default().contains(cause)
        });
        let failure = serving.failure(&format!("{server}__echo"), json!({}));
        assert!(failure.contains(server) || failure.contains(cause), "{server}: {failure}");
    }
    assert_eq!(site.server("good")["state"], "ready");
    assert_eq!(serving.text("good__count", json!({})), r#"{"calls":2}"#);
}

#[test]
fn a_call_to_a_bad_server_ends_within_its_start_time_while_others_answer() {
    let site = among_bad_ones();
    let mut serving = site.open();
    let waiting = serving.ask_tool("silent__echo", json!({}));
    assert_eq!(serving.text("good__echo", json!({})), "{}");
    let answer = serving.answer(waiting);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let words = ["good", "silent", "no answer to initialize", "no licence found"];
    wait_until("every cause in the status", PATIENCE, || {
        let shown = site.prints(&["status"]);
        words.iter().all(|word| shown.contains(word))
    });
    // It stays there while the server is tried again, for as long as that takes.
    let waiting = serving.ask_tool("silent__echo", json!({}));
    for _ in 0..20 {
        let shown = site.server("silent");
        assert!(shown["reason"].as_str().unwrap_or_default().contains("no answer to initialize"), "{shown}");
        assert_eq!(shown["state"], "failed");
    }
    serving.answer(waiting);
}

#[test]
fn a_server_that_does_not_read_holds_up_neither_the_gateway_nor_other_servers() {
    let site = Site::new(&(contained("stuck", &["--slow-init", "600000"]) + &contained("good", &[])));
    let mut serving = site.open();
    let big = "x".repeat(1 << 20);
    for _ in 0..20 {
        serving.ask_tool("stuck__echo", json!({ "big": big }));
    }
    assert_eq!(serving.text("good__echo", json!({})), "{}");
    assert_eq!(serving.request("ping", "{}")["result"], json!({}));
    let began = std::time::Instant::now();
    assert!(serving.close().status.success());
    assert!(began.elapsed() < Duration::from_secs(30), "the end is bounded");
}
