//! Whether each server could run: its lock, its image, and the images that all of them need.

use crate::app::lock_path;
use crate::compartment::fence::FENCE_IMAGE;
use crate::compartment::guard::GUARD_IMAGE;
use crate::compartment::{Engine, dedicated};
use crate::config::{Approval, Config, Network, Run, Server};
use crate::error::Exit;
use crate::route::lock::pins::Pins;
use crate::route::lock::{Lock, LockedServer, differences};

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
pub(super) async fn look(engine: &Engine, answers: bool, config: &Config, pins: &Pins, findings: &mut Vec<Finding>) {
    let lock = match Lock::read(&lock_path(config)) {
        Ok(lock) => lock.unwrap_or_default(),
        Err(fault) => {
            let mend = "take the file that was approved, or move this one away and run: bulkhead lock";
            findings.push(Finding::wrong("lock", fault.inward, mend, Exit::Usage));
            return;
        }
    };
    for server in &config.servers {
        let locked = lock.servers.get(server.name.as_str());
        let pinned = pins.get(server.name.as_str()).filter(|_| locked.is_none());
        findings.extend(look_at(engine, answers, config, server, locked.or(pinned.as_ref()), locked.is_some()).await);
        findings.extend(loopback::look_at(server));
        findings.extend(on_a_bridge(server));
    }
    for name in lock.servers.keys().filter(|name| config.server(name).is_none()) {
        let says = "is in the lock, and not in the configuration";
        let mend = "to take it out, run: bulkhead lock".to_owned();
        findings.push(Finding::note(format!("server {name}"), says, Some(mend)));
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

/// Looks at one server; `known` is what was approved of it, in the lock or else since its first use.
async fn look_at(
    engine: &Engine,
    answers: bool,
    config: &Config,
    server: &Server,
    known: Option<&LockedServer>,
    locked: bool,
) -> Option<Finding> {
    let name = server.name.as_str();
    let what = format!("server {name}");
    if let Some(why) = &server.disabled {
        return Some(Finding::wrong(what, format!("disabled: {why}"), "give what is missing", Exit::Usage));
    }
    let lock = format!("run: bulkhead lock {name}");
    let approve = format!("run: bulkhead approve {name}");
    let package = matches!(server.run, Run::Package(_));
    if known.is_none() && package {
        return Some(Finding::wrong(what, "not locked", lock, Exit::Unknown));
    }
    if known.is_none() && config.gateway.approval == Approval::Explicit {
        return Some(Finding::wrong(what, "nobody has approved it", approve, Exit::Unknown));
    }
    if let Some(known) = known.filter(|known| locked && known.config != server.digest) {
        let differs = differences(&known.settings, &server.settings);
        let says = format!("its configuration has changed since it was approved ({differs})");
        return Some(Finding::wrong(what, says, approve, Exit::Unknown));
    }
    let (reference, tag) = match &server.run {
        Run::Unisolated { reason, .. } => {
            let says = format!("runs on the host, unisolated: {}", reason.as_str());
            return Some(Finding::note(what, says, None));
        }
        Run::Image { reference, .. } => (reference, Some(reference)),
        Run::Package(_) | Run::Remote { .. } => (known?.image.as_ref()?, None),
    };
    if !answers {
        return None;
    }
    let image = match engine.image(reference).await {
        Ok(image) => image,
        Err(fault) => {
            let mend = match (tag, known) {
                (Some(tag), None) => how_to_get(tag, config),
                // Made anew it is another one, whatever is in it.
                (Some(tag), Some(_)) => format!("{}, then: bulkhead approve {name}", how_to_get(tag, config)),
                (None, _) => lock,
            };
            return Some(Finding::wrong(what, fault.inward, mend, Exit::Isolation));
        }
    };
    // What a name stands for may change; what was approved does not.
    let same = known.is_some_and(|known| locked || known.settings.get("reference") == server.settings.get("reference"));
    if let Some(approved) = known.and_then(|known| known.image.as_ref()).filter(|id| same && **id != image.id) {
        let says = format!("{reference} was {approved:.19} when it was approved, and is {:.19} now", image.id);
        return Some(Finding::wrong(what, says, approve, Exit::Unknown));
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
