//! A configuration that is wrong: nothing starts, and every fault is named with its place.

use serde_json::json;

use crate::support::{Site, on_host};

/// What the commands say of a configuration that they refuse.
fn refused(config: &str) -> String {
    let site = Site::new(config);
    let mut said = Vec::new();
    for args in [["serve"].as_slice(), &["call", "fx", "echo"], &["tools"], &["lock", "--yes"]] {
        let ran = site.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        said.push(ran.stderr.replace(site.config().to_str().unwrap(), "FILE"));
    }
    assert!(!site.path("state").exists(), "nothing was begun");
    let faults =
        |text: &str| text.lines().filter_map(|l| l.find("FILE").map(|at| l[at..].to_owned())).collect::<Vec<_>>();
    assert!(said.iter().all(|text| faults(text) == faults(&said[0])), "{said:?}");
    faults(&said[0]).join("\n")
}

#[test]
fn every_fault_is_named_with_line_column_and_key() {
    let said = refused(
        "[gateway]\nnames = \"short\"\n\n[servers.fx]\nimage = \"x\"\nmemroy = \"1g\"\npids = 0\n\n[servers.gx]\nimage = \"y\"\nmin_role = \"root\"\n",
    );
    let expected = [
        "FILE:2:9: gateway.names must be ",
        "FILE:6:1: unknown key \"memroy\" in servers.fx; did you mean \"memory\"?",
        "FILE:7:8: servers.fx.pids must be from ",
        "FILE:11:12: servers.gx.min_role must be ",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, begin) in lines.iter().zip(expected) {
        assert!(line.starts_with(begin), "{said}");
    }
}

#[test]
fn text_that_is_no_toml_is_named_with_its_place() {
    let said = refused("[servers.fx]\nimage = \"x\nargs = []\n");
    assert!(said.starts_with("FILE:2:"), "{said}");
    let said = refused("[servers.fx]\nimage = \"x\"\nimage = \"y\"\n");
    assert!(said.starts_with("FILE:3:1: "), "{said}");
}

#[test]
fn what_is_not_served_yet_is_refused_by_name() {
    for (config, key) in [
        ("[front.http]\nlisten = \"127.0.0.1:0\"\n", "front.http"),
        ("[[auth.token]]\nid = \"a\"\n", "auth.token"),
        ("[policy]\nfiles = []\n", "policy.files"),
        ("[audit]\nrotate = \"1m\"\n", "audit.rotate"),
        ("[audit]\narguments = \"full\"\n", "audit.arguments"),
    ] {
        let said = refused(config);
        assert!(said.lines().count() == 1 && said.contains(&format!("not yet supported: {key}")), "{said}");
    }
}

#[test]
fn a_server_without_a_way_to_run_or_without_a_reason_is_refused() {
    for (config, part) in [
        ("[servers.fx]\nmin_role = \"user\"\n", "does not say how it runs"),
        ("[servers.fx]\ncommand = [\"true\"]\n", "does not say how it runs"),
        ("[servers.fx]\nunisolated = \"  \"\ncommand = [\"true\"]\n", "must be the reason"),
        ("[servers.fx]\nunisolated = true\ncommand = [\"true\"]\n", "must be a string"),
        ("[servers.fx]\nimage = \"x\"\nunisolated = \"why\"\ncommand = [\"true\"]\n", "cannot stand beside"),
        ("[servers.fx]\nunisolated = \"why\"\ncommand = [\"true\"]\nmemory = \"1g\"\n", "cannot be kept"),
        ("[servers.fx]\nimage = \"x\"\nuser = 0\n", "servers.fx.user"),
        (
            "[servers.fx]\nimage = \"x\"\nmounts = [{ host = \"/var/run/docker.sock\", at = \"/s\" }]\n",
            "servers.fx.mounts",
        ),
        ("[servers.fx]\nimage = \"x\"\nenv = { DOCKER_HOST = \"x\" }\n", "leads to a container engine"),
    ] {
        let said = refused(config);
        assert!(said.contains("FILE:") && said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_configuration_that_is_not_there_is_said_so() {
    let site = Site::new("");
    std::fs::remove_file(site.config()).unwrap();
    let ran = site.run(&["serve"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("bulkhead.toml: does not exist yet"), "{}", ran.stderr);
}

#[test]
fn a_wrong_command_line_exits_2_with_nothing_on_standard_output() {
    let site = Site::new(&on_host("fx", &[]));
    for args in [
        ["serve", "--role", "root"].as_slice(),
        &["serve", "--http"],
        &["no-such-command"],
        &["call", "fx"],
        &["call", "fx", "echo", "novalue"],
        &["call", "fx", "echo", "--args", "[1]"],
        &["call", "fx", "echo", "--args", "{}", "a=1"],
        &["call", "fx", "echo", "--timeout", "soon"],
    ] {
        let ran = site.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_secret_that_is_missing_disables_its_server_alone() {
    let lacking = on_host("lacking", &[]) + "secrets = { KEY = \"env:NO_SUCH_KEY\" }\n";
    let site = Site::new(&(lacking + &on_host("fx", &[])));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    let shown = site.server("lacking");
    assert_eq!(shown["state"], "disabled");
    assert!(shown["reason"].as_str().unwrap().contains("NO_SUCH_KEY"), "{shown}");
    assert!(serving.failure("lacking__echo", json!({})).contains("server lacking is disabled"));
    assert!(serving.close().stderr.contains("NO_SUCH_KEY"));
}
