//! Servers of other clients' files, taken over: what becomes of each, to the byte, and what is refused leaves nothing behind.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::site::Ran;
use crate::support::{Site, repository};

/// The files in `imports`, each with what is printed (`.txt`) and written (`.toml`) beside it, and the exit code.
const FILES: [(&str, i32); 20] = [
    ("claude-desktop.json", 2),
    ("claude-code.json", 2),
    ("claude-code-home.json", 2),
    ("cursor.json", 2),
    ("vscode.jsonc", 2),
    ("vscode-settings.json", 0),
    ("vscode-flat.json", 0),
    ("windsurf.json", 2),
    ("zed.json", 2),
    ("cline.json", 2),
    ("server-npm.json", 0),
    ("server-pypi.json", 0),
    ("server-oci.json", 0),
    ("server-remote.json", 0),
    ("server-other.json", 2),
    ("docker.json", 2),
    ("runners.json", 2),
    ("secrets.json", 2),
    ("hostile.json", 2),
    ("wrong.json", 2),
];

/// A site without a configuration.
fn bare() -> Site {
    let site = Site::new("");
    std::fs::remove_file(site.config()).unwrap();
    site
}

fn fixture(name: &str) -> String {
    std::fs::read_to_string(repository("tests/it/imports").join(name)).unwrap()
}

/// Imports a text as a file of that name.
fn import(site: &Site, name: &str, text: impl AsRef<[u8]>, more: &[&str]) -> Ran {
    std::fs::write(site.path(name), text).unwrap();
    let args: Vec<&str> = ["import", name].into_iter().chain(more.iter().copied()).collect();
    let mut ran = site.run(&args);
    ran.stdout = ran.stdout.replace(site.config().to_str().unwrap(), "bulkhead.toml");
    ran
}

fn written(site: &Site) -> String {
    std::fs::read_to_string(site.config()).unwrap_or_default()
}

/// Holds a text to a golden file, or makes that where it is asked for.
fn golden(name: &str, text: &str) {
    let path = repository("tests/it/imports").join(name);
    if std::env::var_os("BULKHEAD_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name}:\n{text}\n--- expected:\n{expected}");
}

#[test]
fn what_becomes_of_each_file_is_as_it_was_approved_to_the_byte() {
    for (name, code) in FILES {
        let site = bare();
        let ran = import(&site, name, fixture(name), &[]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{name}: {ran:?}");
        let stem = Path::new(name).file_stem().unwrap().to_str().unwrap();
        golden(&format!("{stem}.txt"), &ran.stdout);
        golden(&format!("{stem}.toml"), &written(&site));
        assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{name}: {}", ran.stdout);
        // Whatever was written can be used, and nothing that looks like a secret of the file is in it or was printed.
        if site.config().exists() {
            let tools = site.run(&["tools", "--json"]);
            assert_eq!(tools.code, Some(0), "{name}: {tools:?}");
        }
        for secret in ["not-a-real", "not-real", "abcdefghij0123456789", "0123456789abcdef", "q8ZkT1mXw0bR5vNc3LpY7"] {
            let all = written(&site) + &ran.stdout + &ran.stderr;
            assert!(!all.contains(secret), "{name}: {secret}: {all}");
        }
        assert!(!ran.stdout.contains(|c: char| c.is_control() && c != '\n'), "{name}");
        // Once more, and nothing is written.
        let before = written(&site);
        let again = import(&site, name, fixture(name), &["--json"]);
        let report: Value = serde_json::from_str(&again.stdout).unwrap();
        assert_eq!(report["written"], false, "{report}");
        let states = report["servers"].as_array().unwrap().iter().map(|server| server["becomes"].as_str().unwrap());
        assert!(states.clone().all(|state| ["unchanged", "refused"].contains(&state)), "{name}: {report}");
        assert_eq!(written(&site), before);
    }
}

#[test]
fn a_form_that_is_told_by_a_byte_order_mark_and_other_line_ends_is_the_same() {
    let (plain, dressed) = (bare(), bare());
    let text = fixture("vscode.jsonc");
    let first = import(&plain, "mcp.json", &text, &[]);
    let second = import(&dressed, "mcp.json", format!("\u{feff}{}", text.replace('\n', "\r\n")), &[]);
    assert_eq!((first.code, first.stdout), (second.code, second.stdout));
    assert_eq!(written(&plain), written(&dressed));
    assert!(!written(&plain).is_empty());
}

#[test]
fn a_file_that_is_broken_or_of_no_known_form_is_refused_whole() {
    let large = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"npx\", \"args\": [\"{}", "x".repeat(3 << 20));
    let both = r#"{"mcpServers": {}, "servers": {}}"#;
    for (text, said) in [
        ("".as_bytes(), "f.json:1:1: the file must hold an object"),
        (b"null", "the file must hold an object"),
        (br#"{"mcpServers": {"a": {"command": "npx""#, "f.json:1:"),
        (large.as_bytes(), "f.json:1:"),
        (br#"{"mcpServers": {"a": {}, "a": {}}}"#, "duplicate key \"a\", first in line 1"),
        (br#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#, "duplicate key \"command\""),
        (b"{\"mcpServers\": \xff}", "f.json: is not UTF-8"),
        (b"\0\0\0\0", "f.json:1:"),
        (b"{\"mcpServers\"\0: {}}", "f.json:1:"),
        (br#"{"mcpServers": []}"#, "mcpServers (line 1, column 16) must be a table, not a list"),
        (br#"{"servers": "x"}"#, "servers (line 1, column 13) must be a table, not a string"),
        (br#"{"inputs": {}, "servers": {}}"#, "inputs (line 1, column 12) must be a list"),
        (
            br#"{"command": "npx", "args": ["a"]}"#,
            "holds no servers in a form that is known; looked for: \"mcpServers\" (",
        ),
        (br#"{}"#, "\"context_servers\" (Zed); \"packages\" or \"remotes\" (server.json)"),
        (both.as_bytes(), "could be read in more than one way; say which with --from: \"mcpServers\" ("),
        (b"[servers.a]\nimage = \"x\"\n", "f.json:1:"),
    ] {
        let site = bare();
        let ran = import(&site, "f.json", text, &[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{said}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
        assert!(!site.config().exists());
    }
    let site = bare();
    assert_eq!(import(&site, "f.json", both, &["--from", "cursor"]).code, Some(0));
    let ran = import(&site, "f.json", both, &["--from", "zed"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("looked for: \"context_servers\" (Zed)"), "{ran:?}");
    assert_eq!(import(&site, "f.json", both, &["--from", "nobody"]).code, Some(2));
}

#[test]
fn only_regular_files_that_nobody_else_can_write_are_read() {
    let site = bare();
    std::fs::write(site.path("real.json"), fixture("vscode-flat.json")).unwrap();
    std::os::unix::fs::symlink(site.path("real.json"), site.path("link.json")).unwrap();
    std::os::unix::fs::symlink(site.path("nothing.json"), site.path("dangling.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", site.path("zero.json")).unwrap();
    std::os::unix::net::UnixListener::bind(site.path("socket.json")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(site.path("fifo.json")).status().unwrap().success());
    std::fs::write(site.path("open.json"), fixture("vscode-flat.json")).unwrap();
    std::fs::set_permissions(site.path("open.json"), std::fs::Permissions::from_mode(0o666)).unwrap();
    for (name, said) in [
        ("none.json", "none.json: there is no such file"),
        ("dangling.json", "dangling.json: there is no such file"),
        ("zero.json", "zero.json: is no regular file"),
        ("fifo.json", "fifo.json: is no regular file"),
        ("socket.json", "socket.json: is no regular file"),
        (".", ".: is no regular file"),
        ("open.json", "open.json: every user of this machine may write to it"),
    ] {
        let ran = site.run(&["import", name]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{name}: {ran:?}");
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
    }
    assert_eq!(site.run(&["import", "link.json"]).code, Some(0));
}

#[test]
fn a_configuration_keeps_every_byte_and_its_rights() {
    for (before, end) in [
        ("# mine\n[servers.a]   # here\nimage = 'x'\n\n[limits]\nrate = \"1/s\" # slow\n", "\n"),
        ("[servers.a]\r\nimage = \"x\" # no end", "\r\n\r\n"),
        ("[servers.a]\nimage = \"x\" # no end", "\n\n"),
        ("\u{feff}# nothing else\n", "\n"),
        ("servers.a.image = \"x\"\n", "\n"),
        ("", ""),
    ] {
        let site = Site::new(before);
        std::fs::set_permissions(site.config(), std::fs::Permissions::from_mode(0o640)).unwrap();
        let ran = import(&site, "f.json", fixture("vscode-flat.json"), &[]);
        assert_eq!(ran.code, Some(0), "{before}: {ran:?}");
        let line = if before.contains("\r\n") { "\r\n" } else { "\n" };
        let own = format!("{end}[servers.weather]\npackage = \"npx:weather@1.0.0\"\n").replace("\r\n", "\n");
        assert_eq!(written(&site), format!("{before}{}", own.replace('\n', line)));
        assert_eq!(std::fs::metadata(site.config()).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let site = bare();
    import(&site, "f.json", fixture("vscode-flat.json"), &[]);
    assert_eq!(std::fs::metadata(site.config()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_configuration_that_cannot_be_added_to_stays_as_it_is() {
    for (before, said) in [
        ("[servers.a]\nimage = 1\n", "bulkhead.toml:2:9: servers.a.image must be a string"),
        ("[servers.a\n", "bulkhead.toml:1:"),
        ("servers = { a = { image = \"x\" } }\n", "write each as a table, [servers.NAME]"),
    ] {
        let site = Site::new(before);
        let ran = import(&site, "f.json", fixture("vscode-flat.json"), &[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(written(&site), before);
    }
    let site = bare();
    std::fs::write(site.path("f.json"), fixture("vscode-flat.json")).unwrap();
    let mut command = site.with_environment(crate::support::site::BULKHEAD);
    command.args(["import", "f.json", "--config", "own.json"]);
    let ran = crate::support::site::ran(command);
    assert!(ran.code == Some(2) && ran.stderr.contains("own.json: entries are only written into TOML"), "{ran:?}");
    assert!(!site.path("own.json").exists());
    // A link that leads nowhere is not replaced.
    std::os::unix::fs::symlink(site.path("nowhere.toml"), site.config()).unwrap();
    assert_eq!(site.run(&["import", "f.json"]).code, Some(2));
    assert!(site.config().symlink_metadata().unwrap().is_symlink() && !site.path("nowhere.toml").exists());
}

#[test]
fn a_name_that_is_taken_is_refused_unless_it_is_the_same() {
    let site = Site::new("[servers.weather]\npackage = \"npx:weather@1.0.0\"\nmin_role = \"admin\"\n");
    let before = written(&site);
    let ran = import(&site, "f.json", fixture("vscode-flat.json"), &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("another server of that name"), "{}", ran.stdout);
    assert_eq!(written(&site), before);
    let ran = import(&site, "f.json", fixture("vscode-flat.json").replace("\"weather\"", "\"WEATHER\""), &[]);
    assert!(ran.stdout.contains("a server of nearly that name"), "{}", ran.stdout);
}

#[test]
fn a_dry_run_shows_what_would_be_written_and_writes_nothing() {
    let site = bare();
    let ran =
        import(&site, "f.json", fixture("claude-desktop.json"), &["--dry-run", "--only", "time", "--only", "tracker"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("[servers.time]\npackage = \"uvx:mcp-server-time@2026.8.31\"\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("[servers.tracker]") && !ran.stdout.contains("database"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("nothing was written: 2 servers would be taken\n"), "{}", ran.stdout);
    assert!(!site.config().exists());
    let ran = import(&site, "f.json", fixture("claude-desktop.json"), &["--only", "nobody"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.stderr.contains("there is no server \"nobody\" in f.json"), "{}", ran.stderr);
}

/// Runs a subcommand whose last words are another command's.
fn with_command(site: &Site, args: &[&str]) -> Ran {
    let mut command = site.with_environment(crate::support::site::BULKHEAD);
    let (config, state) = (site.config(), site.path("state"));
    command.arg("--config").arg(config).arg("--state").arg(state).args(args);
    crate::support::site::ran(command)
}

#[test]
fn a_server_is_added_by_the_same_way() {
    let site = bare();
    for (args, code, said) in [
        (
            [
                "add",
                "a",
                "npx:@example/a@1.0.0",
                "--arg",
                "--x",
                "--egress",
                "api.example.org:443",
                "--min-role",
                "admin",
            ]
            .as_slice(),
            0,
            "taken",
        ),
        (
            &["add", "b", "--image", "b:1", "--env", "A=1", "--secret", "B_KEY=env:B", "--", "serve", "--x"],
            0,
            "translated",
        ),
        (&["add", "c", "--url", "https://c.example.org/mcp"], 0, "not yet supported"),
        (&["add", "d", "--", "npx", "-y", "d@1.0.0", "--token", "not-a-real-token"], 0, "D_TOKEN"),
        (&["add", "e", "--env", "E=x", "--", "docker", "run", "-i", "--rm", "-e", "F", "e:1"], 0, "image e:1"),
        (&["add", "f", "--", "docker", "run", "--privileged", "f:1"], 2, "would lift the whole compartment"),
        (&["add", "g", "--", "node", "g.js"], 2, "none of npx, uvx"),
        (&["add", "h", "npm:h"], 2, "must begin with"),
        (&["add", "a", "npx:other"], 2, "another server of that name"),
        (&["add", "i", "npx:i", "--egress", "everywhere"], 2, "is nothing that can be reached"),
        (&["add", "j", "npx:j", "--secret", "K=not-a-real-key"], 2, "must be \"env:NAME\""),
        (&["add", "../k", "npx:k", "--dry-run"], 0, "is no name for a server, so it is called \"k\""),
    ] {
        let ran = with_command(&site, args);
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(said), "{args:?}: {}", ran.stdout);
        assert!(!ran.stdout.contains("not-a-real"), "{}", ran.stdout);
    }
    golden("added.toml", &written(&site));
    assert_eq!(site.run(&["tools"]).code, Some(0));
    for args in
        [["add", "x"].as_slice(), &["add", "x", "npx:a", "--image", "b"], &["add", "x", "npx:a", "--", "npx", "a"]]
    {
        let ran = with_command(&site, args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
    }
}

/// Nobody who takes a file over has looked at it for what its servers may reach.
#[test]
fn what_a_file_lets_its_own_servers_reach_is_refused_by_name() {
    for (key, value) in [
        ("egress", json!(["*.example.org:443"])),
        ("host_ports", json!([22])),
        ("network", json!("bridge")),
        ("mounts", json!([{"host": "/srv", "at": "/srv", "write": true}])),
        ("writable_root", json!(true)),
        ("min_role", json!("guest")),
        ("secrets", json!({"X": "file:/srv/key"})),
    ] {
        let site = Site::new("");
        let file =
            json!({"mcpServers": {"a": {"command": "npx", "args": ["-y", "p@1.0.0"], "bulkhead": {key: value}}}});
        std::fs::write(site.path("theirs.json"), file.to_string()).unwrap();
        let ran = site.run(&["import", site.path("theirs.json").to_str().unwrap()]);
        assert_eq!(ran.code, Some(2), "{key}: {ran:?}");
        assert!(ran.stdout.contains(&format!("it gives itself \"{key}\"")), "{key}: {}", ran.stdout);
    }
}

#[test]
fn of_many_that_add_at_once_none_is_lost() {
    let site = Site::new("");
    std::thread::scope(|scope| {
        for n in 0..6 {
            let site = &site;
            scope.spawn(move || {
                let ran = site.run(&["add", &format!("s{n}"), "npx:@example/a@1.0.0"]);
                assert_eq!(ran.code, Some(0), "{ran:?}");
            });
        }
    });
    let written = std::fs::read_to_string(site.config()).unwrap();
    assert!((0..6).all(|n| written.contains(&format!("[servers.s{n}]"))), "{written}");
}
