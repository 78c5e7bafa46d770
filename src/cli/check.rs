//! Stub.
use crate::{
    app::Options,
    config::env::Environment,
    error::{Exit, Fault},
};
/// Stub.
#[derive(Debug, clap::Args)]
pub struct Arguments {}
/// Stub.
pub async fn run(_: Options, _: &dyn Environment, _: Arguments) -> Result<Exit, Fault> {
    Ok(Exit::Fine)
}
