//! A server as a process of the host: the only file of the program that starts one, and only from a [`Permit`], which
//! cannot exist without the operator's written reason. Knows nothing of MCP.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::config::{Reason, Run, Sensitive, Server};
use crate::error::{Class, Fault};

use super::link::{Ending, Link, Output, Process};

/// Read at once from a pipe.
const PIECE: usize = 64 * 1024;

/// The right to run one server on the host.
pub struct Permit<'a> {
    reason: &'a Reason,
    command: &'a [String],
    server: &'a Server,
}

impl<'a> Permit<'a> {
    /// `Some` only for a server that the configuration declares as unisolated, with its reason.
    pub fn of(server: &'a Server) -> Option<Self> {
        match &server.run {
            Run::Unisolated { reason, command } => Some(Permit { reason, command, server }),
            _ => None,
        }
    }

    /// Why the server runs unconfined.
    pub fn reason(&self) -> &Reason {
        self.reason
    }
}

/// Starts the process. `base` is what it may know of the host's environment: `PATH` and `HOME`, so that its program and
/// its files are found; everything else it gets is declared.
pub fn start(permit: &Permit<'_>, base: &BTreeMap<&'static str, String>) -> Result<Link, Fault> {
    let [program, args @ ..] = permit.command else {
        return Err(Fault::new(Class::Unavailable, format!("server {} has no command", permit.server.name)));
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(base).env("LANG", "C.UTF-8");
    command.envs(permit.server.env.iter().map(|(key, value): (&String, &Sensitive)| (key, value.reveal())));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // A group of its own, so that its children end with it and a terminal's Ctrl-C does not reach it before its EOF.
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Fault::new(Class::Unavailable, format!("server {} cannot be started: {error}", permit.server.name))
            .with_inward(format!("server {} cannot be started: {program:?}: {error}", permit.server.name))
    })?;
    let (Some(input), Some(out), Some(err)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
        return Err(Fault::new(Class::Bug, "a pipe of the child is missing"));
    };
    let output = stream::select(pieces(out).map(|b| b.map(Output::Stdout)), pieces(err).map(|b| b.map(Output::Stderr)));
    let process = HostProcess { group: child.id(), child: Mutex::new(child) };
    Ok(Link { input: Box::pin(input), output: Box::pin(output), process: Box::new(process) })
}

fn pieces(
    pipe: impl tokio::io::AsyncRead + Send + Unpin + 'static,
) -> stream::BoxStream<'static, std::io::Result<Bytes>> {
    stream::try_unfold(pipe, |mut pipe| async move {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        Ok(match pipe.read_buf(&mut piece).await? {
            0 => None,
            _ => Some((piece.freeze(), pipe)),
        })
    })
    .boxed()
}

struct HostProcess {
    group: Option<u32>,
    child: Mutex<Child>,
}

impl Process for HostProcess {
    fn end(&self, grace: Duration) -> BoxFuture<'_, Ending> {
        async move {
            let mut child = self.child.lock().await;
            let mut killed = false;
            let mut status = tokio::time::timeout(grace, child.wait()).await;
            for signal in [Signal::Term, Signal::Kill] {
                if status.is_ok() {
                    break;
                }
                killed = true;
                self.signal(signal);
                status = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
            }
            // Whatever it left behind in its group goes too.
            self.signal(Signal::Kill);
            let _ = child.start_kill();
            Ending { code: status.ok().and_then(Result::ok).and_then(code), killed, ..Ending::default() }
        }
        .boxed()
    }
}

enum Signal {
    Term,
    Kill,
}

impl HostProcess {
    #[cfg(unix)]
    fn signal(&self, signal: Signal) {
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        let group = self.group.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            // It fails where the group is empty already, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    #[cfg(not(unix))]
    fn signal(&self, _: Signal) {}
}

#[cfg(unix)]
fn code(status: std::process::ExitStatus) -> Option<i64> {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|n| 128 + n)).map(i64::from)
}

#[cfg(not(unix))]
fn code(status: std::process::ExitStatus) -> Option<i64> {
    status.code().map(i64::from)
}
