//! Variables and secrets: expanded once, missing ones disable their server, and no text or `Debug` ever shows one.

use crate::config::env::Fixed;
use crate::config::resolve::load;
use crate::config::testing::{json, json_faults, toml, toml_faults};
use crate::config::{Config, Run};

fn disabled(config: &Config, server: &str) -> String {
    config.server(server).unwrap().disabled.clone().unwrap_or_default()
}

#[test]
fn the_forms_of_other_clients_are_expanded_once() {
    let config = json(
        r#"{"mcpServers":{
            "s1":{"command":"fake","args":["--k","${TOK}","${NOPE:-d}","$$x","$TOK"],"env":{"K":"${env:TOK}"},"bulkhead":{"unisolated":"test"}},
            "s2":{"command":"fake","env":{"K":"${NOPE}"},"bulkhead":{"unisolated":"test"}},
            "s3":{"url":"http://127.0.0.1:9/${TOK}"}}}"#,
    );
    let s1 = config.server("s1").unwrap();
    let Run::Unisolated { command, .. } = &s1.run else { panic!() };
    assert_eq!(command.join(" "), "fake --k s3cr3t$HOME d $$x $TOK");
    assert_eq!(s1.env["K"].reveal(), "s3cr3t$HOME");
    assert_eq!(s1.env.len(), 1);
    assert_eq!(disabled(&config, "s1"), "");
    assert_eq!(disabled(&config, "s2"), "servers.s2.env.K needs the variable \"NOPE\", which is not set");
    assert_eq!(disabled(&config, "s3"), "not yet supported: servers.s3.url");
    assert_eq!(config.server("s3").unwrap().run.kind(), "remote");
    assert!(!format!("{config:?}").contains("s3cr3t"));
}

#[test]
fn a_server_says_everything_it_lacks_and_the_others_serve() {
    let config = toml(
        "[servers.a]\nimage = \"i\"\nargs = [\"x\", \"${NO_ARG}\"]\n\
         secrets = { A = \"env:NO_SECRET\", B = \"file:/no/such\", C = \"env:SET\" }\n[servers.b]\nimage = \"i\"\n",
    );
    let said = disabled(&config, "a");
    assert!(said.starts_with("servers.a.args[1] needs the variable \"NO_ARG\", which is not set; "), "{said}");
    assert!(said.contains("; servers.a.secrets.A needs the variable \"NO_SECRET\", which is not set; "), "{said}");
    assert!(said.contains("; servers.a.secrets.B needs the file \"/no/such\", which cannot be read: "), "{said}");
    assert_eq!(disabled(&config, "b"), "");
}

#[test]
fn disabled_servers_stay_visible() {
    let config = toml("[servers.a]\nimage = \"i\"\ndisabled = true\n[servers.b]\nimage = \"i\"\ndisabled = false\n");
    assert_eq!(disabled(&config, "a"), "disabled in the configuration");
    assert_eq!(disabled(&config, "b"), "");
}

#[test]
fn secrets_come_from_variables_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cert");
    std::fs::write(&file, "c3rt\n").unwrap();
    let text =
        format!("[servers.a]\nimage = \"i\"\nsecrets = {{ A = \"env:TOK\", B = \"file:{}\" }}\n", file.display());
    let config = toml(&text);
    let env = &config.server("a").unwrap().env;
    assert_eq!((env["A"].reveal(), env["B"].reveal()), ("s3cr3t$HOME", "c3rt"));
    let shown = format!("{config:?} {config:#?}");
    assert!(!shown.contains("s3cr3t") && !shown.contains("c3rt"), "{shown}");
}

#[test]
fn no_fault_shows_a_value() {
    let wrong = r#"
        [servers.a]
        image = "i"
        command = ["-${TOK}"]
        args = ["LITERAL\u0001", "${TOK", "LITERAL${x y}"]
        env = { K = "${input:LITERAL}", "B AD" = "LITERAL" }
        secrets = { A = "LITERAL", K = "env:TOK" }
        [servers.b]
        package = "uvx:git+https://LITERAL@example.org/x"
        [servers.c]
        url = "LITERAL://${TOK}"
        secret_headers = { Authorization = "Bearer LITERAL" }
        [servers.d]
        image = "LITERAL@x"
    "#;
    let said = toml_faults(wrong);
    assert!(said.lines().count() >= 11, "{said}");
    assert!(!said.contains("s3cr3t") && !said.contains("LITERAL"), "{said}");
    let said = json_faults(
        r#"{"mcpServers": {"a": {"command": "npx", "args": ["--registry=http://u:LITERAL@x", "p"]},
        "b": {"command": "docker", "args": ["run", "--frobnicate=LITERAL", "i"]},
        "c": {"command": "docker", "args": ["run", "-eA B=LITERAL", "i"]}}}"#,
    );
    assert!(said.lines().count() == 3 && !said.contains("LITERAL"), "{said}");
}

#[test]
fn a_text_that_cannot_be_parsed_is_not_shown_either() {
    for value in ["\"LITERAL", "LITERAL", "'LITERAL", "\"LITERAL\\q\"", "\"LITERAL\" LITERAL", "[LITERAL", "1LITERAL"] {
        let said = toml_faults(&format!("[servers.a]\nimage = \"i\"\nenv = {{ K = {value} }}\n"));
        assert!(!said.contains("LITERAL"), "{said}");
        let said = json_faults(&format!("{{\"servers\": {{\"a\": {{\"env\": {{\"K\": {value}}}}}}}}}"));
        assert!(!said.contains("LITERAL"), "{said}");
    }
}

#[test]
fn debug_hides_arguments_addresses_and_variables_but_names_the_rest() {
    let config = toml(
        r#"
        [servers.a]
        image = "img:1"
        command = ["prog", "LITERAL-1"]
        args = ["--token", "LITERAL-2"]
        env = { DIFY_KEY = "LITERAL-3" }
        [servers.b]
        url = "http://u:LITERAL-4@127.0.0.1/?k=LITERAL-5"
        headers = { X = "LITERAL-6" }
        [servers.c]
        package = "npx:pkg"
        args = ["LITERAL-7"]
        [servers.d]
        unisolated = "why"
        command = ["LITERAL-8"]
        "#,
    );
    let shown = format!("{config:?}");
    assert!(!shown.contains("LITERAL"), "{shown}");
    for visible in ["img:1", "DIFY_KEY", "pkg", "why", "(2 hidden)"] {
        assert!(shown.contains(visible), "{visible}: {shown}");
    }
}

#[test]
fn the_digest_does_not_depend_on_the_value_of_a_variable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.toml");
    let text = "[servers.a]\nimage = \"i\"\nargs = [\"${A}\"]\nenv = { E = \"${A}\" }\nsecrets = { S = \"env:A\" }\n";
    std::fs::write(&path, text).unwrap();
    let digest = |value| load(&path, &Fixed::from([("A", value)])).unwrap().servers[0].digest.clone();
    assert_eq!(digest("one"), digest("two"));
    std::fs::write(&path, text.replace("${A}", "${B:-x}")).unwrap();
    let other = digest("one");
    std::fs::write(&path, text).unwrap();
    assert_ne!(digest("one"), other);
}
