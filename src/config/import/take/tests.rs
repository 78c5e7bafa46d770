//! Whatever stands in a file, what is written loads, and holds no secret of it.

use proptest::prelude::*;

use super::*;
use crate::config::env::Fixed;
use crate::config::resolve::load;

/// A secret as somebody makes them, put together so that none stands whole in this file.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9]{36}".prop_map(|rest| ["gh", "p_1", &rest].concat()),
        "[A-Za-z0-9]{30}".prop_map(|rest| ["s", "k-proj-7", &rest].concat()),
        "[0-9a-f]{12}".prop_map(|rest| format!("postgres://me:pw{rest}@h.example/db")),
        "[A-Za-z0-9]{14}[\"'\\\\ ]{0,2}[a-z0-9]{4}".prop_map(|rest| format!("Zq9-{rest}")),
    ]
}

/// Where in an entry a secret may stand, with the entry.
fn entry() -> impl Strategy<Value = (serde_json::Value, String)> {
    use serde_json::json;
    let text = prop_oneof!["[a-z/.-]{0,12}", any::<String>(), Just("${A}".to_owned()), Just("--x=\"]\n[y]".to_owned())];
    (secret(), text, 0..17_usize).prop_map(|(s, t, place)| {
        let marked = s.starts_with("gh") || s.starts_with("sk") || s.starts_with("post");
        let entry = match place {
            0 => json!({"command": "npx", "args": ["-y", "p", t], "env": {"API_KEY": s, "B": t}}),
            1 => json!({"command": "npx", "args": ["-y", "p", "--token", s, t]}),
            2 => json!({"command": "npx", "args": ["-y", "p", format!("--token={s}"), t]}),
            3 => json!({"command": "docker", "args": ["run", "-e", format!("PASSWORD={s}"), "i", t]}),
            4 => json!({"command": "docker", "args": ["run", "-e", "TOKEN", "i", t], "env": {"TOKEN": s}}),
            5 => json!({"url": "https://h.example/mcp", "headers": {"Authorization": format!("Bearer {s}"), "X": t}}),
            6 => json!({"command": "npx", "args": ["-y", "p", "-H", format!("Authorization: Bearer {s}")]}),
            7 => json!({"command": "node", "args": [t], "env": {"SECRET": s}}),
            8 => json!({"command": "npx", "args": ["p", t], "env": {"A_TOKEN": format!("${{X:-{s}}}")}}),
            9 => json!({"command": "npx", "args": ["p"], "env": {"PASSWORD": s}, "bulkhead": {"min_role": s}}),
            10 => json!({"command": "npx", "args": ["p", s], "env": {"KEY": s, "OTHER": s}}),
            // Where nothing but the secret itself says that it is one.
            11 if marked => json!({"command": "npx", "args": ["-y", s]}),
            12 if marked => json!({"command": "npx", "args": ["-y", "p", s]}),
            13 if marked => json!({"command": "npx", "args": ["-y", "p"], "env": {"X": s}}),
            14 if marked => {
                json!({"command": "docker", "args": ["run", format!("--label=a={s}"), "-v", format!("{s}:/a"), "i"]})
            }
            15 if marked => json!({"command": s, "args": []}),
            _ => json!({"command": "npx", "args": ["-y", "p"], "tools": [s], "env": {"TOKEN": s}}),
        };
        (entry, s)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn what_is_written_loads_and_no_secret_is_written_or_shown(
        entries in proptest::collection::vec((any::<String>(), entry()), 1..5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, env) = (dir.path().join("b.toml"), Fixed::default());
        let servers: serde_json::Map<_, _> =
            entries.iter().enumerate().map(|(n, (name, (entry, _)))| (format!("{n}{name}"), entry.clone())).collect();
        let text = serde_json::json!({ "mcpServers": servers }).to_string();
        let found = Found::read(Path::new("f.json"), text.into_bytes(), None).unwrap();
        let mut edit = Edit::open(&path, &env).unwrap();
        let items = Taking::into(&mut edit).all(found);
        prop_assert_eq!(items.len(), entries.len());
        if !edit.is_empty() {
            edit.save().unwrap();
            let config = load(&path, &env).unwrap();
            let taken = items.iter().filter(|item| ![State::Refused, State::Unchanged].contains(&item.state)).count();
            prop_assert_eq!(config.servers.len(), taken);
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let said = format!("{items:?}");
        for (_, (_, secret)) in &entries {
            for form in [secret.clone(), secret.escape_debug().to_string(), secret.replace('\\', "\\\\").replace('"', "\\\"")] {
                prop_assert!(!written.contains(&form), "{form:?} in {written}");
                prop_assert!(!said.contains(&form), "{form:?} in {said}");
            }
        }
    }
}

/// What becomes of one entry after another, with the file.
fn taken(before: &str, json: &str) -> (Vec<Item>, String) {
    let dir = tempfile::tempdir().unwrap();
    let (path, env) = (dir.path().join("b.toml"), Fixed::default());
    std::fs::write(&path, before).unwrap();
    let mut edit = Edit::open(&path, &env).unwrap();
    let found = Found::read(Path::new("f.json"), json.as_bytes().to_vec(), None).unwrap();
    let items = Taking::into(&mut edit).all(found);
    edit.save().unwrap();
    (items, std::fs::read_to_string(&path).unwrap())
}

#[test]
fn two_secrets_never_share_a_variable() {
    let entry = |secret: &str| format!(r#"{{"command": "npx", "args": ["p"], "env": {{"API_KEY": "{secret}"}}}}"#);
    let json =
        format!(r#"{{"mcpServers": {{"a": {}, "b": {}, "c": {}}}}}"#, entry("one-1"), entry("two-2"), entry("one-1"));
    let (_, text) = taken("", &json);
    let variables: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("secrets = ")).collect();
    assert_eq!(
        variables,
        ["{ API_KEY = \"env:API_KEY\" }", "{ API_KEY = \"env:B_API_KEY\" }", "{ API_KEY = \"env:API_KEY\" }"]
    );
    let (_, text) = taken("[servers.x]\nimage = \"x\"\nsecrets = { K = \"env:API_KEY\" }\n", &json);
    assert!(text.contains("[servers.a]\npackage = \"npx:p\"\nsecrets = { API_KEY = \"env:A_API_KEY\" }"), "{text}");
}
