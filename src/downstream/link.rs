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

/// The signal that ended a program with such an exit code, as an init or a shell passes it on.
fn signal(code: i64) -> Option<&'static str> {
    const NAMES: [(i64, &str); 12] = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (13, "PIPE"),
        (15, "TERM"),
        (31, "SYS"),
    ];
    NAMES.iter().find(|(number, _)| code == 128 + number).map(|(_, name)| *name)
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
            (false, Some(code)) => match signal(code) {
                Some(signal) => write!(f, "exit code {code}, as by signal {signal}"),
                None => write!(f, "exit code {code}"),
            },
            (false, None) if self.lost => f.write_str("the container engine went away"),
            (false, None) => f.write_str("exit code unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_its_cause() {
        let of = |code, oom| Ending { code, oom, ..Ending::default() }.to_string();
        assert_eq!(of(Some(3), false), "exit code 3");
        assert_eq!(of(Some(139), false), "exit code 139, as by signal SEGV");
        assert_eq!(of(Some(137), true), "out of memory (exit code 137)");
        assert_eq!(of(None, false), "exit code unknown");
    }
}
