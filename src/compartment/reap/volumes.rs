//! Volumes that servers keep state and caches in: which of them no configuration has a server for any more. Knows no
//! configuration; it is told what is wanted.
//!
//! State is people's data. So a volume goes only where its labels say that this state directory made it, and for which
//! configuration; what says nothing, or names what is not known here, stays.

use std::collections::HashMap;

use bollard::models::Volume as Told;
use bollard::query_parameters::{ListContainersOptions, ListVolumesOptions, RemoveVolumeOptions};

use crate::error::Fault;

use super::super::Engine;
use super::super::engine::CALL;
use super::super::owner::ROLE;
use super::super::spec::SERVER;
use super::super::volume::KEEP;
use super::remove::{Gone, once};
use super::stock::{Rules, moment};
use super::verdict::{Item, Kind};
use super::wanted::{KEEPER, SCOPE, Wanted, server_key};

/// What the names of those begin with that are meant to stay.
const KINDS: [&str; 2] = ["bulkhead-state-", "bulkhead-cache-"];

/// A volume of ours that is meant to stay.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub item: Item,
    /// When it was made, or what is in it last changed, as engines tell the one for the other.
    pub since: Option<std::time::SystemTime>,
    needed: Option<String>,
    /// For which configuration it says that it was made.
    pub scope: Option<String>,
    /// For which configuration and server it was, where that is known.
    pub of: Option<String>,
}

impl Volume {
    /// Why it stays, if it does.
    pub fn stays(&self, rules: &Rules) -> Option<String> {
        self.needed.clone().or_else(|| rules.too_young(self.since))
    }
}

/// Every volume that is meant to stay, or only that one.
pub(super) async fn look(engine: &Engine, wanted: &Wanted, only: Option<&str>) -> Result<Vec<Volume>, Fault> {
    let docker = engine.docker().await?;
    let filters = HashMap::from([("label".to_owned(), vec![format!("{ROLE}=volume")])]);
    let listed = docker.list_volumes(Some(ListVolumesOptions { filters: Some(filters) }));
    let all = engine.call("list volumes", CALL, listed).await?.volumes.unwrap_or_default();
    let used = used(engine).await?;
    let stays = all.into_iter().filter(is_meant_to_stay).filter(|told| only.is_none_or(|only| told.name == only));
    let mut found: Vec<Volume> = stays.map(|told| volume(told, wanted, &used)).collect();
    found.sort_by(|a, b| a.item.id.cmp(&b.item.id));
    Ok(found)
}

/// Volumes of containers, running or not, with one container each.
async fn used(engine: &Engine) -> Result<HashMap<String, String>, Fault> {
    let docker = engine.docker().await?;
    let options = ListContainersOptions { all: true, ..Default::default() };
    let all = engine.call("list containers", CALL, docker.list_containers(Some(options))).await?;
    let mut used = HashMap::new();
    for container in all {
        let names = container.names.unwrap_or_default();
        let name = names.first().map_or_else(String::new, |name| name.trim_start_matches('/').to_owned());
        for mount in container.mounts.unwrap_or_default() {
            // Only volumes have names.
            if let Some(volume) = mount.name {
                used.insert(volume, name.clone());
            }
        }
    }
    Ok(used)
}

/// What is not meant to stay has an owner, and goes with it.
fn is_meant_to_stay(told: &Told) -> bool {
    told.labels.get(ROLE).is_some_and(|role| role == "volume")
        && !told.labels.contains_key(KEEP)
        && KINDS.iter().any(|kind| told.name.starts_with(kind))
}

fn volume(told: Told, wanted: &Wanted, used: &HashMap<String, String>) -> Volume {
    let server = told.labels.get(SERVER).cloned().unwrap_or_default();
    let scope = told.labels.get(SCOPE).and_then(|scope| wanted.scopes.get(scope));
    let label = |name: &str| told.labels.get(name).map(String::as_str);
    let needed = if let Some(container) = used.get(&told.name) {
        Some(format!("in use by container {container}"))
    } else if told.driver != "local" || !told.options.is_empty() {
        Some("the gateway did not make it".to_owned())
    } else {
        match (label(KEEPER), scope) {
            (None, _) => Some("it does not say which state directory made it".to_owned()),
            (Some(keeper), _) if keeper != wanted.keeper => Some("another state directory made it".to_owned()),
            (_, None) => Some("its configuration is not known to this state directory".to_owned()),
            (_, Some(scope)) if server.is_empty() || scope.servers.contains(&server_key(&server)) => {
                Some(format!("server {server} of {} has it", scope.place))
            }
            _ => None,
        }
    };
    let of = scope.map(|scope| format!("server {server} of {}", scope.place));
    let since = told.created_at.as_deref().and_then(moment);
    let scope = label(SCOPE).map(str::to_owned);
    Volume { item: Item { kind: Kind::Volume, id: told.name, name: server }, since, needed, scope, of }
}

/// Removes a volume; the engine keeps one that a container has, running or not.
pub(super) async fn remove(engine: &Engine, name: &str) -> Result<Gone, Fault> {
    let docker = engine.docker().await?;
    once(engine, Kind::Volume, docker.remove_volume(name, None::<RemoveVolumeOptions>)).await
}

#[cfg(test)]
mod tests {
    use super::super::wanted::Scope;
    use super::*;

    fn told(name: &str, labels: &[(&str, &str)]) -> Told {
        let labels = [(ROLE, "volume"), (SERVER, "Notes (dev)")].iter().chain(labels);
        let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Told { name: name.into(), driver: "local".into(), labels, ..Default::default() }
    }

    fn wanted(servers: &[&str]) -> Wanted {
        let servers = servers.iter().map(|name| server_key(name)).collect();
        let scope = Scope { place: "/c".into(), servers };
        Wanted { keeper: "me".into(), scopes: [("1".to_owned(), scope)].into(), ..Wanted::default() }
    }

    #[test]
    fn state_goes_only_where_its_own_configuration_has_no_such_server_any_more() {
        let why = |labels: &[(&str, &str)], servers: &[&str]| {
            volume(told("bulkhead-state-x", labels), &wanted(servers), &HashMap::new()).needed.unwrap_or_default()
        };
        let own = [(KEEPER, "me"), (SCOPE, "1")];
        assert_eq!(why(&own, &["other"]), "");
        assert_eq!(why(&own, &["Notes (dev)"]), "server Notes (dev) of /c has it");
        // One that was renamed to what has the same volume.
        assert!(why(&own, &["notes dev"]).contains("has it") || server_key("notes dev") != server_key("Notes (dev)"));
        assert_eq!(why(&[], &[]), "it does not say which state directory made it");
        assert_eq!(why(&[(KEEPER, "you"), (SCOPE, "1")], &[]), "another state directory made it");
        for labels in [&own[..1], &[(KEEPER, "me"), (SCOPE, "2")]] {
            assert_eq!(why(labels, &[]), "its configuration is not known to this state directory");
        }
        let nobody = Wanted { keeper: String::new(), ..wanted(&[]) };
        let other = volume(told("bulkhead-state-x", &own), &nobody, &HashMap::new());
        assert_eq!(other.needed.as_deref(), Some("another state directory made it"));
    }

    #[test]
    fn what_is_used_or_foreign_or_passing_is_not_touched() {
        let own = [(KEEPER, "me"), (SCOPE, "1")];
        let used = HashMap::from([("bulkhead-state-x".to_owned(), "box".to_owned())]);
        let found = volume(told("bulkhead-state-x", &own), &wanted(&[]), &used);
        assert_eq!(found.needed.as_deref(), Some("in use by container box"));
        let elsewhere = Told { driver: "nfs".into(), ..told("bulkhead-state-x", &own) };
        let found = volume(elsewhere, &wanted(&[]), &HashMap::new());
        assert_eq!(found.needed.as_deref(), Some("the gateway did not make it"));
        assert!(is_meant_to_stay(&told("bulkhead-cache-x", &own)));
        assert!(!is_meant_to_stay(&told("bulkhead-probe-x", &own)));
        assert!(!is_meant_to_stay(&told("bulkhead-state-x", &[(KEEP, "no")])));
        assert!(!is_meant_to_stay(&Told { labels: HashMap::new(), ..told("bulkhead-state-x", &own) }));
    }
}
