//! `bulkhead lock`: resolve and bake packages, start every server once, list what it offers, show it, ask, and write
//! `bulkhead.lock`.

use crate::app::{Options, configuration, lock_path, pins, shown};
use crate::compartment::Engine;
use crate::config::env::{Environment, engine_candidates};
use crate::config::{Config, Server};
use crate::error::{Class, Exit, Fault};
use crate::route::lock::Lock;

use super::print;

pub mod accept;
pub mod survey;

use accept::{Accepted, Asking, Offered};
use survey::{Sources, Survey, survey};

/// What `bulkhead lock` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers; the others keep what they have in the lock
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Look for newer versions, too, of what is locked already
    #[arg(long)]
    update: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Locks servers. Those that fail leave the others done, and the exit code says that something failed.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let config = configuration(&options, env)?;
    let path = lock_path(&config);
    let old = Lock::read(&path)?.unwrap_or_default();
    let chosen = chosen(&config, &arguments.servers)?;
    let engine = Engine::new(engine_candidates(env));
    let sources = Sources { lock: &old, update: arguments.update };
    let Survey { found, failed } = survey(&options, env, &config, &chosen, sources, &engine).await?;
    let locked = async {
        let offered = Offered { before: &old, now: &found, names: config.gateway.names, asking: arguments.asking };
        offered.show(env);
        let gone = arguments.servers.is_empty() && old.servers.keys().any(|name| config.server(name).is_none());
        if found.is_empty() || (offered.is_unchanged() && !gone) {
            return Ok((!found.is_empty()).then(|| format!("nothing has changed: {}", servers(found.len()))));
        }
        let Accepted(names) = offered.ask("write the lock")?;
        offered.record(&options, env, &config, &names).await?;
        let accepted = || found.iter().filter(|(name, _)| names.contains(*name)).map(|(n, s)| (n.clone(), s.clone()));
        let pins = pins(&options, env, &config)?;
        // Others keep what was approved before, as far as they still exist.
        Lock::merge(&path, pins.turns(), &old, accepted(), |name| config.server(name).is_some())?;
        // Where the lock is lost, what was seen last is what holds, and not what comes next.
        pins.replace(accepted())?;
        Ok(Some(servers(names.len())))
    };
    let locked = locked.await;
    if let Ok(Some(what)) = &locked {
        print::line(&format!("{what} locked in {}", shown(&path)));
    }
    // Last of all, or it would stand far above where somebody looks.
    let exit = accept::tell_failed(&failed, "not locked");
    locked.map(|_| exit)
}

fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

/// The servers of these names, or all that are not disabled.
pub fn chosen(config: &Config, names: &[String]) -> Result<Vec<Server>, Fault> {
    if let Some(unknown) = names.iter().find(|n| config.server(n).is_none()) {
        return Err(Fault::new(Class::Unknown, format!("there is no server {unknown:?} in {}", shown(&config.path))));
    }
    let named = |s: &&Server| names.iter().any(|n| n == s.name.as_str());
    if let Some(disabled) = config.servers.iter().filter(named).find(|s| s.disabled.is_some()) {
        let why = disabled.disabled.clone().unwrap_or_default();
        return Err(Fault::new(Class::Unavailable, format!("server {} is disabled: {why}", disabled.name)));
    }
    let wanted = |s: &&Server| names.is_empty() || names.iter().any(|n| n == s.name.as_str());
    Ok(config.servers.iter().filter(wanted).filter(|s| s.disabled.is_none()).cloned().collect())
}
