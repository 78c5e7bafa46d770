//! `bulkhead reap`: what gateways that are gone left behind.

use crate::compartment::{self, Engine, Owner};
use crate::config::env::{Environment, engine_candidates};
use crate::error::{Exit, Fault};

use super::print;

/// Removes leftovers and says what they were.
pub async fn run(env: &dyn Environment) -> Result<Exit, Fault> {
    let engine = Engine::new(engine_candidates(env));
    let reaped = compartment::reap(&engine, &Owner::this_process("reap")).await?;
    for container in &reaped.removed {
        print::line(&format!("removed {container}"));
    }
    for container in &reaped.left {
        print::line(&format!("left alone: {container}"));
    }
    if reaped.removed.is_empty() {
        print::line("nothing was left behind");
    }
    Ok(Exit::Fine)
}
