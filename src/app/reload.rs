//! Another configuration for a gateway that runs: read and checked whole, as at the start, and then in force all at once,
//! or not at all. Knows no signal.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::audit::{GatewayEvent, GatewayWord, Reload};
use crate::config::change::objections;
use crate::config::env::Environment;
use crate::config::{Config, Start};
use crate::downstream::pool::{Basis, Handover};
use crate::error::{Class, Fault};
use crate::flow::Caller;
use crate::gate;
use crate::route::lock::Lock;
use crate::route::lock::pins::Pins;

use super::watch::{self, Prints};
use super::{App, LOCK, Options, configuration, event, lock_path, tell_disabled};

/// What became of reloads, for the status.
#[derive(Debug, Default)]
pub(super) struct History {
    done: Option<SystemTime>,
    refused: Option<(SystemTime, String)>,
}

/// What a gateway is reloaded with: that with which it was started.
pub struct Reloader {
    app: Arc<App>,
    options: Options,
    env: Arc<dyn Environment + Send + Sync>,
    caller: Caller,
    pins: Arc<Pins>,
    /// What is read with each reload.
    files: Vec<PathBuf>,
    /// What these looked like when they were last read.
    seen: Mutex<Prints>,
}

impl Reloader {
    /// For a gateway that was opened with these. `caller` is on whose behalf servers are started that start at once.
    pub fn new(
        (app, pins): (Arc<App>, Arc<Pins>),
        options: Options,
        env: Arc<dyn Environment + Send + Sync>,
        caller: Caller,
    ) -> Self {
        // The very file that was read, whatever else would be found now.
        let path = std::path::absolute(&app.config().path).unwrap_or_else(|_| app.config().path.clone());
        let files = vec![path.clone(), path.with_file_name(LOCK), pins.path().to_owned()];
        let seen = Mutex::new(Prints::of(&files));
        Reloader { app, options: Options { config: Some(path), ..options }, env, caller, pins, files, seen }
    }

    /// Waits until something that a reload reads has changed on disk, other than by ourselves.
    pub async fn changed(&self) {
        loop {
            watch::changed(&self.files, || self.seen().clone()).await;
            let before = self.seen().clone();
            let now = Prints::of(&self.files);
            *self.seen() = now.clone();
            if !before.is_all_but_last(&now) {
                return;
            }
            let pins = self.pins.clone();
            // What we have pinned ourselves is no news.
            if tokio::task::spawn_blocking(move || pins.refresh().unwrap_or(true)).await.unwrap_or(true) {
                return;
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Prints> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the configuration, the secrets and the lock anew. On any fault all stays as it is. Either is logged and
    /// recorded; when this returns, what it says holds. One at a time.
    pub async fn reload(&self) {
        let old = self.app.config();
        // Before they are read: what changes meanwhile is seen as a change.
        *self.seen() = Prints::of(&self.files);
        match self.read(old.clone()).await {
            Ok(handover) => self.put_in_force(&old, handover).await,
            Err(fault) => self.refuse(&old, &fault),
        }
    }

    async fn read(&self, old: Arc<Config>) -> Result<Handover, Fault> {
        let (options, env, pins) = (self.options.clone(), self.env.clone(), self.pins.clone());
        // Files may be on a disk that does not answer, and calls go on meanwhile.
        let read = tokio::task::spawn_blocking(move || {
            let config = configuration(&options, &*env)?;
            objections(&old, &config).map_err(|faults| Fault::new(Class::Usage, faults.to_string()))?;
            let lock = Lock::read(&lock_path(&config))?.unwrap_or_default();
            pins.refresh()?;
            Ok::<_, Fault>((config, lock))
        });
        let lost = |error| Fault::new(Class::Bug, format!("the configuration could not be read: {error}"));
        let (config, lock) = read.await.map_err(lost)??;
        self.app.gateway.pool.prepare(Arc::new(config), Basis::Approved { lock: &lock, pins: &self.pins })
    }

    async fn put_in_force(&self, old: &Config, handover: Handover) {
        let (app, next) = (&self.app, handover.next.config.clone());
        let changes = handover.changes.clone();
        let told = Reload { changes: Some(changes.to_string()), ..since(old) };
        // Before it holds, so that no call that it decides is recorded before it.
        let written =
            app.gateway.audit.gateway(GatewayEvent { reload: Some(told), ..event(GatewayWord::Reload, &next) });
        app.gateway.hand_over(handover).await;
        if let Err(fault) = written.await {
            tracing::warn!("the reload is not recorded yet: {fault}");
        }
        self.note(|history| history.done = Some(SystemTime::now()));
        tell_disabled(&next);
        tracing::info!("configuration reloaded: {changes}");
        if next.gateway.start == Start::Eager {
            let all = old.gateway.start != Start::Eager;
            let anew = |name: &str| changes.added.iter().chain(&changes.changed).any(|other| other == name);
            app.gateway.start_some(&self.caller, |name| all || anew(name));
        }
    }

    fn refuse(&self, old: &Config, fault: &Fault) {
        tracing::error!("the configuration is not reloaded; what was in force stays in force:");
        for line in fault.inward.lines() {
            tracing::error!("{line}");
        }
        let told = Reload { reason: Some(fault.inward.clone()), ..since(old) };
        let audit = &self.app.gateway.audit;
        drop(audit.gateway(GatewayEvent { reload: Some(told), ..event(GatewayWord::Reload, old) }));
        self.note(|history| history.refused = Some((SystemTime::now(), fault.inward.clone())));
    }

    fn note(&self, what: impl FnOnce(&mut History)) {
        what(&mut self.app.reloads.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl App {
    /// What became of reloads, in the words of the status.
    pub(super) fn reloaded(&self) -> Value {
        let at = |time: &SystemTime| humantime::format_rfc3339_millis(*time).to_string();
        let history = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "last": history.done.as_ref().map(at),
            "refused": history.refused.as_ref().map(|(time, reason)| json!({ "time": at(time), "reason": reason })),
        })
    }
}

/// A reload of what was in force.
fn since(old: &Config) -> Reload {
    Reload {
        old_config_digest: Some(old.digest.clone()),
        old_policy_digest: Some(gate::digest(&old.servers)),
        ..Reload::default()
    }
}
