//! The program: arguments in, exit code out.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;

use bulkhead::cli::{self, Cli, Command};
use bulkhead::config::env::ProcessEnvironment;
use bulkhead::error::Exit;
use bulkhead::telemetry::{self, Chatter};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let env = ProcessEnvironment;
    let chatter = match cli.command {
        Command::Serve { .. } | Command::Lock(_) | Command::Approve(_) | Command::Image(_) => Chatter::Serving,
        Command::Call(_) => Chatter::Call,
        _ => Chatter::Command,
    };
    telemetry::start(&env, std::io::stderr().is_terminal(), chatter);
    match std::panic::catch_unwind(|| run(cli, env)) {
        Ok(Ok(exit)) => ExitCode::from(exit as u8),
        Ok(Err(error)) => {
            tracing::error!("{error:#}");
            ExitCode::from(Exit::Bug as u8)
        }
        // The panic has said what it is on standard error.
        Err(_) => ExitCode::from(Exit::Bug as u8),
    }
}

fn run(cli: Cli, env: ProcessEnvironment) -> anyhow::Result<Exit> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime cannot be started")?;
    let exit = runtime.block_on(cli::run(cli, Arc::new(env))).unwrap_or_else(|fault| {
        for line in fault.inward.lines() {
            tracing::error!("{line}");
        }
        fault.class.exit()
    });
    // A thread that waits on standard input cannot be told to stop.
    runtime.shutdown_background();
    Ok(exit)
}
