//! Rates and calls at the same time: refusals are results that say when to come back, and are recorded.

use serde_json::json;

use crate::support::{PATIENCE, Site, on_host, wait_until};

#[test]
fn calls_over_the_rate_are_refused_with_a_hint_and_do_not_reach_the_server() {
    let limits = "[limits]\nrate = \"1/min\"\nburst = 3\n";
    let site = Site::new(&format!("{limits}{}", on_host("fx", &[])));
    let mut serving = site.open();
    for n in 1..=3 {
        assert_eq!(serving.text("fx__count", json!({})), format!(r#"{{"calls":{n}}}"#));
    }
    let refusal = serving.failure("fx__count", json!({}));
    assert!(refusal.contains("rate limit of \"me\": at most 1/min; try again in "), "{refusal}");
    assert_eq!(site.outcomes_of("fx__count"), ["ok", "ok", "ok", "rate_limited"]);
    let (intent, _) = site.calls_of("fx__count").pop().unwrap();
    assert_eq!(intent["decision"], "allow", "the policy would have let it through");
    // A list is no call, and a refusal is no end.
    assert!(serving.tools().contains(&"fx__count".to_owned()));
}

#[test]
fn calls_over_the_number_at_the_same_time_are_refused_until_one_ends() {
    let limits = "[limits]\nconcurrent = 1\n";
    let site = Site::new(&format!("{limits}{}", on_host("fx", &[])));
    let mut serving = site.open();
    serving.wait_for_tool("fx__sleep");
    let running = serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    wait_until("the call is on its way", PATIENCE, || !site.records("intent").is_empty());
    let refusal = serving.failure("fx__echo", json!({}));
    assert!(refusal.contains("at most 1 calls at the same time; try again in "), "{refusal}");
    serving
        .send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{running}}}}}"#));
    assert_eq!(site.outcomes_of("fx__sleep"), ["cancelled"]);
    assert_eq!(serving.text("fx__echo", json!({})), "{}");
    assert_eq!(site.outcomes_of("fx__echo"), ["rate_limited", "ok"]);
}

#[test]
fn a_servers_own_limit_is_for_that_server_alone() {
    let tight = on_host("tight", &[]) + "limits = { rate = \"1/min\", burst = 1 }\n";
    let site = Site::new(&(tight + &on_host("free", &[])));
    let mut serving = site.open();
    assert_eq!(serving.text("tight__echo", json!({})), "{}");
    let refusal = serving.failure("tight__echo", json!({}));
    assert!(refusal.contains("\"me\" on server \"tight\""), "{refusal}");
    for _ in 0..5 {
        assert_eq!(serving.text("free__echo", json!({})), "{}");
    }
}

#[test]
fn a_role_has_its_own_limits() {
    let limits = "[limits.role.guest]\nrate = \"1/min\"\nburst = 1\n";
    let site = Site::new(&format!("{limits}{}min_role = \"guest\"\n", on_host("fx", &[])));
    let mut guest = site.serve_with(&["--role", "guest"]);
    guest.initialize();
    assert_eq!(guest.text("fx__echo", json!({})), "{}");
    assert!(guest.failure("fx__echo", json!({})).contains("try again in"));
    let mut user = site.serve_with(&["--role", "user"]);
    user.initialize();
    for _ in 0..3 {
        assert_eq!(user.text("fx__echo", json!({})), "{}");
    }
}

#[test]
fn a_forbidden_call_costs_nothing_and_is_never_told_a_limit() {
    let config =
        "[limits]\nrate = \"1/min\"\nburst = 1\n".to_owned() + &on_host("fx", &[]) + "tools = { deny = [\"env\"] }\n";
    let site = Site::new(&config);
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    for _ in 0..3 {
        serving.unknown("fx__env");
        serving.unknown("fx__exv");
    }
    assert_eq!(serving.text("fx__echo", json!({})), "{}");
    serving.unknown("fx__env");
}

#[test]
fn no_more_instances_run_than_there_is_room_for_and_who_has_none_is_told_so() {
    let hasty = "start_timeout = \"5s\"\n";
    let servers = ["first", "second"].map(|name| on_host(name, &[]) + hasty).concat();
    let site = Site::new(&format!("[limits.total]\ninstances = 1\n{servers}"));
    let mut serving = site.open();
    // Which of the two has the room is a matter of who came first.
    wait_until("one of them runs", PATIENCE, || !serving.tools().is_empty());
    let refused = if serving.tools()[0].starts_with("first__") { "second" } else { "first" };
    let told = "no room for another instance: limits.total.instances = 1 is used up";
    let refusal = serving.failure(&format!("{refused}__echo"), json!({}));
    assert!(refusal.contains(told), "{refusal}");
    assert!(serving.tools().iter().all(|tool| !tool.starts_with(refused)));
    let shown = site.server(refused);
    assert!(shown["reason"].as_str().unwrap_or_default().contains(told), "{shown}");
}
