//! Who sees and may call what, on the whole path.

use serde_json::{Value, json};

use crate::support::{NO_LIMITS, Serving, Site, contained, engine};

/// One server for everyone, one for users, one for admins, all with rules of their own.
fn three() -> Site {
    let rules = "min_role = \"guest\"\n\
        tools = { deny = [\"crash\", \"r*\"], min_role = { env = \"admin\", \"s*\" = \"user\" } }\n";
    let config = [
        NO_LIMITS.to_owned(),
        contained("open", &[]) + rules,
        contained("team", &[]) + "tools = { allow = [\"echo\", \"w*\"] }\n",
        contained("vault", &[]) + "min_role = \"admin\"\ntools = { allow = [\"echo\", \"whoami\"] }\n",
    ];
    let site = Site::new(&config.concat());
    site.prints(&["lock", "--yes"]);
    site
}

fn open_as(site: &Site, role: &str) -> Serving {
    let mut serving = site.serve_with(&["--role", role]);
    serving.initialize();
    serving
}

/// What a role sees, as the client and as the command line show it.
fn seen_by(site: &Site, role: &str) -> Vec<String> {
    let listed = open_as(site, role).tools();
    let shown: Value = serde_json::from_str(&site.prints(&["tools", "--role", role, "--json"])).unwrap();
    let shown: Vec<&str> = shown.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(listed, shown);
    listed
}

#[test]
fn each_role_is_listed_what_it_may_call() {
    let site = three();
    let (guest, user, admin) = (seen_by(&site, "guest"), seen_by(&site, "user"), seen_by(&site, "admin"));
    let has = |list: &[String], name: &str| list.iter().any(|tool| tool == name);
    for (name, roles) in [
        ("open__echo", [true, true, true]),
        ("open__sleep", [false, true, true]),
        ("open__stderr", [false, true, true]),
        ("open__env", [false, false, true]),
        ("open__crash", [false, false, false]),
        ("open__read", [false, false, false]),
        ("team__echo", [false, true, true]),
        ("team__whoami", [false, true, true]),
        ("team__env", [false, false, false]),
        ("vault__echo", [false, false, true]),
        ("vault__env", [false, false, false]),
    ] {
        assert_eq!([has(&guest, name), has(&user, name), has(&admin, name)], roles, "{name}");
    }
    assert!(guest.iter().all(|name| user.contains(name)) && user.iter().all(|name| admin.contains(name)));
}

#[test]
fn a_forbidden_tool_is_answered_like_an_unknown_one_and_starts_nothing() {
    let site = three();
    let mut guest = open_as(&site, "guest");
    let mut answer_to = |name: &str| {
        let id = guest.ask_tool(name, json!({}));
        let line = guest.answer_line(id);
        assert!(line.contains("-32602") && line.contains(name), "{line}");
        line.replace(name, "NAME").replace(&format!("\"id\":{id}"), "\"id\":0")
    };
    let unknown = answer_to("vault__ecxo");
    for forbidden in ["vault__echo", "vault__whoami", "team__echo", "open__sleep", "open__env", "open__crash"] {
        assert_eq!(answer_to(forbidden), unknown, "{forbidden}");
    }
    assert_eq!(engine::servers(&site.gateway()), [""; 0], "nothing was started");

    for (name, decision, outcome) in
        [("vault__echo", "deny", "denied"), ("open__crash", "deny", "denied"), ("vault__ecxo", "deny", "unknown")]
    {
        let (intent, ended) = site.calls_of(name).pop().unwrap();
        assert_eq!((&intent["decision"], &ended["outcome"]), (&json!(decision), &json!(outcome)), "{name}");
        assert_eq!((&intent["role"], &intent["instance"]), (&json!("guest"), &Value::Null), "{name}");
    }
    let (intent, _) = site.calls_of("vault__echo").pop().unwrap();
    assert_eq!(intent["policy"], json!(["min-role"]));

    assert_eq!(guest.text("open__echo", json!({})), "{}");
    assert_eq!(engine::servers(&site.gateway()), ["open"], "only what was called runs");
}

#[test]
fn without_a_lock_a_guest_starts_nothing_of_what_it_may_not_know() {
    let site = Site::new(
        &(contained("open", &[]) + "min_role = \"guest\"\n" + &contained("vault", &[]) + "min_role = \"admin\"\n"),
    );
    let mut guest = open_as(&site, "guest");
    let asked_first = guest.unknown("vault__echo");
    guest.wait_for_tool("open__echo");
    assert_eq!(guest.unknown("vault__echo"), asked_first);
    assert_eq!(guest.unknown("vault__ecxo"), asked_first.replace("echo", "ecxo"));
    assert!(guest.tools().iter().all(|tool| tool.starts_with("open__")));
    assert_eq!(engine::servers(&site.gateway()), ["open"]);
}

#[test]
fn a_script_is_told_the_same_of_a_forbidden_and_of_an_unknown_tool() {
    let site = three();
    let call = |server: &str, tool: &str| {
        let ran = site.run(&["call", "--role", "guest", server, tool]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{}", ran.stderr);
        let told = ran.stderr.lines().find(|line| line.contains("ERROR")).unwrap().to_owned();
        told.split_once("ERROR").unwrap().1.replace(server, "SERVER").replace(tool, "TOOL")
    };
    let unknown = call("vault", "ecxo");
    assert_eq!(call("vault", "echo"), unknown);
    assert_eq!(call("valut", "echo"), unknown);
    let admin = site.run(&["call", "--role", "admin", "vault", "echo", "x=1"]);
    assert_eq!((admin.code, admin.stdout.trim()), (Some(0), r#"{"x":1}"#), "{}", admin.stderr);
}

#[test]
fn the_configured_role_counts_and_is_user_by_default() {
    let config = contained("fx", &[]) + "min_role = \"user\"\n";
    let site = Site::new(&config);
    site.open().wait_for_tool("fx__echo");
    site.configure(&format!("[front.stdio]\nid = \"someone\"\nrole = \"guest\"\n{config}"));
    let mut guest = site.open();
    guest.unknown("fx__echo");
    let (intent, _) = site.calls_of("fx__echo").pop().unwrap();
    assert_eq!((&intent["principal"], &intent["role"]), (&json!("someone"), &json!("guest")));
}
