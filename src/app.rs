//! Builds everything in its order and takes it apart in the reverse one. Knows no command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::audit::record::{GatewayEvent, GatewayWord};
use crate::audit::{Audit, Redactor};
use crate::compartment::reap::counted;
use crate::compartment::{Engine, Owner};
use crate::config::env::{self, Environment};
use crate::config::{Config, resolve};
use crate::downstream::pool::{Basis, Pool};
use crate::error::{Class, Fault};
use crate::flow::{Caller, Gateway};
use crate::gate;
use crate::name::Role;
use crate::route::lock::Lock;
use crate::route::lock::pins::Pins;

pub mod control;
pub mod locks;
pub mod reload;
pub mod status;
mod watch;

/// What every command says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--state`.
    pub state: Option<PathBuf>,
    /// `--role`: the operator's choice for the principal behind the pipe.
    pub role: Option<Role>,
}

/// A gateway that is put together.
pub struct App {
    /// The path of a call.
    pub gateway: Arc<Gateway>,
    /// The engine, reached when it is first needed.
    pub engine: Arc<Engine>,
    /// Who we are towards the engine.
    pub owner: Owner,
    /// Where state lives.
    pub state: PathBuf,
    /// The name of this run.
    pub instance: String,
    /// What leftovers of dead gateways are cleared with.
    reaper: tokio::task::JoinHandle<()>,
    /// What became of reloads.
    reloads: Mutex<reload::History>,
}

/// The configuration of a command, from wherever it is.
pub fn configuration(options: &Options, env: &dyn Environment) -> Result<Config, Fault> {
    let path = env::config_path(options.config.as_deref(), env);
    // What a server may not see of the host includes our own state, wherever the command line puts it.
    let env = &env::WithState { env, state: env::state_dir(options.state.as_deref(), env) };
    let mut config = resolve::load(&path, env).map_err(|faults| Fault::new(Class::Usage, faults.to_string()))?;
    for note in &config.notes {
        tracing::info!("{note}");
    }
    if let Some(role) = options.role {
        config.stdio.role = role;
    }
    Ok(config)
}

/// The lock's name, beside the configuration.
const LOCK: &str = "bulkhead.lock";

/// The lock of a configuration.
pub fn lock_path(config: &Config) -> PathBuf {
    config.path.with_file_name(LOCK)
}

/// What keeps the secrets of a configuration out of texts.
pub fn redactor(config: &Config) -> Result<Redactor, Fault> {
    let secrets: Vec<_> = config.servers.iter().flat_map(|s| s.env.values().cloned()).collect();
    Redactor::new(&secrets)
        .map_err(|e| Fault::new(Class::Usage, format!("the secrets are too large to be kept out of texts: {e}")))
}

/// What was first seen of servers under a configuration.
pub fn pins(options: &Options, env: &dyn Environment, config: &Config) -> Result<Pins, Fault> {
    let place = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
    Pins::open(&env::state_dir(options.state.as_deref(), env), &place)
}

impl App {
    /// Puts a gateway together for a configuration. The engine need not be there; the audit must.
    pub async fn open(options: &Options, env: &dyn Environment) -> Result<App, Fault> {
        Self::pinning(options, env).await.map(|(app, _)| app)
    }

    /// The same, with the pins of what servers offer at their first use.
    pub async fn pinning(options: &Options, env: &dyn Environment) -> Result<(App, Arc<Pins>), Fault> {
        let config = configuration(options, env)?;
        let lock = Lock::read(&lock_path(&config))?.unwrap_or_default();
        let pins = Arc::new(pins(options, env, &config)?);
        let app = Self::with(options, env, config, Basis::Approved { lock: &lock, pins: &pins }).await?;
        Ok((app, pins))
    }

    /// The same on another basis than the lock on disk.
    pub async fn with(
        options: &Options,
        env: &dyn Environment,
        config: Config,
        basis: Basis<'_>,
    ) -> Result<App, Fault> {
        let state = env::state_dir(options.state.as_deref(), env);
        let instance = uuid::Uuid::now_v7().simple().to_string();
        // One for all that is written of servers: what a reload adds, everybody knows at once.
        let redactor = Arc::new(redactor(&config)?);
        let path = state.join(&config.audit.path);
        let audit = Arc::new(Audit::open(&path, config.audit.sync, instance.clone(), redactor.clone())?);
        let engine = Arc::new(Engine::new(env::engine_candidates(env)));
        let place = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
        // Before anything is made of it or kept for it: what is not known here may be removed as if nobody wanted it.
        let keeper = locks::remember(&state, &config)?;
        let owner = Owner::this_process(&instance).for_scope(&place.to_string_lossy()).for_keeper(&keeper);
        let config = Arc::new(config);
        let pool = Pool::new(config.clone(), basis, engine.clone(), owner.clone(), audit.clone(), redactor, host(env));
        tell_disabled(&config);
        drop(audit.gateway(event(GatewayWord::Start, &config)));
        let gateway = Arc::new(Gateway::new(pool, audit));
        let reaper = tokio::spawn(reap(engine.clone(), owner.clone()));
        Ok(App { gateway, engine, owner, state, instance, reaper, reloads: Mutex::default() })
    }

    /// The principal behind standard input, or behind a command.
    pub fn caller(&self, face: &'static str) -> Caller {
        let id = self.config().stdio.id.clone();
        Caller {
            actor: format!("{face}:{id}"),
            id: Some(id.into()),
            face,
            session: uuid::Uuid::now_v7().simple().to_string(),
            client: None,
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.gateway.pool.roster().config.clone()
    }

    /// Ends every instance, then the audit: nothing may happen that it could no longer record.
    pub async fn close(&self) -> Result<(), Fault> {
        self.gateway.pool.close().await;
        self.reaper.abort();
        let audit = &self.gateway.audit;
        drop(audit.gateway(event(GatewayWord::Stop, &self.config())));
        let closed = audit.close().await;
        let (seq, head) = audit.head();
        tracing::info!("audit: {seq} records, head {head}");
        closed
    }
}

/// First look for leftovers: not in the way of the first start.
const REAP_FIRST: Duration = Duration::from_secs(1);
/// Pause between later ones.
const REAP_AGAIN: Duration = Duration::from_secs(60);

/// Clears what dead gateways left behind, for as long as this one runs.
async fn reap(engine: Arc<Engine>, owner: Owner) {
    tokio::time::sleep(REAP_FIRST).await;
    loop {
        reap_once(&engine, &owner).await;
        tokio::time::sleep(REAP_AGAIN).await;
    }
}

async fn reap_once(engine: &Engine, owner: &Owner) {
    match crate::compartment::reap(engine, owner).await {
        Ok(reaped) => {
            if !reaped.removed.is_empty() {
                tracing::info!("removed {} of gateways that are gone", counted(&reaped.removed));
            }
            for failed in reaped.failed {
                tracing::debug!("leftovers may stay: {}", failed.reason);
            }
        }
        Err(fault) => tracing::debug!("leftovers were not looked for: {fault}"),
    }
}

/// What an unisolated server may know of the host: where programs and its files are.
fn host(env: &dyn Environment) -> BTreeMap<&'static str, String> {
    ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env.var(name)?))).collect()
}

fn event(event: GatewayWord, config: &Config) -> GatewayEvent {
    let (config_digest, policy_digest) = (config.digest.clone(), gate::digest(&config.servers));
    GatewayEvent { event, config_digest: Some(config_digest), policy_digest: Some(policy_digest), reload: None }
}

fn tell_disabled(config: &Config) {
    for server in &config.servers {
        if let Some(why) = &server.disabled {
            tracing::warn!(server = %server.name, "disabled: {why}");
        }
    }
}

/// A path as people write it.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
