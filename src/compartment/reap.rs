//! What gateways that are gone left behind: found by label, removed by id. Touches nothing of the living, and nothing
//! of which it cannot be said whether its owner lives.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use bollard::errors::Error;
use bollard::models::ContainerSummaryStateEnum as State;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};

use crate::error::Fault;

use super::Engine;
use super::engine::{CALL, is_missing};
use super::owner::{Life, Owner, ROLE};

/// How long another gateway's removal is left alone before it is asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// A container that was made that long ago will not be started any more.
const STALE: Duration = Duration::from_secs(3600);

/// What was done.
#[derive(Debug, Default)]
pub struct Reaped {
    /// Containers of dead gateways, removed.
    pub removed: Vec<String>,
    /// Containers of gateways that may live elsewhere, left alone.
    pub left: Vec<String>,
}

/// A container of ours at the engine.
struct Found {
    id: String,
    life: Option<Life>,
    /// Whether it does not run, and will not any more.
    idle: bool,
    /// Short id and server, for people.
    shown: String,
}

impl Found {
    /// Whether nobody can want it any more. No container runs on over a reboot of its engine: one that does, and whose
    /// gateway is of another boot than ours, may well be in use by a machine that calls itself like this one.
    fn is_left_over(&self) -> bool {
        match self.life {
            Some(Life::Dead) => true,
            Some(Life::Earlier) => self.idle,
            Some(Life::Alive | Life::Elsewhere) | None => false,
        }
    }
}

/// One that was made and not started is on its way, unless that was long ago. A state that is not told may be any.
fn is_idle(state: Option<State>, made: Option<i64>) -> bool {
    let age = || {
        let made = UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(made?).ok()?))?;
        made.elapsed().ok()
    };
    match state {
        Some(State::EXITED | State::DEAD) => true,
        Some(State::CREATED) => age().is_some_and(|age| age > STALE),
        _ => false,
    }
}

async fn find(engine: &Engine, me: &Owner) -> Result<Vec<Found>, Fault> {
    let docker = engine.docker().await?;
    let filters = HashMap::from([("label".to_owned(), vec![ROLE.to_owned()])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
    let all = engine.call("list containers", CALL, docker.list_containers(Some(options))).await?;
    let found = all.into_iter().filter_map(|container| {
        let (id, labels) = (container.id?, container.labels.unwrap_or_default());
        let server = labels.get(super::spec::SERVER).cloned().unwrap_or_default();
        let shown = format!("{id:.12} ({server})");
        let idle = is_idle(container.state, container.created);
        Some(Found { life: Owner::from_labels(&labels).map(|owner| owner.life(me)), idle, id, shown })
    });
    Ok(found.collect())
}

/// What [`reap`] would remove.
pub async fn leftovers(engine: &Engine, me: &Owner) -> Result<Vec<String>, Fault> {
    let found = find(engine, me).await?;
    Ok(found.into_iter().filter(Found::is_left_over).map(|c| c.shown).collect())
}

/// Removes the containers whose gateway is dead. One that cannot be removed does not keep the others.
pub async fn reap(engine: &Engine, me: &Owner) -> Result<Reaped, Fault> {
    let mut reaped = Reaped::default();
    let mut failed = None;
    for container in find(engine, me).await? {
        if container.is_left_over() {
            match remove(engine, &container.id).await {
                Ok(()) => reaped.removed.push(container.shown),
                Err(fault) => failed = Some(fault),
            }
        } else if container.life != Some(Life::Alive) {
            reaped.left.push(container.shown);
        }
    }
    failed.map_or(Ok(reaped), Err)
}

/// Removes a container and sees that it is gone, also where another gateway is at it.
async fn remove(engine: &Engine, id: &str) -> Result<(), Fault> {
    let docker = engine.docker().await?;
    let removal = async {
        loop {
            let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
            match docker.remove_container(id, Some(options)).await {
                Err(error) if is_missing(&error) => return Ok(()),
                Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                    tokio::time::sleep(AGAIN).await;
                }
                other => return other,
            }
        }
    };
    engine.call("remove a container", CALL, removal).await
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_may_be_in_use_somewhere_is_not_left_over() {
        let is = |life, idle| Found { id: "c".into(), life, idle, shown: "c".into() }.is_left_over();
        assert!(is(Some(Life::Dead), false) && is(Some(Life::Dead), true) && is(Some(Life::Earlier), true));
        for life in [Some(Life::Alive), Some(Life::Elsewhere), None] {
            assert!(!is(life, false) && !is(life, true), "{life:?}");
        }
        assert!(!is(Some(Life::Earlier), false));
    }

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
