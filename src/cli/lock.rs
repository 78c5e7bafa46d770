//! `bulkhead lock`: resolve and bake packages, start every server once, list its tools, show them, ask, and write
//! `bulkhead.lock`.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use futures_util::{StreamExt as _, stream};
use serde_json::value::RawValue;

use crate::app::{App, Options, configuration, lock_path, shown};
use crate::compartment::Engine;
use crate::compartment::bake::bake;
use crate::config::env::{Environment, engine_candidates};
use crate::config::{Config, Run, Runner, Server};
use crate::downstream::instance::Instance;
use crate::downstream::pool::{Basis, Entry};
use crate::error::{Class, Exit, Fault};
use crate::route::Tool;
use crate::route::lock::{Lock, LockedServer, LockedTool};
use crate::wire::text::visible;

use super::print;
use super::progress::{Bar, Bars};

/// The image that packages are baked on.
const RUNTIME: &str = "bulkhead/runtime";
/// Packages baked at the same time: more would only queue at the engine and the registry.
const AT_ONCE: usize = 3;

/// What `bulkhead lock` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers; the others keep what they have in the lock
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Accept without asking
    #[arg(long)]
    yes: bool,
}

/// The image of a server, before anybody has seen its tools.
#[derive(Debug, Default)]
struct Prepared {
    image: Option<String>,
    package: Option<String>,
    version: Option<String>,
    integrity: Option<String>,
}

/// Locks servers. Those that fail leave the others done, and the exit code says that something failed.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let config = configuration(&options, env)?;
    let path = lock_path(&config);
    let old = Lock::read(&path)?.unwrap_or_default();
    let chosen = chosen(&config, &arguments.servers)?;
    let engine = Engine::new(engine_candidates(env));
    let bars = Bars::start();
    let prepared = prepare(&engine, &chosen, &bars).await;
    bars.clear();
    let (mut ready, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for (name, outcome) in prepared {
        match outcome {
            Ok(prepared) => drop(ready.insert(name, prepared)),
            Err(fault) => drop(failed.insert(name, fault)),
        }
    }
    let mut lock = list(&options, env, &config, ready, &mut failed).await?;
    for (name, fault) in &failed {
        tracing::error!(server = %name, "not locked: {}", fault.inward);
    }
    show(&lock, &old);
    let fresh = lock.servers.len();
    if fresh > 0 {
        accepted(arguments.yes)?;
        // Servers that were not chosen, or failed this time, keep what was approved before, as far as they still exist.
        for (name, before) in old.servers {
            if config.server(&name).is_some() {
                lock.servers.entry(name).or_insert(before);
            }
        }
        lock.write(&path)?;
        let servers = if fresh == 1 { "server" } else { "servers" };
        print::line(&format!("{fresh} {servers} locked in {}", shown(&path)));
    }
    Ok(failed.into_values().next().map_or(Exit::Fine, |first: Fault| first.class.exit()))
}

fn chosen(config: &Config, names: &[String]) -> Result<Vec<Server>, Fault> {
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

/// Finds or bakes the image of every server, several at once.
async fn prepare(engine: &Engine, servers: &[Server], bars: &Bars) -> Vec<(String, Result<Prepared, Fault>)> {
    let jobs = servers.iter().map(|server| async move {
        let bar = bars.add(server.name.as_str());
        let outcome = image(engine, server, &bar).await;
        bar.done(match &outcome {
            Ok(_) => "image ready".to_owned(),
            Err(fault) => format!("failed: {}", fault.outward),
        });
        (server.name.as_str().to_owned(), outcome)
    });
    stream::iter(jobs.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await
}

async fn image(engine: &Engine, server: &Server, bar: &Bar) -> Result<Prepared, Fault> {
    match &server.run {
        Run::Package(package) => {
            let docker = engine.docker().await?;
            let baked = bake(&docker, &server.name, package, RUNTIME, &|line| bar.say(line)).await?;
            let runner = match package.runner {
                Runner::Npx => "npx",
                Runner::Uvx => "uvx",
            };
            Ok(Prepared {
                image: Some(baked.image),
                package: Some(format!("{runner}:{}", baked.name)),
                version: Some(baked.version),
                integrity: baked.integrity,
            })
        }
        Run::Image { reference, .. } => {
            Ok(Prepared { image: Some(engine.image(reference).await?.id), ..Prepared::default() })
        }
        Run::Unisolated { .. } | Run::Remote { .. } => Ok(Prepared::default()),
    }
}

/// Starts each server once in its compartment and takes down what it offers.
async fn list(
    options: &Options,
    env: &dyn Environment,
    config: &Config,
    mut ready: BTreeMap<String, Prepared>,
    failed: &mut BTreeMap<String, Fault>,
) -> Result<Lock, Fault> {
    let mut lock = Lock::default();
    let mut only = config.clone();
    only.servers.retain(|s| ready.contains_key(s.name.as_str()));
    if only.servers.is_empty() {
        return Ok(lock);
    }
    let images = ready.iter().filter_map(|(name, p)| Some((name.clone(), p.image.clone()?))).collect();
    let app = App::with(options, env, only, Basis::Images(&images)).await?;
    let caller = app.caller("cli");
    let (pool, now) = (&app.gateway.pool, app.gateway.now());
    let principal = now.principal(&caller);
    let starts = now.roster.entries.iter().map(|entry| {
        let (caller, principal) = (&caller, &principal);
        async move { (entry, pool.instance(entry, principal, &caller.session).await) }
    });
    for (entry, started) in futures_util::future::join_all(starts).await {
        let name = entry.server.name.as_str().to_owned();
        let prepared = ready.remove(&name).unwrap_or_default();
        let locked = started.and_then(|instance| take_down(entry, prepared, &instance));
        match locked {
            Ok(locked) => drop(lock.servers.insert(name, locked)),
            Err(fault) => drop(failed.insert(name, fault)),
        }
    }
    app.close().await?;
    Ok(lock)
}

fn take_down(entry: &Entry, prepared: Prepared, instance: &Instance) -> Result<LockedServer, Fault> {
    let odd = |what: String| Fault::new(Class::Malformed, format!("server {}: {what}", entry.server.name));
    let raw = |text: &str| RawValue::from_string(text.to_owned());
    let listing = entry.listing().unwrap_or_default();
    let tool = |tool: &Tool| {
        let definition = raw(&tool.definition).map_err(|e| odd(e.to_string()))?;
        LockedTool::new(&definition).map_err(|e| odd(e.to_string()))
    };
    Ok(LockedServer {
        kind: entry.server.run.kind().to_owned(),
        package: prepared.package,
        version: prepared.version,
        integrity: prepared.integrity,
        image: prepared.image,
        config: entry.server.digest.clone(),
        revision: instance.greeting.revision.clone(),
        capabilities: raw(&instance.greeting.capabilities).map_err(|e| odd(e.to_string()))?,
        tools: listing.tools.iter().map(tool).collect::<Result<_, _>>()?,
    })
}

fn show(lock: &Lock, old: &Lock) {
    let mut table = print::table(&["SERVER", "WHAT", "TOOLS", "NEWS"]);
    for (name, server) in &lock.servers {
        let what = match (&server.package, &server.version, &server.image) {
            (Some(package), Some(version), _) => format!("{package} {version}"),
            (_, _, Some(image)) => format!("image {:.19}", image),
            _ => server.kind.clone(),
        };
        let news = match old.servers.get(name) {
            None => "new".to_owned(),
            Some(before) => news(before, server),
        };
        table.add_row([name.clone(), what, server.tools.len().to_string(), news]);
    }
    if !lock.servers.is_empty() {
        print::line(&table.trim_fmt());
    }
}

/// What is not as it was, in a few words.
fn news(before: &LockedServer, now: &LockedServer) -> String {
    let mut words = Vec::new();
    if before.version != now.version {
        let version = |v: &Option<String>| v.clone().unwrap_or_else(|| "?".into());
        words.push(format!("{} -> {}", version(&before.version), version(&now.version)));
    } else if before.image != now.image {
        words.push("another image".into());
    }
    let hash = |server: &LockedServer, name: &str| server.tools.iter().find(|t| t.name == name).map(|t| t.hash.clone());
    for tool in &now.tools {
        match hash(before, &tool.name) {
            None => words.push(format!("+{}", visible(&tool.name, 60))),
            Some(old) if old != tool.hash => words.push(format!("~{}", visible(&tool.name, 60))),
            Some(_) => {}
        }
    }
    words.extend(
        before.tools.iter().filter(|t| hash(now, &t.name).is_none()).map(|t| format!("-{}", visible(&t.name, 60))),
    );
    if words.is_empty() { "unchanged".into() } else { words.join(" ") }
}

/// Asks whether what was shown is accepted.
fn accepted(yes: bool) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Fault::new(
            Class::Usage,
            "nobody to ask whether this is accepted, so nothing was written; say --yes",
        ));
    }
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "accept these tools and write the lock? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Fault::new(Class::Usage, "not accepted, so nothing was written")),
    }
}
