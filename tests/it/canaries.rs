//! What a server finds in its environment: what was declared, and nothing of the gateway's own.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::json;

use crate::support::{Site, contained, on_host};

/// Declared for every server here: one literal value, one secret by another name than the gateway's.
const DECLARED: &str = "env = { PLAIN = \"as ${HOME_OF}\" }\nsecrets = { TOKEN = \"env:CANARY_07\" }\n";

/// A site whose gateway has much in its environment that no server may see.
fn among_canaries(config: &str) -> Site {
    let mut site = Site::new(config);
    for n in 0..50 {
        site.set(&format!("CANARY_{n:02}"), format!("canary-{n:02}"));
    }
    for name in
        ["DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH", "PYTHONPATH", "NODE_OPTIONS"]
    {
        site.set(name, "/canary-of-a-usual-name");
    }
    site.set("HOME_OF", "declared");
    site
}

/// Names and values as the kernel tells them of the server's process.
fn environment(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap()
}

fn assert_exactly(environment: &BTreeMap<String, String>, path: &str, home: &str) {
    let expected =
        [("HOME", home), ("LANG", "C.UTF-8"), ("PATH", path), ("PLAIN", "as declared"), ("TOKEN", "canary-07")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(*environment, BTreeMap::from(expected));
}

#[test]
fn an_image_server_sees_only_what_was_declared() {
    let site = among_canaries(&(contained("fx", &[]) + DECLARED));
    let mut serving = site.open();
    let own = environment(&serving.text("fx__env", json!({})));
    assert_exactly(&own, &own["PATH"], "/home/mcp");
    assert!(own["PATH"].starts_with("/usr/local/sbin:"), "{own:?}");
    // The process that started it is in the same compartment.
    let init = serving.text("fx__read", json!({"path": "/proc/1/environ"}));
    assert!(init.contains("HOME=/home/mcp") && init.matches("canary").count() == 1, "{init}");
}

#[test]
fn a_server_baked_from_a_package_sees_only_what_was_declared() {
    let package = "[servers.repl]\npackage = \"uvx:mcp-python@0.1.4\"\nwith = [\"mcp<2\"]\n";
    let site = among_canaries(&format!("{package}{DECLARED}"));
    site.prints(&["lock", "--yes"]);
    let mut serving = site.open();
    let code = "import json; pairs = open('/proc/self/environ').read().split('\\0'); \
        print(json.dumps(dict(pair.split('=', 1) for pair in pairs if pair)))";
    let printed = serving.text("repl__execute_python", json!({ "code": code }));
    let own = environment(printed.trim_start_matches("Output:").trim());
    assert_exactly(&own, &own["PATH"], "/home/mcp");
}

#[test]
fn an_unisolated_server_sees_only_what_was_declared() {
    // The interpreter itself: a wrapper in its place may set variables of its own.
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output().unwrap();
    let python = format!("[{:?}", String::from_utf8(python.stdout).unwrap());
    let site = among_canaries(&(on_host("fx", &[]).replace("[\"python3\"", &python) + DECLARED));
    let mut serving = site.open();
    let own = environment(&serving.text("fx__env", json!({})));
    let path = std::env::var("PATH").unwrap();
    assert_exactly(&own, &path, site.path("").to_str().unwrap().trim_end_matches('/'));
}
