//! Whether the gateways that run have the configuration that is in the file.

use std::path::Path;

use serde_json::Value;

use crate::app::control;
use crate::config::Config;

use super::Finding;

/// Asks those of the state directory.
pub(super) async fn look(state: &Path, config: &Config) -> Vec<Finding> {
    control::ask_all(state).await.iter().filter_map(|status| look_at(status, config)).collect()
}

fn look_at(status: &Value, config: &Config) -> Option<Finding> {
    let here = std::path::absolute(&config.path).ok()?;
    let same_file = status["config"].as_str().is_some_and(|path| Path::new(path) == here);
    if !same_file || status["config_digest"] == config.digest.as_str() {
        return None;
    }
    let pid = &status["pid"];
    let mut says = "runs with the configuration as it was before it was changed".to_owned();
    let reload = &status["reload"];
    // Times of that form stand in the order of their texts.
    if let Some(time) = reload["refused"]["time"].as_str().filter(|time| reload["last"].as_str() < Some(time)) {
        let reason = reload["refused"]["reason"].as_str().unwrap_or_default();
        says.push_str(&format!("; a reload was refused {time}:\n{reason}"));
    }
    Some(Finding::note(format!("gateway {pid}"), says, Some(format!("to have it take the new one: kill -HUP {pid}"))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::env::Fixed;
    use crate::config::resolve::load;

    #[test]
    fn a_gateway_is_named_that_runs_with_another_configuration_than_the_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulkhead.toml");
        std::fs::write(&path, "").unwrap();
        let config = load(&path, &Fixed::default()).unwrap();
        let status = |digest: &str, at: &Path| json!({ "pid": 7, "config": at, "config_digest": digest });
        assert!(look_at(&status(&config.digest, &path), &config).is_none());
        assert!(look_at(&status("other", Path::new("/other.toml")), &config).is_none());
        let found = look_at(&status("other", &path), &config).unwrap();
        assert!(found.fine && found.mend.as_deref() == Some("to have it take the new one: kill -HUP 7"), "{found:?}");
        let mut refused = status("other", &path);
        refused["reload"] = json!({ "last": null, "refused": { "time": "2027-01-01T00:00:00.000Z", "reason": "why" } });
        assert!(look_at(&refused, &config).unwrap().says.ends_with(":\nwhy"));
        refused["reload"]["last"] = json!("2027-01-01T00:00:01.000Z");
        assert!(!look_at(&refused, &config).unwrap().says.contains("refused"));
    }
}
