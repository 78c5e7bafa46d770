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

use super::lock::accept::{Accepted, Asking, Offered, tell_failed};
use super::lock::chosen;
use super::lock::survey::{Sources, Survey, survey};
use super::print;

/// What `bulkhead approve` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers; otherwise all that were approved before, or have to be
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    #[command(flatten)]
    asking: Asking,
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
    let Survey { found, failed } = survey(&options, env, &config, &chosen, sources, &engine).await?;
    // Where approval is explicit, what was pinned was approved by nobody.
    let mut before = if explicit { Lock::default() } else { pinned.clone() };
    before.servers.extend(lock.servers.clone());
    let changed = |(name, now): &(&String, &LockedServer)| before.servers.get(*name) != Some(*now);
    let news: BTreeMap<String, LockedServer> =
        found.iter().filter(changed).map(|(name, now)| (name.clone(), now.clone())).collect();
    let approved = async {
        if news.is_empty() {
            return Ok((!found.is_empty()).then(|| "nothing has changed since approval".to_owned()));
        }
        let offered = Offered { before: &before, now: &news, names: config.gateway.names, asking: arguments.asking };
        offered.show(env);
        let Accepted(names) = offered.ask("approve it")?;
        offered.record(&options, env, &config, &names).await?;
        let accepted = || news.iter().filter(|(name, _)| names.contains(*name)).map(|(n, s)| (n.clone(), s.clone()));
        // What nobody has locked stays pinned, so that a lock appears only where somebody has asked for one.
        let locked: Vec<_> = accepted().filter(|(name, _)| lock.servers.contains_key(name) || explicit).collect();
        let place = if locked.len() < names.len() { String::new() } else { format!(" in {}", shown(&path)) };
        if !locked.is_empty() {
            Lock::merge(&path, pins.turns(), &lock, locked, |_| true)?;
        }
        pins.replace(accepted())?;
        Ok(Some(format!("{} approved{place}", names.into_iter().collect::<Vec<_>>().join(", "))))
    };
    let approved = approved.await;
    if let Ok(Some(what)) = &approved {
        print::line(what);
    }
    let exit = tell_failed(&failed, "not approved");
    approved.map(|_| exit)
}
