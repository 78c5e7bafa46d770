//! `bulkhead reap`: what gateways that are gone left behind.

use crate::compartment::reap::{Reaped, counted};
use crate::compartment::{self, Engine, Owner};
use crate::config::env::{Environment, engine_candidates};
use crate::error::{Class, Exit, Fault};

use super::print;

/// What `bulkhead reap` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print what was removed and what was left alone as JSON
    #[arg(long)]
    json: bool,
}

/// Removes leftovers, and says what they were and what was left alone for which reason.
pub async fn run(env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let engine = Engine::new(engine_candidates(env));
    let reaped = compartment::reap(&engine, &Owner::this_process("reap")).await?;
    if arguments.json {
        let json = serde_json::to_string(&reaped);
        let json = json.map_err(|e| Fault::new(Class::Bug, format!("what was reaped cannot be written: {e}")))?;
        print::line(&json);
    } else {
        show(&reaped);
    }
    for failed in &reaped.failed {
        match &failed.item {
            Some(item) => tracing::error!("{item} was not removed: {}", failed.reason),
            None => tracing::error!("not everything was looked for: {}", failed.reason),
        }
    }
    Ok(if reaped.failed.is_empty() { Exit::Fine } else { Class::Engine.exit() })
}

fn show(reaped: &Reaped) {
    for item in &reaped.removed {
        print::line(&format!("removed {item}"));
    }
    for left in &reaped.left {
        print::line(&format!("left alone: {}: {}", left.item, left.reason));
    }
    print::line(&match reaped.removed.is_empty() {
        true if reaped.failed.is_empty() => "nothing was left behind".to_owned(),
        true => "nothing was removed".to_owned(),
        false => format!("removed in all: {}", counted(&reaped.removed)),
    });
}
