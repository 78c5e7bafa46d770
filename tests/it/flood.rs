//! A server that never stops telling of its progress: others are answered, its call ends in time, and nothing gathers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{NO_LIMITS, Serving, Site, contained};

/// What the gateway may take of memory, KiB: about twice what it takes at rest.
const PEAK: u64 = 64 << 10;

fn endless(serving: &mut Serving) -> u64 {
    serving.ask("tools/call", r#"{"name":"loud__storm","arguments":{},"_meta":{"progressToken":"p"}}"#)
}

fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn site() -> Site {
    let hasty = "timeout = \"2s\"\nmax_time = \"4s\"\n";
    Site::new(&format!("{NO_LIMITS}{}{hasty}{}", contained("loud", &[]), contained("good", &[])))
}

#[test]
fn a_flood_of_progress_neither_outlives_its_call_nor_keeps_others_from_their_answers() {
    let site = site();
    let mut serving = site.open();
    serving.wait_for_tool("loud__storm");
    serving.wait_for_tool("good__count");
    let loud = endless(&mut serving);
    serving.notification("notifications/progress");
    for n in 1..=10 {
        assert_eq!(serving.text("good__count", json!({})), format!(r#"{{"calls":{n}}}"#));
    }
    let answer = serving.answer(loud);
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("server loud, tool storm: no answer within 4s"), "{answer}");
    assert_eq!(site.outcomes_of("loud__storm"), ["timeout"]);
    assert!(peak(serving.pid()) < PEAK, "{} KiB", peak(serving.pid()));
}

#[test]
fn what_is_for_a_client_that_does_not_read_does_not_gather() {
    let site = site();
    let mut serving = site.open();
    serving.wait_for_tool("loud__storm");
    serving.wait_for_tool("good__count");
    serving.pause();
    let loud = endless(&mut serving);
    let others: Vec<u64> = (0..20).map(|_| serving.ask_tool("good__count", json!({}))).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        assert!(peak(serving.pid()) < PEAK, "{} KiB", peak(serving.pid()));
        std::thread::sleep(Duration::from_millis(200));
    }
    // Nothing is lost but notices: every request has its answer once the client reads again.
    serving.resume();
    for id in others {
        assert!(serving.answer_line(id).contains("calls"));
    }
    assert!(serving.answer_line(loud).contains("no answer within 4s"));
}
