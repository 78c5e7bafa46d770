//! `bulkhead audit`: whether the audit is whole, and what was last written to it.

use std::path::PathBuf;

use crate::app::{Options, configuration};
use crate::audit::query;
use crate::config::env::{self, Environment};
use crate::error::{Class, Exit, Fault};
use crate::wire::text::visible;

use super::print;

/// What `bulkhead audit` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Follow the whole chain; name the first bad line, and calls without an outcome
    Verify {
        /// The file, instead of the configured one
        file: Option<PathBuf>,
    },
    /// Print the last records as they are
    Tail {
        /// How many
        #[arg(short = 'n', default_value_t = 10)]
        count: usize,
    },
}

/// Reads the audit.
pub fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let configured = || -> Result<PathBuf, Fault> {
        let config = configuration(options, env)?;
        Ok(env::state_dir(options.state.as_deref(), env).join(&config.audit.path))
    };
    match &arguments.action {
        Action::Verify { file } => verify(file.clone().map_or_else(configured, Ok)?),
        Action::Tail { count } => {
            let path = configured()?;
            let unreadable = |e| Fault::new(Class::Audit, format!("{}: {e}", path.display()));
            for record in query::tail(&path, *count)? {
                print::line(&visible(&record.map_err(unreadable)?, usize::MAX));
            }
            Ok(Exit::Fine)
        }
    }
}

fn verify(path: PathBuf) -> Result<Exit, Fault> {
    let found = query::verify(&path)?;
    let file = path.display();
    for call in &found.interrupted {
        print::line(&format!("interrupted: call {call} has an intent and no outcome"));
    }
    for connection in &found.unended {
        print::line(&format!("open: connection {connection} was to be made and has no end"));
    }
    if let Some((line, why)) = found.first_bad_line {
        return Err(Fault::new(Class::Audit, format!("{file}:{line}: {why}")));
    }
    print::line(&format!("{file}: {} records, the chain is whole, head {}", found.records, found.head.hash));
    Ok(Exit::Fine)
}
