//! The only reader of the process environment: paths, the engine's endpoints, secrets. Knows nothing of the schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod engine;
mod source;

pub(super) use engine::usual_sockets;
pub use engine::{NoContext, engine_candidates};
pub(super) use source::Source;

/// The file that is looked for where none is named.
const FILE: &str = "bulkhead.toml";

/// Variables that lead a program to a container engine.
pub(super) const ENGINE_VARIABLES: [&str; 6] =
    ["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST"];

/// The variable that names the state directory.
const STATE: &str = "BULKHEAD_STATE";

/// Where variables come from: the process, or a test.
pub trait Environment {
    /// The value of a variable; `None` where it is not set, or is not text.
    fn var(&self, name: &str) -> Option<String>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    #[allow(clippy::disallowed_methods, reason = "the one place where the process environment is read")]
    fn var(&self, name: &str) -> Option<String> {
        // An empty name, or one with `=`, is no variable, and some platforms panic on it.
        if name.is_empty() || name.contains(['=', '\0']) { None } else { std::env::var(name).ok() }
    }
}

/// An environment of fixed variables: for what must not depend on the process's own, and for tests.
#[derive(Clone, Debug, Default)]
pub struct Fixed(pub BTreeMap<String, String>);

impl Environment for Fixed {
    fn var(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Fixed {
    fn from(variables: [(&str, &str); N]) -> Self {
        Fixed(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// The configuration file: the flag, else `$BULKHEAD_CONFIG`, else `./bulkhead.toml` if it is there, else
/// `$XDG_CONFIG_HOME/bulkhead/bulkhead.toml` (`~/.config` where that is not set).
pub fn config_path(flag: Option<&Path>, env: &dyn Environment) -> PathBuf {
    if let Some(path) = flag.map(Path::to_owned).or_else(|| path_var(env, "BULKHEAD_CONFIG")) {
        return path;
    }
    let here = PathBuf::from(FILE);
    // `symlink_metadata`, so that a link to nothing is an error that is seen, not a reason to read another file.
    if here.symlink_metadata().is_ok() {
        return here;
    }
    base(env, "XDG_CONFIG_HOME", ".config").map_or(here, |base| base.join("bulkhead").join(FILE))
}

/// An environment in which the state directory is the one that was chosen on the command line.
pub struct WithState<'a> {
    /// Everything else.
    pub env: &'a dyn Environment,
    /// The directory.
    pub state: PathBuf,
}

impl Environment for WithState<'_> {
    fn var(&self, name: &str) -> Option<String> {
        match name {
            STATE => self.state.to_str().map(str::to_owned),
            _ => self.env.var(name),
        }
    }
}

/// Where audit, lock and control sockets live: the flag, else `$BULKHEAD_STATE`, else `$XDG_STATE_HOME/bulkhead`
/// (`~/.local/state` where that is not set), else `.bulkhead` in the working directory for a process without a home.
pub fn state_dir(flag: Option<&Path>, env: &dyn Environment) -> PathBuf {
    let chosen = flag.map(Path::to_owned).or_else(|| path_var(env, STATE));
    let usual = || base(env, "XDG_STATE_HOME", ".local/state").map(|base| base.join("bulkhead"));
    chosen.or_else(usual).unwrap_or_else(|| PathBuf::from(".bulkhead"))
}

/// The user's home directory, if the environment names one.
pub(super) fn home(env: &dyn Environment) -> Option<PathBuf> {
    let variable = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    directory(env, variable)
}

/// Whether a text can be the name of a variable: `[A-Za-z_][A-Za-z0-9_]*`.
pub(super) fn is_name(text: &str) -> bool {
    let tail = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(tail)
}

/// A directory that a variable names; one that is empty or not absolute names none.
pub fn directory(env: &dyn Environment, variable: &str) -> Option<PathBuf> {
    path_var(env, variable).filter(|path| path.is_absolute())
}

/// The file of this program, by its absolute path.
pub fn program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}

/// Whether the state directory was chosen, by the flag or by its variable.
pub fn state_chosen(flag: Option<&Path>, env: &dyn Environment) -> bool {
    flag.is_some() || path_var(env, STATE).is_some()
}

/// A base directory of the XDG rules, which ignore one that is empty or not absolute.
fn base(env: &dyn Environment, variable: &str, below_home: &str) -> Option<PathBuf> {
    directory(env, variable).or_else(|| home(env).map(|home| home.join(below_home)))
}

/// A variable that names a path; an empty one names none.
fn path_var(env: &dyn Environment, name: &str) -> Option<PathBuf> {
    env.var(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable_and_the_variable_over_the_usual_place() {
        let flag = Path::new("/f/x.toml");
        let env = Fixed::from([("BULKHEAD_CONFIG", "/v/b.json"), ("BULKHEAD_STATE", "/v/state"), ("HOME", "/h")]);
        assert_eq!(config_path(Some(flag), &env), flag);
        assert_eq!(config_path(None, &env), Path::new("/v/b.json"));
        assert_eq!(state_dir(Some(flag), &env), flag);
        assert_eq!(state_dir(None, &env), Path::new("/v/state"));
    }

    #[test]
    fn the_usual_places_follow_xdg() {
        let set = Fixed::from([("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s"), ("HOME", "/h")]);
        assert_eq!(config_path(None, &set), Path::new("/c/bulkhead/bulkhead.toml"));
        assert_eq!(state_dir(None, &set), Path::new("/s/bulkhead"));
        let relative = Fixed::from([("XDG_CONFIG_HOME", "c"), ("XDG_STATE_HOME", ""), ("HOME", "/h")]);
        assert_eq!(config_path(None, &relative), Path::new("/h/.config/bulkhead/bulkhead.toml"));
        assert_eq!(state_dir(None, &relative), Path::new("/h/.local/state/bulkhead"));
        let bare = Fixed::from([("BULKHEAD_CONFIG", "")]);
        assert_eq!(config_path(None, &bare), Path::new("bulkhead.toml"));
        assert_eq!(state_dir(None, &bare), Path::new(".bulkhead"));
    }

    #[test]
    fn names_of_variables() {
        for (text, good) in
            [("A", true), ("_a1", true), ("", false), ("1A", false), ("A-B", false), ("A=B", false), ("É", false)]
        {
            assert_eq!(is_name(text), good, "{text}");
        }
    }
}
