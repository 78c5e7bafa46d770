//! What the program says about itself, on standard error only: standard output is the wire. Knows no call.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::config::env::Environment;

/// The variable that holds the filter, such as `bulkhead=debug`.
pub const FILTER: &str = "BULKHEAD_LOG";

/// The time since the start, to the millisecond.
struct Seconds(std::time::Instant);

impl FormatTime for Seconds {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{:8.3}", self.0.elapsed().as_secs_f32())
    }
}

/// How much is said where the filter variable says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chatter {
    /// What an operator of a running gateway wants to see.
    Serving,
    /// What is wrong on the way: the result is what a command is for.
    Command,
    /// Only how it ended, for a command that ends with one failure or none.
    Call,
}

/// Sets up the log for the whole process; `terminal` says whether standard error is one. A second call changes nothing.
pub fn start(env: &dyn Environment, terminal: bool, chatter: Chatter) {
    let filter = env.var(FILTER).and_then(|text| EnvFilter::try_new(text).ok());
    let usual = match chatter {
        Chatter::Serving => "bulkhead=info,warn",
        Chatter::Command => "warn",
        Chatter::Call => "error",
    };
    let filter = filter.unwrap_or_else(|| EnvFilter::new(usual));
    let colour = terminal && env.var("NO_COLOR").is_none_or(|v| v.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would tell of a standard error that nobody reads on that very standard error, and panic where that fails:
        // a client that is gone must not end us before its servers are ended.
        .log_internal_errors(false)
        .with_ansi(colour)
        .with_target(false)
        .with_timer(Seconds(std::time::Instant::now()));
    let _ = log.try_init();
}
