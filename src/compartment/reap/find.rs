//! What of ours is at the engine, kind by kind, with what its labels tell of it. Changes nothing.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::ContainerSummaryStateEnum as State;
use bollard::query_parameters::{ListContainersOptions, ListImagesOptions, ListNetworksOptions, ListVolumesOptions};

use crate::error::Fault;

use super::super::Engine;
use super::super::bake::LABEL_BAKE;
use super::super::engine::CALL;
use super::super::lease::{Lease, Terms};
use super::super::owner::{Owner, ROLE};
use super::super::spec::SERVER;
use super::super::volume::KEEP;
use super::verdict::{Found, Item, Kind};

/// A container that was made that long ago will not be started any more.
const STALE: Duration = Duration::from_secs(3600);

type Labels = HashMap<String, String>;

/// Everything of a kind that somebody of ours made and that is not meant to stay.
pub(super) async fn all(engine: &Engine, me: &Owner, kind: Kind) -> Result<Vec<Found>, Fault> {
    match kind {
        Kind::Container => containers(engine, me).await,
        Kind::Network => networks(engine, me).await,
        Kind::Volume => volumes(engine, me).await,
        Kind::Image => images(engine, me).await,
    }
}

async fn containers(engine: &Engine, me: &Owner) -> Result<Vec<Found>, Fault> {
    let docker = engine.docker().await?;
    let options = ListContainersOptions { all: true, filters: labelled(ROLE), ..Default::default() };
    let all = engine.call("list containers", CALL, docker.list_containers(Some(options))).await?;
    let found = all.into_iter().filter_map(|container| {
        let (id, labels) = (container.id?, container.labels.unwrap_or_default());
        let idle = is_idle(container.state, container.created);
        Some(Found { idle, ..found(me, Kind::Container, id, server(&labels), &labels) })
    });
    Ok(found.collect())
}

async fn networks(engine: &Engine, me: &Owner) -> Result<Vec<Found>, Fault> {
    let docker = engine.docker().await?;
    let options = ListNetworksOptions { filters: labelled(ROLE) };
    let all = engine.call("list networks", CALL, docker.list_networks(Some(options))).await?;
    let found = all.into_iter().filter_map(|network| {
        let (id, labels) = (network.id?, network.labels.unwrap_or_default());
        Some(found(me, Kind::Network, id, network.name.unwrap_or_default(), &labels))
    });
    Ok(found.collect())
}

async fn volumes(engine: &Engine, me: &Owner) -> Result<Vec<Found>, Fault> {
    let docker = engine.docker().await?;
    let options = ListVolumesOptions { filters: labelled(&format!("{KEEP}=no")) };
    let all = engine.call("list volumes", CALL, docker.list_volumes(Some(options))).await?;
    // State that is meant to stay must not hang on one engine's understanding of a filter.
    let passing = |labels: &Labels| labels.get(KEEP).is_some_and(|keep| keep == "no") && labels.contains_key(ROLE);
    let all = all.volumes.unwrap_or_default().into_iter().filter(|volume| passing(&volume.labels));
    Ok(all.map(|volume| found(me, Kind::Volume, volume.name, server(&volume.labels), &volume.labels)).collect())
}

/// Only those on the way to a server's image: that one stays.
async fn images(engine: &Engine, me: &Owner) -> Result<Vec<Found>, Fault> {
    let docker = engine.docker().await?;
    let options = ListImagesOptions { filters: labelled(LABEL_BAKE), ..Default::default() };
    let all = engine.call("list images", CALL, docker.list_images(Some(options))).await?;
    let all = all.into_iter().filter(|image| image.labels.contains_key(LABEL_BAKE));
    let found = all.map(|image| {
        let tag = image.repo_tags.into_iter().next().unwrap_or_else(|| "no tag".to_owned());
        let found = found(me, Kind::Image, image.id, tag, &image.labels);
        // Earlier versions told nothing but the bake.
        let lease = found.lease.or_else(|| Some(Lease::new(moment(image.created)?, Terms::default().work)));
        Found { lease, ..found }
    });
    Ok(found.collect())
}

fn labelled(label: &str) -> Option<HashMap<String, Vec<String>>> {
    Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]))
}

fn server(labels: &Labels) -> String {
    labels.get(SERVER).cloned().unwrap_or_default()
}

fn found(me: &Owner, kind: Kind, id: String, name: String, labels: &Labels) -> Found {
    let life = Owner::from_labels(labels).map(|owner| owner.life(me));
    Found { item: Item { kind, id, name }, life, lease: Lease::from_labels(labels), idle: false }
}

/// The engine's seconds.
fn moment(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// One that was made and not started is on its way, unless that was long ago. A state that is not told may be any.
fn is_idle(state: Option<State>, made: Option<i64>) -> bool {
    let age = || moment(made?)?.elapsed().ok();
    match state {
        Some(State::EXITED | State::DEAD) => true,
        Some(State::CREATED) => age().is_some_and(|age| age > STALE),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_or_is_about_to_is_not_idle() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        for state in [State::RUNNING, State::PAUSED, State::RESTARTING] {
            assert!(!is_idle(Some(state), Some(0)), "{state:?}");
        }
        assert!(!is_idle(None, Some(0)) && is_idle(Some(State::EXITED), Some(now)) && is_idle(Some(State::DEAD), None));
        assert!(is_idle(Some(State::CREATED), Some(now - 4000)));
        for made in [Some(now), Some(now + 4000), Some(-1), None] {
            assert!(!is_idle(Some(State::CREATED), made), "{made:?}");
        }
    }
}
