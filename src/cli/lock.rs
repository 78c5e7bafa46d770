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

use accept::{Accepted, Offered};
use survey::{Sources, survey};

/// What `bulkhead lock` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers; the others keep what they have in the lock
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Accept without asking
    #[arg(long)]
    yes: bool,
    /// Look for newer versions, too, of what is locked already
    #[arg(long)]
    update: bool,
    /// Show all of every difference
    #[arg(long)]
    full: bool,
}

/// Locks servers. Those that fail leave the others done, and the exit code says that something failed.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let config = configuration(&options, env)?;
    let path = lock_path(&config);
    let old = Lock::read(&path)?.unwrap_or_default();
    let chosen = chosen(&config, &arguments.servers)?;
    let engine = Engine::new(engine_candidates(env));
    let sources = Sources { lock: &old, update: arguments.update };
    let survey = survey(&options, env, &config, &chosen, sources, &engine).await?;
    let failures: Vec<String> =
        survey.failed.iter().map(|(n, fault)| format!("{n} is not locked: {}", fault.inward)).collect();
    // Last of all, or it would stand far above where somebody looks.
    let _told = Told(failures);
    let failed = survey.failed.into_values().next().map_or(Exit::Fine, |first: Fault| first.class.exit());
    if survey.found.is_empty() {
        return Ok(failed);
    }
    let offered = Offered { before: &old, now: &survey.found, names: config.gateway.names, full: arguments.full };
    offered.show(env, arguments.yes);
    let count = survey.found.len();
    let gone = arguments.servers.is_empty() && old.servers.keys().any(|name| config.server(name).is_none());
    if offered.is_unchanged() && !gone {
        print::line(&format!("nothing has changed: {} locked in {}", servers(count), shown(&path)));
        return Ok(failed);
    }
    let Accepted(names) = offered.ask(arguments.yes, "write the lock")?;
    offered.record(&options, env, &config, &names).await?;
    let accepted = survey.found.iter().filter(|(name, _)| names.contains(*name));
    let accepted = accepted.map(|(name, server)| (name.clone(), server.clone()));
    let pins = pins(&options, env, &config)?;
    // Others keep what was approved before, as far as they still exist.
    pins.write_lock(&path, &old, accepted, |name| config.server(name).is_some())?;
    // Where the lock is lost, what was seen last is what holds, and not what comes next.
    let seen = survey.found.into_iter().filter(|(name, _)| names.contains(name));
    pins.replace(seen)?;
    print::line(&format!("{} locked in {}", servers(names.len()), shown(&path)));
    Ok(failed)
}

/// Failures that are told once all else is.
struct Told(Vec<String>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.iter().for_each(|failure| tracing::error!("{failure}"));
    }
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
