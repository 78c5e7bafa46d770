//! Loads texts as if they were files, for the tests of this module.

use super::Config;
use super::env::Fixed;
use super::resolve::load;

/// A variable that is set, one that is set to a secret, and no other.
pub(super) fn variables() -> Fixed {
    Fixed::from([("SET", "set"), ("TOK", "s3cr3t$HOME"), ("OTHER", "leak")])
}

/// The configuration in a text; the faults with the bare file name before them.
pub(super) fn loaded(file: &str, text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(file);
    std::fs::write(&path, text).unwrap();
    load(&path, &variables()).map_err(|faults| faults.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

/// What a good TOML text means.
#[track_caller]
pub(super) fn toml(text: &str) -> Config {
    loaded("b.toml", text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// What is wrong with a TOML text.
#[track_caller]
pub(super) fn toml_faults(text: &str) -> String {
    loaded("b.toml", text).map(|config| panic!("loaded: {config:?}")).unwrap_or_else(|faults| faults)
}

/// What a good JSON text means.
#[track_caller]
pub(super) fn json(text: &str) -> Config {
    loaded("b.json", text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// What is wrong with a JSON text.
#[track_caller]
pub(super) fn json_faults(text: &str) -> String {
    loaded("b.json", text).map(|config| panic!("loaded: {config:?}")).unwrap_or_else(|faults| faults)
}
