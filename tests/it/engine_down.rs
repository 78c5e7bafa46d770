//! An engine that is not there, hangs, lacks the image or goes away: nothing runs on the host instead, and whoever asks is
//! told so.

use serde_json::json;

use crate::support::engine::{Cable, Hung};
use crate::support::{PATIENCE, Serving, Site, contained, wait_for, wait_until};

/// A server that would leave a trace wherever its command runs.
fn traced(site: &Site, image: &str) {
    let command = format!("touch '{}'; exec python3 -u /srv/server.py", site.path("ran").display());
    site.configure(&format!("[servers.fx]\nimage = {image:?}\ncommand = [\"sh\", \"-c\", {command:?}]\n"));
}

/// What has to hold when no container can be had: `told` is what the caller reads, `cause` what the operator does.
fn assert_refused(site: &Site, told: &str, cause: &str) {
    let mut serving = site.serve();
    assert_eq!(serving.initialize()["serverInfo"]["name"], "bulkhead");
    assert_eq!(serving.tools(), [""; 0]);
    let failure = serving.failure("fx__echo", json!({}));
    assert!(failure.contains(told), "{failure}");

    let server = site.server_in("fx", "failed");
    assert!(server["reason"].as_str().unwrap().contains(cause), "{server}");
    assert_ne!(server["isolation"], "proven");
    assert_eq!(server["instances"], json!([]));

    let scripted = site.run(&["call", "fx", "echo", "--timeout", "20s"]);
    assert_eq!((scripted.code, scripted.stdout.as_str()), (Some(6), ""), "{}", scripted.stderr);
    assert!(scripted.stderr.contains(cause), "{}", scripted.stderr);

    assert_eq!(children(serving.pid()), [0; 0], "nothing may run on the host");
    assert!(!site.path("ran").exists(), "the server's command ran on the host");
    assert_eq!(site.outcomes_of("fx__echo"), ["unavailable"]);
    let ended = serving.close();
    assert!(ended.status.success() && ended.stderr.contains(cause), "{ended:?}");
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let output = std::process::Command::new("ps").args(["-A", "-o", "ppid=,pid="]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().count() > 1, "{table}");
    let rows = table.lines().filter_map(|row| row.trim().split_once(' '));
    let rows = rows.map(|(parent, child)| (parent.parse::<u32>().unwrap(), child.trim().parse().unwrap()));
    rows.filter(|(parent, _)| *parent == pid).map(|(_, child)| child).collect()
}

#[test]
fn an_engine_that_is_not_there() {
    let mut site = Site::new("");
    traced(&site, "bulkhead/fixture-server");
    site.use_engine(&site.path("absent.sock"));
    assert_refused(&site, "the container engine does not answer", "absent.sock");
}

#[test]
fn an_engine_that_hangs() {
    let mut site = Site::new("");
    traced(&site, "bulkhead/fixture-server");
    let _hung = Hung::at(&site.path("hung.sock"));
    site.use_engine(&site.path("hung.sock"));
    assert_refused(&site, "the container engine does not answer", "hung.sock: no answer within");
}

#[test]
fn an_image_that_is_missing() {
    let site = Site::new("");
    traced(&site, "bulkhead/no-such-image");
    assert_refused(&site, "image \"bulkhead/no-such-image\" is not on the engine", "no-such-image");
}

#[test]
fn an_engine_that_is_cut_off_fails_what_runs_and_serves_again_when_it_is_back() {
    let mut site = Site::new(&contained("fx", &[]));
    let cable = Cable::at(&site.path("engine.sock"));
    site.use_engine(&site.path("engine.sock"));
    let mut serving = site.open();
    assert_eq!(serving.text("fx__count", json!({})), r#"{"calls":1}"#);

    let running = serving.ask_tool("fx__sleep", json!({"ms": 600_000}));
    wait_until("the call is on its way", PATIENCE, || site.records("intent").len() == 2);
    cable.cut();
    let broken = serving.answer(running);
    assert_eq!(broken["result"]["isError"], true, "{broken}");
    let refused = serving.failure("fx__echo", json!({}));
    assert!(refused.contains("server fx") || refused.contains("container engine"), "{refused}");
    assert_eq!(children(serving.pid()), [0; 0]);
    assert_ne!(site.server("fx")["isolation"], "proven");
    assert!(serving.tools().contains(&"fx__echo".to_owned()), "what was listed once stays listed");

    cable.plug();
    assert_eq!(first_success(&mut serving), r#"{"calls":1}"#, "a new instance");
}

/// Calls until the server is there again.
fn first_success(serving: &mut Serving) -> String {
    wait_for("the server again", PATIENCE, || {
        let result = serving.call("fx__count", json!({}));
        (result["isError"] != true).then(|| result["content"][0]["text"].as_str().unwrap().to_owned())
    })
}

#[test]
fn with_a_lock_the_list_is_whole_without_an_engine() {
    let mut site = Site::new(&(contained("a", &[]) + &contained("b", &["--tools", "3"])));
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    let with_engine = serving.request("tools/list", "{}")["result"].clone();
    serving.close();
    assert!(with_engine["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "b__dummy_0003"));

    site.use_engine(&site.path("absent.sock"));
    let mut serving = site.open();
    assert_eq!(serving.request("tools/list", "{}")["result"], with_engine);
    assert!(serving.failure("a__echo", json!({})).contains("the container engine does not answer"));
    assert_eq!(site.run(&["call", "a", "echo"]).code, Some(6));
}
