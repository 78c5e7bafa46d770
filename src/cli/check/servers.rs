//! Whether each server could run: its lock, its image, and the images that all of them need.

use crate::app::lock_path;
use crate::compartment::fence::FENCE_IMAGE;
use crate::compartment::guard::GUARD_IMAGE;
use crate::compartment::{Engine, dedicated};
use crate::config::{Config, Network, Run, Server};
use crate::error::Exit;
use crate::route::lock::{Lock, LockedServer};

use super::{Finding, loopback};

/// Looks at the images of ours.
pub(super) async fn images(engine: &Engine, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let has = |asks: fn(&Network) -> bool| {
        config.is_some_and(|config| config.servers.iter().any(|server| asks(&server.network)))
    };
    let guard = has(|network| matches!(network, Network::Guarded { .. })).then_some(GUARD_IMAGE);
    let fence = has(|network| matches!(network, Network::Bridge)).then_some(FENCE_IMAGE);
    for name in ["bulkhead/probe", "bulkhead/runtime"].into_iter().chain(guard).chain(fence) {
        findings.push(match engine.image(name).await {
            Ok(image) => Finding::fine(format!("image {name}"), format!("{:.19}", image.id)),
            Err(fault) => Finding::wrong(format!("image {name}"), fault.inward, "run scripts/setup", Exit::Isolation),
        });
    }
}

/// Looks at every server of the configuration.
pub(super) async fn look(engine: &Engine, answers: bool, config: &Config, findings: &mut Vec<Finding>) {
    let lock = match Lock::read(&lock_path(config)) {
        Ok(lock) => lock.unwrap_or_default(),
        Err(fault) => {
            findings.push(Finding::wrong("lock", fault.inward, "run: bulkhead lock", Exit::Usage));
            return;
        }
    };
    for server in &config.servers {
        let locked = lock.servers.get(server.name.as_str());
        findings.extend(look_at(engine, answers, config, server, locked).await);
        findings.extend(loopback::look_at(server));
        findings.extend(on_a_bridge(server));
    }
}

/// What it means to be on a bridge.
fn on_a_bridge(server: &Server) -> Option<Finding> {
    let says = "can reach the internet: any public IPv4 address and port, which nobody decides on or records; not the host \
                (where the engine is on another machine: but by its public addresses), other containers, private networks \
                or cloud metadata; name servers are the exception, and what they are is in the status";
    let has = server.network == Network::Bridge && server.disabled.is_none();
    has.then(|| Finding::note(format!("server {}", server.name), says, None))
}

async fn look_at(
    engine: &Engine,
    answers: bool,
    config: &Config,
    server: &Server,
    locked: Option<&LockedServer>,
) -> Option<Finding> {
    let name = server.name.as_str();
    let what = format!("server {name}");
    if let Some(why) = &server.disabled {
        return Some(Finding::wrong(what, format!("disabled: {why}"), "give what is missing", Exit::Usage));
    }
    let lock = format!("run: bulkhead lock {name}");
    let current = locked.filter(|locked| locked.config == server.digest);
    let approved = current.and_then(|locked| locked.image.as_ref());
    let (reference, tag) = match &server.run {
        Run::Unisolated { reason, .. } => {
            let says = format!("runs on the host, unisolated: {}", reason.as_str());
            return Some(Finding::note(what, says, None));
        }
        Run::Package(_) if current.is_none() => {
            let says =
                if locked.is_some() { "its configuration has changed since it was locked" } else { "not locked" };
            return Some(Finding::wrong(what, says, lock, Exit::Unavailable));
        }
        Run::Image { reference, .. } => (approved.unwrap_or(reference), Some(reference)),
        Run::Package(_) | Run::Remote { .. } => (approved?, None),
    };
    if !answers {
        return None;
    }
    let image = match engine.image(reference).await {
        Ok(image) => image,
        Err(fault) => {
            let mend = match tag {
                Some(tag) => format!("{}, then: bulkhead lock {name}", how_to_get(tag, config)),
                None => lock,
            };
            return Some(Finding::wrong(what, fault.inward, mend, Exit::Isolation));
        }
    };
    // What a name stands for may change; what was approved does not.
    if let (Some(tag), Some(approved)) = (tag, approved)
        && let Ok(now) = engine.image(tag).await
        && now.id != image.id
    {
        let says = format!("runs {:.19} as locked; {tag} has become {:.19} since", approved, now.id);
        return Some(Finding::note(what, says, Some(format!("to take the new one, {lock}"))));
    }
    Some(Finding::fine(what, format!("image {:.19}", image.id)))
}

/// How an image comes to be on the engine.
fn how_to_get(tag: &str, config: &Config) -> String {
    match dedicated::named_by(tag, &dedicated::beside(&config.path)) {
        Some(name) => format!("run: bulkhead image build {name}"),
        None => format!("build or pull {tag}"),
    }
}
