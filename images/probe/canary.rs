//! Tries to break out of the container it runs in, one attempt after another, and says of each whether it broke
//! anything: one line of JSON an attempt on stdout, then one that counts them.
//!
//!     canary [TARGET…]
//!
//! It begins with the first byte on its input, or with its end: by then whoever started it may have proven what it is in.
//!
//! What only the outside knows is given as targets: `tcp=WHAT@ADDRESS:PORT`, `unix=WHAT@PATH`, `abstract=NAME`,
//! `pid=NUMBER:START` of a process that is not in here, `tmp=BYTES`, `memory=BYTES`, `files=NUMBER`, `pids=NUMBER` and
//! `cpus=NUMBER` of the limits. An attempt without its target is left out, and so not counted.
//!
//! An attempt breaks a rule only where it gets what the rule forbids: that a system call exists is nothing. Each runs
//! in a process of its own with a deadline, so that none takes the others along. They are made to do no harm where
//! they do succeed, as root on the host: what would change something is asked for in a way that the kernel refuses
//! only after it has looked at the caller's rights, or changes a thing to what it is.
//!
//! Not among them, since it gives nothing beyond the rules: io_uring, which the profiles of older engines let through
//! and whose operations meet every other control; programs in memory (memfd), which are a server's own business; ptrace
//! of one's own children; ports below 1024. And vsock, which no namespace holds: to try it is to speak to whatever runs
//! this machine.
//!
//! `unsafe` is here because to ask the kernel for what the standard library never would is what this program is for: all
//! of it is in `sys`.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

#[path = "canary/around.rs"]
mod around;
#[path = "canary/files.rs"]
mod files;
#[path = "canary/kernel.rs"]
mod kernel;
#[path = "canary/limits.rs"]
mod limits;
#[path = "canary/privileges.rs"]
mod privileges;
#[path = "canary/sys.rs"]
mod sys;

use sys::{Held, Verdict};

/// Of the lines and of what they mean; the gateway reads no other.
const VERSION: u32 = 1;
/// The command line names a target that is none.
const EXIT_USAGE: u8 = 2;
/// The argument with which a copy of this program says whether it was made root by its file.
pub const AM_I_ROOT: &str = "am-i-root";
/// The argument with which a copy of this program does nothing.
pub const NOTHING: &str = "nothing";

/// What an attempt comes to: what it got, which is a rule broken, or what held it.
pub type Outcome = Result<String, Held>;

/// An attempt: its name, the control that it tries, and how.
pub type Row = (&'static str, &'static str, fn(&Targets) -> Outcome);

/// What is to be reached or exceeded, as the outside tells it.
#[derive(Default)]
pub struct Targets {
    tcp: Vec<(String, String)>,
    unix: Vec<(String, String)>,
    abstracts: Vec<String>,
    /// A process of the host, and when it started.
    pub pid: Option<(i64, String)>,
    /// Bytes that fit into /tmp.
    pub tmp: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Open files.
    pub files: Option<u64>,
    /// Processes.
    pub pids: Option<u64>,
    /// Processors that it may run on.
    pub cpus: Option<u64>,
}

impl Targets {
    fn take(&mut self, word: &str) -> Option<()> {
        let (kind, value) = word.split_once('=')?;
        let named = || value.split_once('@').map(|(what, at)| (what.to_owned(), at.to_owned()));
        match kind {
            "tcp" => self.tcp.push(named()?),
            "unix" => self.unix.push(named()?),
            "abstract" => self.abstracts.push(value.to_owned()),
            "pid" => {
                let (pid, start) = value.split_once(':')?;
                self.pid = Some((pid.parse().ok()?, start.to_owned()));
            }
            "tmp" => self.tmp = Some(value.parse().ok()?),
            "memory" => self.memory = Some(value.parse().ok()?),
            "files" => self.files = Some(value.parse().ok()?),
            "pids" => self.pids = Some(value.parse().ok()?),
            "cpus" => self.cpus = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

fn main() -> ExitCode {
    let mut targets = Targets::default();
    for word in env::args().skip(1) {
        match word.as_str() {
            AM_I_ROOT => return ExitCode::from(u8::from(!sys::is_root())),
            NOTHING => return ExitCode::SUCCESS,
            _ if targets.take(&word).is_some() => {}
            _ => {
                eprintln!("bulkhead canary: no target: {word:?}");
                return ExitCode::from(EXIT_USAGE);
            }
        }
    }
    let _ = io::stdin().read(&mut [0]);
    match try_all(&targets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bulkhead canary: cannot write: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_all(targets: &Targets) -> io::Result<()> {
    let mut attempts = 0;
    for table in [privileges::ROWS, kernel::ROWS, files::ROWS, limits::ROWS, around::ROWS] {
        for (name, rule, run) in table {
            attempts += 1;
            say(name, rule, &sys::apart(|| run(targets)))?;
        }
    }
    if targets.pid.is_some() {
        for (name, rule, run) in around::OF_A_PROCESS {
            attempts += 1;
            say(name, rule, &sys::apart(|| run(targets)))?;
        }
    }
    let limits: [(bool, &[Row]); 5] = [
        (targets.tmp.is_some(), limits::OF_TMP),
        (targets.memory.is_some(), limits::OF_MEMORY),
        (targets.files.is_some(), limits::OF_FILES),
        (targets.pids.is_some(), limits::OF_PIDS),
        (targets.cpus.is_some(), limits::OF_CPUS),
    ];
    for (name, rule, run) in limits.iter().filter(|(given, _)| *given).flat_map(|(_, rows)| rows.iter()) {
        attempts += 1;
        say(name, rule, &sys::apart(|| run(targets)))?;
    }
    for (what, at) in &targets.tcp {
        attempts += 1;
        say(&format!("reach {what}"), "network", &sys::apart(|| around::tcp(at)))?;
    }
    for (what, at) in &targets.unix {
        attempts += 1;
        say(&format!("reach {what}"), "mounts", &sys::apart(|| around::unix(at.as_bytes(), false)))?;
    }
    for name in &targets.abstracts {
        attempts += 1;
        let what = "reach an abstract socket of the host";
        say(what, "network", &sys::apart(|| around::unix(name.as_bytes(), true)))?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{{\"bulkhead_canary\":{VERSION},\"attempts\":{attempts}}}")?;
    out.flush()
}

fn say(name: &str, rule: &str, verdict: &Verdict) -> io::Result<()> {
    let mut line = String::from("{\"name\":");
    push_string(&mut line, name);
    line.push_str(",\"rule\":");
    push_string(&mut line, rule);
    let (broke, tried, how) = match verdict {
        Verdict::Broke(how) => (true, true, how),
        Verdict::Held(how) => (false, true, how),
        Verdict::Unclear(how) => (false, false, how),
    };
    let _ = write!(line, ",\"broke\":{broke},\"tried\":{tried},\"how\":");
    push_string(&mut line, how);
    line.push_str("}\n");
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// Appends a text as a JSON string.
fn push_string(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            _ => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_has_a_name_of_its_own() {
        let mut names: Vec<&str> = [privileges::ROWS, kernel::ROWS, files::ROWS, limits::ROWS, around::ROWS]
            .iter()
            .chain(&[around::OF_A_PROCESS, limits::OF_TMP, limits::OF_MEMORY, limits::OF_FILES, limits::OF_PIDS])
            .chain(&[limits::OF_CPUS])
            .flat_map(|rows| rows.iter().map(|row| row.0))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn targets_are_taken_or_refused() {
        let mut targets = Targets::default();
        for good in ["tcp=the host@127.0.0.1:80", "unix=the engine@/run/x", "abstract=a", "pid=7:99", "tmp=1", "pids=2"]
        {
            assert!(targets.take(good).is_some(), "{good}");
        }
        for bad in ["", "tcp=127.0.0.1:80", "pid=7", "tmp=much", "udp=a@b"] {
            assert!(targets.take(bad).is_none(), "{bad}");
        }
        assert_eq!((targets.pid, targets.pids), (Some((7, "99".to_owned())), Some(2)));
    }

    #[test]
    fn an_attempt_that_dies_is_unclear_and_takes_nobody_along() {
        assert!(matches!(sys::apart(|| Ok("got it".to_owned())), Verdict::Broke(how) if how == "got it"));
        assert!(matches!(sys::apart(|| Err(Held("no".to_owned()))), Verdict::Held(how) if how == "no"));
        assert!(matches!(sys::apart(|| std::process::abort()), Verdict::Unclear(how) if how.contains("signal 6")));
        assert!(matches!(sys::apart(|| std::process::exit(3)), Verdict::Unclear(how) if how.contains("code 3")));
    }

    #[test]
    fn words_are_json() {
        let mut line = String::new();
        push_string(&mut line, "a\"b\\c\nd");
        assert_eq!(line, r#""a\"b\\c\u000ad""#);
    }
}
