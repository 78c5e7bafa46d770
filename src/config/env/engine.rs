//! Where the container engine may answer, in the order in which to try. Knows nothing of its protocol.
//!
//! An endpoint that somebody chose is the only one tried: falling back would run containers on another engine than meant.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Environment, home, path_var};

/// The docker context that was chosen cannot be used, or it cannot be known which one was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoContext(String);

/// Endpoints of the engine as URIs: `$DOCKER_HOST` alone if it is set; else the docker context in use alone, unless it is
/// `default`; else the usual sockets.
pub fn engine_candidates(env: &dyn Environment) -> Result<Vec<String>, NoContext> {
    if let Some(host) = env.var("DOCKER_HOST").filter(|host| !host.is_empty()) {
        return Ok(vec![host]);
    }
    match context(env).map_err(NoContext)? {
        Some((name, by)) if name != "default" => match endpoint(&name, env) {
            Ok(host) => Ok(vec![host]),
            Err(why) => Err(NoContext(format!("the docker context {name:?}, chosen by {by}, {why}"))),
        },
        _ => Ok(usual(env)),
    }
}

/// The sockets of Docker, Docker Desktop, Colima, rootless Docker and Podman, whether they are there or not.
pub(in crate::config) fn usual_sockets(env: &dyn Environment) -> Vec<PathBuf> {
    let home = home(env);
    let runtime = path_var(env, "XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
    let below = |base: &Option<PathBuf>, path: &str| base.as_ref().map(|base| base.join(path));
    [
        Some(PathBuf::from("/var/run/docker.sock")),
        below(&home, ".docker/run/docker.sock"),
        below(&home, ".colima/default/docker.sock"),
        below(&runtime, "docker.sock"),
        below(&runtime, "podman/podman.sock"),
        Some(PathBuf::from("/run/podman/podman.sock")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn usual(env: &dyn Environment) -> Vec<String> {
    if cfg!(windows) {
        return vec!["npipe:////./pipe/docker_engine".to_owned()];
    }
    usual_sockets(env).iter().map(|path| format!("unix://{}", path.display())).collect()
}

/// The name of the context in use, and what says so.
fn context(env: &dyn Environment) -> Result<Option<(String, String)>, String> {
    if let Some(name) = env.var("DOCKER_CONTEXT").filter(|name| !name.is_empty()) {
        return Ok(Some((name, "$DOCKER_CONTEXT".to_owned())));
    }
    let Some(file) = docker_dir(env).map(|dir| dir.join("config.json")) else { return Ok(None) };
    let bytes = match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| format!("{} cannot be read: {error}", file.display()))?,
    };
    let config: Value = serde_json::from_slice(&bytes).map_err(|_| format!("{} is no JSON", file.display()))?;
    let name = config.get("currentContext").and_then(Value::as_str).filter(|name| !name.is_empty());
    Ok(name.map(|name| (name.to_owned(), file.display().to_string())))
}

/// The endpoint that a context stands for.
fn endpoint(name: &str, env: &dyn Environment) -> Result<String, String> {
    let contexts = docker_dir(env).ok_or("cannot be looked up without a home directory")?.join("contexts/meta");
    let entries = std::fs::read_dir(&contexts).map_err(|_| format!("is not in {}", contexts.display()))?;
    let meta = entries
        .filter_map(|entry| json(&entry.ok()?.path().join("meta.json")))
        .find(|meta| meta.get("Name").and_then(Value::as_str) == Some(name))
        .ok_or_else(|| format!("is not in {}", contexts.display()))?;
    let host = meta.pointer("/Endpoints/docker/Host").and_then(Value::as_str).filter(|host| !host.is_empty());
    host.map(str::to_owned).ok_or_else(|| "names no endpoint".to_owned())
}

fn docker_dir(env: &dyn Environment) -> Option<PathBuf> {
    path_var(env, "DOCKER_CONFIG").or_else(|| home(env).map(|home| home.join(".docker")))
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::Fixed;
    use super::*;

    /// A home whose docker client is set to a context.
    fn home_with(current: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let meta = dir.path().join(".docker/contexts/meta/0123abcd");
        std::fs::create_dir_all(&meta).unwrap();
        let config = format!(r#"{{"auths": {{}}, "currentContext": "{current}"}}"#);
        std::fs::write(dir.path().join(".docker/config.json"), config).unwrap();
        let colima = r#"{"Name":"colima","Endpoints":{"docker":{"Host":"unix:///c.sock","SkipTLSVerify":false}}}"#;
        std::fs::write(meta.join("meta.json"), colima).unwrap();
        dir
    }

    #[test]
    fn a_chosen_endpoint_is_the_only_one() {
        let dir = home_with("colima");
        let home = dir.path().to_str().unwrap();
        let host = Fixed::from([("HOME", home), ("DOCKER_HOST", "tcp://10.0.0.1:2375"), ("DOCKER_CONTEXT", "x")]);
        assert_eq!(engine_candidates(&host).unwrap(), ["tcp://10.0.0.1:2375"]);
        assert_eq!(engine_candidates(&Fixed::from([("HOME", home)])).unwrap(), ["unix:///c.sock"]);
        let by_variable = Fixed::from([("HOME", home), ("DOCKER_CONTEXT", "default")]);
        assert!(engine_candidates(&by_variable).unwrap().len() > 1, "the variable wins over the file");
    }

    #[test]
    fn a_context_that_is_not_there_is_an_error_and_never_the_default_engine() {
        let dir = home_with("gone");
        let said = engine_candidates(&Fixed::from([("HOME", dir.path().to_str().unwrap())])).unwrap_err().to_string();
        assert!(said.starts_with("the docker context \"gone\", chosen by "), "{said}");
        let nowhere = Fixed::from([("DOCKER_CONTEXT", "x")]);
        assert!(engine_candidates(&nowhere).is_err());
        std::fs::write(dir.path().join(".docker/config.json"), "{").unwrap();
        let said = engine_candidates(&Fixed::from([("HOME", dir.path().to_str().unwrap())])).unwrap_err().to_string();
        assert!(said.ends_with("config.json is no JSON"), "{said}");
    }

    #[test]
    fn otherwise_the_usual_sockets_in_order() {
        let env = Fixed::from([("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/user/1000"), ("DOCKER_HOST", "")]);
        assert_eq!(
            engine_candidates(&env).unwrap(),
            [
                "unix:///var/run/docker.sock",
                "unix:///h/.docker/run/docker.sock",
                "unix:///h/.colima/default/docker.sock",
                "unix:///run/user/1000/docker.sock",
                "unix:///run/user/1000/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
        assert_eq!(engine_candidates(&Fixed::default()).unwrap().len(), 2);
    }
}
