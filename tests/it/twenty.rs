//! The example of twenty servers: what can be said of it without baking it, which takes minutes and the registries.
//! `cargo bench --bench cold` locks and calls them.

use crate::support::{Site, repository};

#[test]
fn twenty_servers_are_pinned_and_get_no_more_than_the_defaults() {
    let text = std::fs::read_to_string(repository("examples/twenty.toml")).unwrap();
    let config: toml::Table = text.parse().unwrap();
    let servers = config["servers"].as_table().unwrap();
    assert!(servers.len() >= 20, "{}", servers.len());
    for (name, server) in servers {
        let server = server.as_table().unwrap();
        let package = server["package"].as_str().unwrap();
        let (_, version) = package.rsplit_once('@').unwrap_or_else(|| panic!("{name} is not pinned"));
        assert!(version.split('.').count() >= 3 && version.starts_with(|c: char| c.is_ascii_digit()), "{package}");
        for key in server.keys() {
            let harmless = ["package", "with", "args", "env", "executable"];
            assert!(harmless.contains(&key.as_str()), "{name} asks for more than the defaults: {key}");
        }
        // An example has no key of anybody's.
        let keys = server.get("env").and_then(toml::Value::as_table).into_iter().flatten();
        for (key, value) in keys.filter(|(key, _)| key.contains("KEY") || key.contains("TOKEN")) {
            assert_eq!(value.as_str(), Some("dummy"), "{name}: {key}");
        }
    }
    // And the program takes it: nothing unknown is in it, and nothing is lacking.
    let tools = Site::new(&text).run(&["tools"]);
    assert_eq!(tools.code, Some(0), "{}", tools.stderr);
    assert!(!tools.stderr.contains("disabled"), "{}", tools.stderr);
}
