//! The rules of the source that no compiler holds: what a module says of itself, how long it is, and what it must not know.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::repository;

/// A file of the source.
struct Source {
    /// Its path below `src`.
    path: String,
    /// All of it.
    text: String,
}

impl Source {
    /// The part that is built into the program, without comments.
    fn code(&self) -> String {
        let program = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        program.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
    }

    /// Whether it is nothing but tests.
    fn is_test(&self) -> bool {
        ["tests", "testing", "fixture"]
            .iter()
            .any(|name| self.path.ends_with(&format!("/{name}.rs")) || self.path.contains(&format!("/{name}/")))
    }

    /// The module at the top that it belongs to.
    fn module(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap_or_default()
    }
}

fn sources() -> Vec<Source> {
    let root = repository("src");
    let mut found = Vec::new();
    collect(&root, &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    assert!(found.len() > 100, "{} files", found.len());
    let source = |path: PathBuf| Source {
        path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
        text: std::fs::read_to_string(&path).unwrap(),
    };
    found.into_iter().map(source).collect()
}

/// Every file below a folder.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            collect(&entry, found);
        } else {
            found.push(entry);
        }
    }
}

/// The sources of the program in which a word stands, but for those where it may.
fn naming(word: &str, may: &[&str]) -> Vec<String> {
    let named = sources().into_iter().filter(|source| !source.is_test() && source.code().contains(word));
    named.map(|source| source.path).filter(|path| !may.iter().any(|m| path == m)).collect()
}

#[test]
fn every_module_begins_with_what_it_is_for() {
    let silent = sources().into_iter().filter(|source| !source.text.starts_with("//! ") && !source.is_test());
    assert_eq!(silent.map(|source| source.path).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn no_module_is_long() {
    let long = sources().into_iter().filter(|source| !source.is_test() && source.text.lines().count() > 500);
    assert_eq!(long.map(|source| source.path).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn modules_lie_beside_their_folders() {
    assert!(sources().iter().all(|source| !source.path.ends_with("mod.rs")));
}

#[test]
fn only_one_file_starts_processes_of_the_host() {
    let harmless = ["std::process::id", "std::process::ExitCode"];
    let starting = sources().into_iter().filter(|source| {
        let code = harmless.iter().fold(source.code(), |code, word| code.replace(word, ""));
        !source.is_test()
            && ["std::process", "tokio::process", "process::{", "posix_spawn", "fork("].iter().any(|w| code.contains(w))
    });
    assert_eq!(starting.map(|source| source.path).collect::<Vec<_>>(), ["downstream/unisolated.rs"]);
}

#[test]
fn only_one_file_reads_the_environment() {
    for word in ["std::env", "env::var", "env::vars", "env::args", "env::home_dir", "env::temp_dir", "option_env!"] {
        assert_eq!(naming(word, &["config/env.rs"]), [""; 0], "{word}");
    }
}

#[test]
fn only_the_wire_and_what_prints_results_touch_standard_output() {
    assert_eq!(naming("stdout()", &["client/stdio.rs", "cli/serve.rs", "cli/print.rs"]), [""; 0]);
    assert_eq!(naming("println!", &[]), [""; 0]);
}

/// What a module must not know, as words that would give it away.
const UNKNOWN: [(&str, &[&str]); 11] = [
    ("wire", &["tokio", "bollard", "rmcp", "std::fs", "std::net"]),
    ("protocol", &["tokio", "bollard", "std::fs", "std::net"]),
    ("session", &["tokio", "bollard", "std::fs", "std::net", "Instant::now", "SystemTime"]),
    ("gate", &["tokio", "bollard", "serde_json", "std::fs", "std::net"]),
    ("config", &["tokio", "bollard", "rmcp"]),
    ("route", &["tokio", "bollard"]),
    ("client", &["bollard", "serde_json"]),
    ("clients", &["tokio", "bollard", "rmcp", "std::net", "tracing"]),
    ("audit", &["bollard", "rmcp", "axum"]),
    ("name", &["tokio", "bollard", "serde_json"]),
    ("egress", &["bollard", "rmcp", "serde_json", "std::fs"]),
];

#[test]
fn modules_know_nothing_of_what_is_not_theirs() {
    let sources = sources();
    for (module, words) in UNKNOWN {
        let own: Vec<_> = sources.iter().filter(|s| s.module() == module && !s.is_test()).collect();
        assert!(!own.is_empty(), "{module}");
        for source in own {
            let known: Vec<_> = words.iter().filter(|word| source.code().contains(**word)).collect();
            assert!(known.is_empty(), "{}: {known:?}", source.path);
        }
    }
}

/// Which modules of ours each may use, besides itself: the layers of the design, lowest first.
const LAYERS: [(&str, &[&str]); 17] = [
    ("error", &[]),
    ("name", &[]),
    ("text", &[]),
    ("wire", &["text"]),
    ("protocol", &["wire"]),
    ("egress", &["error"]),
    // The rules of what may be reached are read where they are written, in the words of what keeps them.
    ("config", &["egress", "name"]),
    ("gate", &["config", "error", "name"]),
    ("audit", &["config", "error", "name"]),
    ("session", &["protocol", "wire"]),
    ("route", &["config", "error", "gate", "name", "text", "wire"]),
    ("client", &["wire"]),
    // What clients keep of us: no server, no call, no word on how it is shown.
    ("clients", &["config"]),
    // A container's streams and its end are handed on in the words of `downstream::link`.
    ("compartment", &["config", "downstream", "egress", "error", "name", "text"]),
    ("downstream", &["audit", "compartment", "config", "egress", "error", "name", "protocol", "route", "wire"]),
    (
        "flow",
        &["audit", "client", "config", "downstream", "error", "gate", "name", "protocol", "route", "session", "wire"],
    ),
    ("telemetry", &["config"]),
];

#[test]
fn each_layer_uses_only_those_below_it() {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources().into_iter().filter(|source| !source.is_test()) {
        let code = source.code();
        let words = code.split("crate::").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let words = words.filter_map(|mut words| words.next().map(str::to_owned));
        used.entry(source.module().to_owned()).or_default().extend(words);
    }
    for (module, may) in LAYERS {
        let words = used.get(module).unwrap_or_else(|| panic!("no module {module}"));
        let foreign: Vec<_> = words
            .iter()
            .filter(|word| *word != module && *word != "hex" && !may.contains(&word.as_str()) && !word.is_empty())
            .collect();
        assert!(foreign.is_empty(), "{module} must not use {foreign:?}");
    }
    // Who faces clients, and who keeps the conversation, must know of no server.
    let knows = |module: &str| used[module].iter().any(|word| word == "downstream" || word == "compartment");
    assert!(!knows("client") && !knows("session") && !knows("gate") && !knows("route"));
}

#[test]
fn no_file_speaks_of_the_machine_it_was_written_on() {
    // Put together here, so that this file does not name them either.
    let words = [["/work", "/"].concat(), ["/tmp", "/wt"].concat(), ["process", "_api"].concat()];
    let mut files = Vec::new();
    for folder in ["src", "tests", "scripts", "images"] {
        collect(&repository(folder), &mut files);
    }
    for file in files {
        // What is no text was not written by hand.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let named = words.iter().find(|word| line.contains(word.as_str()));
            assert!(named.is_none(), "{}:{}: {named:?}", file.display(), number + 1);
        }
    }
}
