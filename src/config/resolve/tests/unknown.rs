//! A key that is not known is refused at every table, whatever it is called.

use crate::config::resolve::KEYS;
use crate::config::testing::loaded;

/// A file with every table there is; `@` marks where a key can be added.
const TOML: &str = r#"
@
[gateway]
@
[front]
@
[front.stdio]
@
[auth]
@
[policy]
@
[limits]
@
[limits.role]
@
[limits.role.guest]
@
[limits.total]
@
[audit]
@
[servers.a]
image = "i"
@
[servers.a.tools]
@
[servers.a.limits]
@
[[servers.a.mounts]]
host = "/usr/share"
at = "/x"
@
[servers.b]
package = "npx:p"
@
[servers.c]
unisolated = "why"
command = ["x"]
@
[servers.d]
url = "http://h/"
@
"#;

/// The same for what only JSON has.
const JSON: &str = r#"{ @ "mcpServers": {
    "a": { @ "command": "npx", "args": ["p"], "bulkhead": { @ "tools": { @ "allow": ["*"] } } },
    "b": { @ "url": "http://h/" } } }"#;

/// Letters, digits and signs in no order, but always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn key(&mut self) -> String {
        const SIGNS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-. $";
        let length = 1 + self.roll(14);
        // The last sign makes it a word that no key is.
        (0..length).map(|_| SIGNS[self.roll(SIGNS.len() as u64) as usize] as char).chain(['~']).collect()
    }
}

fn with_key(template: &str, at: usize, addition: &str) -> String {
    let mut seen = 0;
    template
        .split_inclusive('@')
        .map(|part| {
            let part_of = part.replace('@', if part.ends_with('@') && seen == at { addition } else { "" });
            seen += 1;
            part_of
        })
        .collect()
}

#[test]
fn the_templates_are_good_without_another_key() {
    for (file, template) in [("b.toml", TOML), ("b.json", JSON)] {
        let text = with_key(template, usize::MAX, "");
        assert!(loaded(file, &text).is_ok(), "{:?}", loaded(file, &text));
    }
}

#[test]
fn any_other_key_is_refused_in_every_table() {
    let mut dice = Dice(7);
    for (file, template) in [("b.toml", TOML), ("b.json", JSON)] {
        for at in 0..template.matches('@').count() {
            for _ in 0..12 {
                let key = dice.key();
                let addition = if file == "b.toml" { format!("{key:?} = 1") } else { format!("{key:?}: 1,") };
                let text = with_key(template, at, &addition);
                let said = loaded(file, &text).expect_err(&text);
                assert!(said.contains(&format!("{key:?}")), "{said}\n{text}");
            }
        }
    }
}

#[test]
fn a_known_key_with_a_value_that_cannot_be_is_never_passed_over() {
    let tables = [
        ("gateway", &["name", "names", "start", "approval", "idle_stop"][..]),
        ("front.stdio", &["id", "role"]),
        ("front", &["stdio", "http"]),
        ("limits", &["rate", "burst", "concurrent", "role", "total"]),
        ("limits.role.user", &["rate", "burst", "concurrent"]),
        ("limits.total", &["memory", "cpus", "instances"]),
        ("audit", &["path", "arguments", "sync", "rotate"]),
        ("auth", &["token", "oidc"]),
        ("policy", &["files"]),
        ("servers.a", &KEYS),
        ("servers.a.tools", &["allow", "deny", "min_role"]),
        ("servers.a.limits", &["rate", "burst", "concurrent"]),
        ("servers.a.env", &["K"]),
        ("servers.a.secrets", &["K"]),
    ];
    for (table, keys) in tables {
        for key in keys {
            let runs = ["package", "image", "unisolated", "url"].contains(key);
            let server = if runs { "[servers.a]" } else { "[servers.a]\nimage = \"i\"" };
            let header = format!("[{table}]");
            let before = match table {
                "servers.a" => server,
                table if table.starts_with("servers.a.") => &format!("{server}\n{header}"),
                _ => &header,
            };
            let said = loaded("b.toml", &format!("{before}\n{key} = 1979-05-27\n")).expect_err(key);
            assert!(said.contains(&format!("{table}.{key}")) && !said.contains("unknown key"), "{said}");
        }
    }
}

#[test]
fn keys_of_engines_and_other_products_are_refused() {
    for key in [
        "volumes = [\"/:/host\"]",
        "privileged = true",
        "extra_args = [\"--privileged\"]",
        "cache_volume = \"/etc\"",
        "cap_add = [\"ALL\"]",
        "devices = []",
        "pid = \"host\"",
        "ports = []",
        "cwd = \"/\"",
        "Memory = \"1g\"",
    ] {
        let said = loaded("b.toml", &format!("[servers.s1]\nimage = \"i\"\n{key}\n")).unwrap_err();
        let name = key.split(' ').next().unwrap();
        assert!(said.starts_with(&format!("b.toml:3:1: unknown key \"{name}\" in servers.s1")), "{said}");
    }
}
