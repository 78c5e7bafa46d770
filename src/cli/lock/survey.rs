//! What servers are now: their images found or made, each started once in its compartment and asked what it offers.
//! Compares nothing and writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::value::RawValue;

use crate::app::{App, Options};
use crate::compartment::Engine;
use crate::compartment::bake::{self, Order, bake};
use crate::config::env::Environment;
use crate::config::{Config, Registry, Run, Runner, Server, Total};
use crate::downstream::pool::{Basis, Entry, Made};
use crate::error::{Class, Fault};
use crate::flow::Caller;
use crate::name::Principal;
use crate::route::lock::{Lock, LockedServer};

use super::super::progress::{Bar, Bars};

/// The image that packages are baked on.
const RUNTIME: &str = "bulkhead/runtime";
/// Packages baked at the same time: more would only queue at the engine and the registry.
const AT_ONCE: usize = 3;
/// Servers started at the same time.
const STARTS: usize = 2;

/// What was found, by the servers' names.
#[derive(Debug, Default)]
pub struct Survey {
    /// Those that started and told what they offer.
    pub found: BTreeMap<String, LockedServer>,
    /// Those of which something failed.
    pub failed: BTreeMap<String, Fault>,
}

/// Where images come from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What was locked; a package is baked by that where it still is what is asked for.
    pub lock: &'a Lock,
    /// Whether versions are resolved anew all the same.
    pub update: bool,
}

impl<'a> Sources<'a> {
    /// What was locked of a server, if its package is to be baked by that: the same one is asked for, with the same beside.
    fn of(&self, server: &Server) -> Option<&'a LockedServer> {
        let before = self.lock.servers.get(server.name.as_str()).filter(|before| !before.tree.is_empty());
        let same = |before: &LockedServer| {
            ["request", "with"].iter().all(|key| before.settings.get(*key) == server.settings.get(*key))
        };
        before.filter(|before| !self.update && same(before))
    }
}

fn raw(line: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(line).map_err(|error| Fault::new(Class::Bug, format!("a package cannot be locked: {error}")))
}

/// Looks at servers. One that fails leaves the others done.
pub async fn survey(
    options: &Options,
    env: &dyn Environment,
    config: &Config,
    servers: &[Server],
    sources: Sources<'_>,
    engine: &Engine,
) -> Result<Survey, Fault> {
    let bars = Bars::start();
    let made = make(engine, &config.registry, servers, sources, &bars).await;
    let mut survey = Survey::default();
    let mut ready = BTreeMap::new();
    for (name, outcome) in made {
        match outcome {
            Ok(made) => drop(ready.insert(name, made)),
            Err(fault) => drop(survey.failed.insert(name, fault)),
        }
    }
    bars.clear();
    // The log says what starts, and its lines and bars would get into each other's way.
    list(options, env, config, ready, &mut survey, &Bars::none()).await.map(|()| survey)
}

/// Finds or bakes the image of every server, several at once.
async fn make(
    engine: &Engine,
    registry: &Registry,
    servers: &[Server],
    sources: Sources<'_>,
    bars: &Bars,
) -> Vec<(String, Result<Made, Fault>)> {
    let jobs = servers.iter().map(|server| async move {
        let bar = bars.add(server.name.as_str());
        let outcome = image(engine, registry, server, sources, &bar).await;
        bar.done(match &outcome {
            Ok(_) => "image ready".to_owned(),
            Err(fault) => format!("failed: {}", fault.outward),
        });
        (server.name.as_str().to_owned(), outcome)
    });
    stream::iter(jobs.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await
}

async fn image(
    engine: &Engine,
    registry: &Registry,
    server: &Server,
    sources: Sources<'_>,
    bar: &Bar,
) -> Result<Made, Fault> {
    match &server.run {
        Run::Package(package) => {
            let docker = engine.docker().await?;
            let before = sources.of(server);
            let tree: Vec<String> =
                before.iter().flat_map(|before| &before.tree).map(|package| package.get().to_owned()).collect();
            let locked = before.and_then(|before| {
                let (integrity, content) = (before.integrity.as_deref(), before.content.as_deref());
                Some(bake::Locked { version: before.version.as_deref()?, integrity, tree: &tree, content })
            });
            let order = Order { server: &server.name, package, registry, locked };
            let baked = bake(&docker, &order, RUNTIME, &|line| bar.say(line)).await?;
            let runner = match package.runner {
                Runner::Npx => "npx",
                Runner::Uvx => "uvx",
            };
            Ok(Made {
                image: Some(baked.image),
                package: Some(format!("{runner}:{}", baked.name)),
                version: Some(baked.version),
                integrity: baked.integrity,
                content: Some(baked.content),
                tree: baked.tree.into_iter().map(raw).collect::<Result<_, _>>()?,
            })
        }
        Run::Image { reference, .. } => Ok(Made { image: Some(engine.image(reference).await?.id), ..Made::default() }),
        Run::Unisolated { .. } | Run::Remote { .. } => Ok(Made::default()),
    }
}

/// Starts each server once in its compartment and takes down what it offers.
async fn list(
    options: &Options,
    env: &dyn Environment,
    config: &Config,
    mut ready: BTreeMap<String, Made>,
    survey: &mut Survey,
    bars: &Bars,
) -> Result<(), Fault> {
    let mut only = config.clone();
    only.servers.retain(|s| ready.contains_key(s.name.as_str()));
    if only.servers.is_empty() {
        return Ok(());
    }
    let images = ready.iter().filter_map(|(name, made)| Some((name.clone(), made.image.clone()?))).collect();
    let app = App::with(options, env, only, Basis::Images(&images)).await?;
    let caller = app.caller("cli");
    let now = app.gateway.now();
    let principal = now.principal(&caller);
    let look = |entry: Arc<Entry>, made: Made| {
        let (app, caller, principal) = (&app, &caller, &principal);
        async move {
            let bar = bars.add(entry.server.name.as_str());
            bar.say("starting once, to see what it offers");
            let looked = look(app, caller, principal, &entry, made).await;
            bar.done(match &looked {
                Ok(_) => "listed".to_owned(),
                Err(fault) => format!("failed: {}", fault.outward),
            });
            (entry, looked)
        }
    };
    for together in batches(&now.roster.entries, now.roster.config.total) {
        let looks = together.into_iter().map(|entry| {
            let made = ready.remove(entry.server.name.as_str()).unwrap_or_default();
            look(entry, made)
        });
        for (entry, outcome) in futures_util::future::join_all(looks).await {
            let name = entry.server.name.as_str().to_owned();
            match outcome {
                Ok(locked) => drop(survey.found.insert(name, locked)),
                Err(fault) => drop(survey.failed.insert(name, fault)),
            }
        }
    }
    app.close().await
}

/// Servers that are started together: few, and no more than there is room for.
fn batches(entries: &[Arc<Entry>], total: Total) -> Vec<Vec<Arc<Entry>>> {
    let mut batches: Vec<Vec<Arc<Entry>>> = Vec::new();
    let fits = |batch: &[Arc<Entry>], entry: &Entry| {
        let all = batch.iter().fold(entry.server.takes(), |sum, other| sum.with(other.server.takes()));
        batch.len() < STARTS && all.memory <= total.memory && all.cpus <= total.cpus && batch.len() < total.instances
    };
    for entry in entries {
        match batches.last_mut() {
            Some(batch) if fits(batch, entry) => batch.push(entry.clone()),
            _ => batches.push(vec![entry.clone()]),
        }
    }
    batches
}

/// One server: started, asked, ended.
async fn look(
    app: &App,
    caller: &Caller,
    principal: &Principal,
    entry: &Arc<Entry>,
    made: Made,
) -> Result<LockedServer, Fault> {
    let pool = &app.gateway.pool;
    let instance = pool.instance(entry, principal, &caller.session).await?;
    let locked = pool.locked(entry, made, &instance);
    // It has said all that is wanted of it, and the next one wants its room.
    pool.retire(entry, &instance).await;
    locked
}
