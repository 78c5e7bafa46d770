//! The proof: what was asked, what the engine reports, what is seen from inside, control by control. Pure.
//!
//! A reading that is missing is a difference. Nothing here can make a control hold but the two readings themselves. What
//! has no control of its own must be as an engine leaves it: [`around`] names every other setting that is not.

use bollard::models::{ContainerInspectResponse, NetworkInspect};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::{Class, Fault};

use super::engine::Defaults;
use super::report::Report;
use super::spec::Compartment;

mod around;
mod limits;
mod mounts;
mod network;
mod places;
mod privileges;
mod view;

/// One control with its three readings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Its name.
    pub control: &'static str,
    /// What the compartment asks for.
    pub asked: String,
    /// What the engine reports.
    pub engine: String,
    /// What is seen from inside; `-` for what only the engine can know.
    pub inside: String,
    /// Whether both are as asked.
    pub holds: bool,
}

/// Every control of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// SHA-256 over the controls and over what they are proven of (container, image, server, principal, host paths),
    /// lower-case hex: no other instance has the same.
    pub digest: String,
    /// The controls.
    pub controls: Vec<Control>,
}

/// What the controls are read from.
#[derive(Clone, Copy)]
pub struct Readings<'a> {
    /// The volume that has the probe.
    pub probe: &'a str,
    /// What the engine does by itself.
    pub defaults: &'a Defaults,
    /// What it reports of the container.
    pub engine: &'a ContainerInspectResponse,
    /// What it reports of the network, where that is one of its own.
    pub network: Option<&'a NetworkInspect>,
    /// What the probe saw.
    pub inside: &'a Report,
}

impl Evidence {
    /// Holds the readings against what was asked.
    pub fn gather(asked: &Compartment, readings: &Readings<'_>) -> Self {
        let controls = controls(&view::View::new(asked, readings));
        let subject = serde_json::json!({
            "container": readings.engine.id,
            "image": asked.image,
            "server": asked.server.name.as_str(),
            "configuration": asked.server.digest,
            "principal": asked.owner.principal,
            "mounts": asked.server.mounts.iter().map(|m| (&m.host, &m.at, m.write)).collect::<Vec<_>>(),
            "controls": controls,
            "guard": asked.host_of_network().map(|(container, evidence)| (container, &evidence.digest)),
        });
        Evidence { digest: crate::hex(&Sha256::digest(subject.to_string())), controls }
    }

    /// Refuses at once what only the engine can tell and tells otherwise: for that nothing needs to be seen from inside.
    pub(super) fn told(asked: &Compartment, readings: &Readings<'_>) -> Result<(), Fault> {
        let mut evidence = Evidence::gather(asked, readings);
        evidence.controls.retain(|control| control.inside == view::UNSEEN);
        evidence.proven(asked.server.name.as_str()).map(drop)
    }

    /// The evidence, if every control holds; else the refusal that names those that do not.
    pub fn proven(self, server: &str) -> Result<Self, Fault> {
        let broken: Vec<&Control> = self.controls.iter().filter(|c| !c.holds).collect();
        if broken.is_empty() {
            return Ok(self);
        }
        let names: Vec<&str> = broken.iter().map(|c| c.control).collect();
        let differences: Vec<String> = broken.into_iter().map(difference).collect();
        let what = format!("server {server} is not served: not isolated as asked");
        Err(Fault::new(Class::Isolation, format!("{what} ({})", names.join(", ")))
            .with_inward(format!("{what}: {}", differences.join("; "))))
    }
}

fn controls(view: &view::View<'_>) -> Vec<Control> {
    let all = [
        privileges::capabilities,
        privileges::escalation,
        privileges::privileged,
        privileges::seccomp,
        privileges::apparmor,
        privileges::user,
        places::root,
        places::tmpfs,
        mounts::mounts,
        places::kernel_files,
        limits::memory,
        limits::swap,
        limits::cpu,
        limits::processors,
        limits::pids,
        limits::open_files,
        limits::core_dumps,
        network::network,
        around::environment,
        privileges::namespaces,
        privileges::devices,
        around::hostname,
        around::init,
        around::program,
        around::log_driver,
        around::life,
        around::labels,
        around::other_settings,
    ];
    let fence = view.asked.bounds().map(|bounds| network::fence(view, bounds));
    let controls = all.into_iter().map(|control| control(view)).chain(fence);
    // An engine that reports nothing has reported nothing that holds, empty lists included.
    let reported = view.is_reported();
    controls.map(|control| Control { holds: control.holds && reported, ..control }).collect()
}

fn difference(control: &Control) -> String {
    let Control { control, asked, engine, inside, .. } = control;
    format!("{control}: asked {asked}, the engine reports {engine}, inside {inside}")
}

#[cfg(test)]
mod tests;
