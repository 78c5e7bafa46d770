//! The command line: one file a command, each of which prints its result and nothing else to standard output.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::app::Options;
use crate::config::env::Environment;
use crate::error::{Exit, Fault};
use crate::name::Role;

pub mod add;
pub mod approve;
pub mod audit;
pub mod call;
pub mod check;
pub mod image;
pub mod import;
pub mod install;
pub mod lock;
pub mod print;
pub mod progress;
pub mod reap;
pub mod review;
pub mod serve;
pub mod status;
pub mod tools;

/// One MCP endpoint in front of many MCP servers, each in its own hardened, proven container.
#[derive(Debug, Parser)]
#[command(name = "bulkhead", version, about, max_term_width = 80)]
pub struct Cli {
    /// Configuration file [default: $BULKHEAD_CONFIG, ./bulkhead.toml, then the one in the user's configuration directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the audit, the keys and the control sockets [default: $BULKHEAD_STATE, then the user's state directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the endpoint over standard input and output
    Serve {
        /// The role of the client behind the pipe, instead of the configured one
        #[arg(long, value_parser = role, value_name = "ROLE")]
        role: Option<Role>,
    },
    /// Resolve and bake packages, list every server once, and write bulkhead.lock
    Lock(lock::Arguments),
    /// Show what has changed since approval, and accept it
    Approve(approve::Arguments),
    /// List the tools that a role sees
    Tools(tools::Arguments),
    /// Call one tool, through the whole path
    Call(call::Arguments),
    /// Show running gateways, their servers, instances and evidence
    Status(status::Arguments),
    /// Check configuration, engine, images and audit, and say how to mend what is wrong
    Check(check::Arguments),
    /// Verify or show the audit
    Audit(audit::Arguments),
    /// Put the one entry into a client's own configuration, with a backup
    Install(install::Arguments),
    /// Take the entry out of a client's own configuration, with a backup
    Uninstall(install::Removal),
    /// Build images of their own for servers
    Image(image::Arguments),
    /// Add one server to the configuration
    Add(add::Arguments),
    /// Take the servers of another client's file over into the configuration
    Import(import::Arguments),
    /// Remove what gateways that are gone left behind, or images that no lock refers to
    Reap(reap::Arguments),
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).map_err(|bad| bad.to_string())
}

/// Carries out a command.
pub async fn run(cli: Cli, env: Arc<dyn Environment + Send + Sync>) -> Result<Exit, Fault> {
    let options = Options { config: cli.config, state: cli.state, role: None };
    match cli.command {
        Command::Serve { role } => serve::run(Options { role, ..options }, env).await,
        Command::Lock(arguments) => lock::run(options, &*env, arguments).await,
        Command::Approve(arguments) => approve::run(options, &*env, arguments).await,
        Command::Tools(arguments) => tools::run(options, &*env, arguments).await,
        Command::Call(arguments) => call::run(options, &*env, arguments).await,
        Command::Status(arguments) => status::run(&options, &*env, &arguments).await,
        Command::Check(arguments) => check::run(options, &*env, arguments).await,
        Command::Audit(arguments) => audit::run(&options, &*env, &arguments),
        Command::Install(arguments) => install::run(&options, &*env, &arguments),
        Command::Uninstall(arguments) => install::remove(&*env, &arguments),
        Command::Image(arguments) => image::run(options, &*env, arguments).await,
        Command::Add(arguments) => add::run(&options, &*env, &arguments),
        Command::Import(arguments) => import::run(&options, &*env, &arguments),
        Command::Reap(arguments) => reap::run(&options, &*env, &arguments).await,
    }
}
