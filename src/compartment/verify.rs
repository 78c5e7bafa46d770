//! The proof: what was asked, what the engine reports, what is seen from inside, control by control. Pure.
//!
//! A reading that is missing is a difference. Nothing here can make a control hold but the two readings themselves.

use bollard::models::ContainerInspectResponse;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::{Class, Fault};

use super::report::Report;
use super::spec::Compartment;

mod controls;
mod places;

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
    /// SHA-256 over the controls, lower-case hex.
    pub digest: String,
    /// The controls.
    pub controls: Vec<Control>,
}

impl Evidence {
    /// Holds the readings against what was asked.
    pub fn gather(compartment: &Compartment, probe: &str, engine: &ContainerInspectResponse, inside: &Report) -> Self {
        let controls = controls::all(compartment, probe, engine, inside);
        let text = serde_json::to_string(&controls).unwrap_or_default();
        Evidence { digest: crate::hex(&Sha256::digest(text)), controls }
    }

    /// The evidence, if every control holds; else the refusal that names those that do not.
    pub fn proven(self, server: &str) -> Result<Self, Fault> {
        let broken: Vec<String> = self.controls.iter().filter(|c| !c.holds).map(difference).collect();
        if broken.is_empty() {
            return Ok(self);
        }
        let names: Vec<&str> = self.controls.iter().filter(|c| !c.holds).map(|c| c.control).collect();
        Err(Fault::new(
            Class::Isolation,
            format!("server {server} is not served: not isolated as asked ({})", names.join(", ")),
        )
        .with_inward(format!("server {server} is not served: not isolated as asked: {}", broken.join("; "))))
    }
}

fn difference(control: &Control) -> String {
    let Control { control, asked, engine, inside, .. } = control;
    format!("{control}: asked {asked}, the engine reports {engine}, inside {inside}")
}

#[cfg(test)]
mod tests;
