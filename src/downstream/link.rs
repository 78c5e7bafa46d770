//! What a running server is to the rest of the program, whether a container or a host process: bytes in, bytes out, and
//! an end. Knows nothing of JSON-RPC, engines or processes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio::io::AsyncWrite;

/// A piece of what a server wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// From its standard output: pieces of lines.
    Stdout(Bytes),
    /// From its standard error.
    Stderr(Bytes),
}

/// The three ends of a running server.
pub struct Link {
    /// Its standard input; dropping it (or shutting it down) is EOF to the server.
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
    /// Both its outputs. Must be polled for as long as it runs: an unread stream blocks the server.
    pub output: Pin<Box<dyn Stream<Item = io::Result<Output>> + Send>>,
    /// How it is ended and what became of it.
    pub process: Box<dyn Process>,
}

/// A running server's process: ended once, leaving nothing.
pub trait Process: Send + Sync {
    /// Waits up to `grace` for the server to end by itself (its input is closed by then), then stops it, then kills it,
    /// removes what it leaves, and says how it ended. Bounded in time, whatever the server or the engine does.
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending>;
}

/// How a server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Its exit code, where it is known; 128 + n after signal n.
    pub code: Option<i64>,
    /// Whether it ran out of its memory limit.
    pub oom: bool,
    /// Whether we had to kill it.
    pub killed: bool,
    /// Whether it went with its engine, so that nobody can say how it ended.
    pub lost: bool,
    /// What else had ended, so that it was ended, too.
    pub cause: Option<String>,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cause) = &self.cause {
            return f.write_str(cause);
        }
        match (self.oom, self.code) {
            (true, Some(code)) => write!(f, "out of memory (exit code {code})"),
            (true, None) => f.write_str("out of memory"),
            (false, Some(code)) if self.killed => write!(f, "killed by the gateway (exit code {code})"),
            (false, Some(code)) => write!(f, "exit code {code}"),
            (false, None) if self.lost => f.write_str("the container engine went away"),
            (false, None) => f.write_str("exit code unknown"),
        }
    }
}
