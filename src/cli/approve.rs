//! `bulkhead approve`: look at servers anew, show what has changed since somebody approved them, and accept it.
//!
//! Nothing is resolved or updated: what runs is what was baked, or what the image is called now. A server that is in the
//! lock is approved there; one that is pinned since its first use, there.

use std::collections::BTreeMap;

use crate::app::{Options, configuration, lock_path, pins, shown};
use crate::compartment::Engine;
use crate::config::env::{Environment, engine_candidates};
use crate::config::{Approval, Run, Server};
use crate::error::{Class, Exit, Fault};
use crate::route::lock::{Lock, LockedServer};

use super::lock::accept::{Accepted, Offered};
use super::lock::chosen;
use super::lock::survey::{Sources, survey};
use super::print;

/// What `bulkhead approve` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers; otherwise all that were approved before, or have to be
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Accept without asking
    #[arg(long)]
    yes: bool,
    /// Show all of every difference
    #[arg(long)]
    full: bool,
}

/// Approves servers. Those that fail leave the others done, and the exit code says that something failed.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let config = configuration(&options, env)?;
    let path = lock_path(&config);
    let lock = Lock::read(&path)?.unwrap_or_default();
    let pins = pins(&options, env, &config)?;
    let pinned = pins.all();
    let explicit = config.gateway.approval == Approval::Explicit;
    let known = |server: &Server| {
        let name = server.name.as_str();
        lock.servers.contains_key(name) || pinned.servers.contains_key(name) || explicit
    };
    let mut chosen = chosen(&config, &arguments.servers)?;
    chosen.retain(|server| !arguments.servers.is_empty() || known(server));
    let unbaked =
        |server: &&Server| matches!(server.run, Run::Package(_)) && !lock.servers.contains_key(server.name.as_str());
    let told = |server: &Server| format!("server {0} is not locked yet; run: bulkhead lock {0}", server.name);
    if let Some(server) = chosen.iter().find(unbaked).filter(|_| !arguments.servers.is_empty()) {
        return Err(Fault::new(Class::Usage, told(server)));
    }
    chosen.iter().filter(unbaked).for_each(|server| tracing::warn!("{}", told(server)));
    chosen.retain(|server| !unbaked(&server));
    if chosen.is_empty() {
        print::line("nothing was approved before, so nothing can have changed; to pin all servers: bulkhead lock");
        return Ok(Exit::Fine);
    }
    let engine = Engine::new(engine_candidates(env));
    let sources = Sources { lock: &lock, update: false };
    let survey = survey(&options, env, &config, &chosen, sources, &engine).await?;
    for (name, fault) in &survey.failed {
        tracing::error!(server = %name, "not approved: {}", fault.inward);
    }
    let failed = survey.failed.values().next().map_or(Exit::Fine, |first: &Fault| first.class.exit());
    // Where approval is explicit, what was pinned was approved by nobody.
    let mut before = if explicit { Lock::default() } else { pinned.clone() };
    before.servers.extend(lock.servers.clone());
    let changed = |(name, now): &(&String, &LockedServer)| before.servers.get(*name) != Some(*now);
    let news: BTreeMap<String, LockedServer> =
        survey.found.iter().filter(changed).map(|(n, s)| (n.clone(), s.clone())).collect();
    if news.is_empty() {
        if !survey.found.is_empty() {
            print::line("nothing has changed since approval");
        }
        return Ok(failed);
    }
    let offered = Offered { before: &before, now: &news, names: config.gateway.names, full: arguments.full };
    offered.show(env, arguments.yes);
    let Accepted(names) = offered.ask(arguments.yes, "approve it")?;
    offered.record(&options, env, &config, &names).await?;
    // What nobody has locked stays pinned, so that a lock appears only where somebody has asked for one.
    let to_lock = |name: &&String| lock.servers.contains_key(*name) || explicit;
    let accepted: Vec<(String, LockedServer)> =
        names.iter().filter_map(|name| Some((name.clone(), news.get(name)?.clone()))).collect();
    let locked: Vec<_> = accepted.iter().filter(|(name, _)| to_lock(&name)).cloned().collect();
    if !locked.is_empty() {
        pins.write_lock(&path, &lock, locked, |_| true)?;
    }
    pins.replace(accepted)?;
    let of =
        |in_lock: bool| names.iter().filter(|name| to_lock(name) == in_lock).cloned().collect::<Vec<_>>().join(", ");
    for (who, place) in [(of(true), format!(" in {}", shown(&path))), (of(false), String::new())] {
        if !who.is_empty() {
            print::line(&format!("{who} approved{place}"));
        }
    }
    Ok(failed)
}
