//! Says, in one line of JSON on stdout, what a process in this container sees of
//! its confinement, and then becomes the server's command.
//!
//!     probe NONCE COMMAND [ARG…]
//!
//! The gateway holds the line against what it asked for before it lets a byte of
//! the client through; the nonce ties the line to this one start. The probe reads
//! only /proc and /sys, needs no privilege, no shell and no library, and knows
//! nothing of limits, policies or MCP: judging is the gateway's part.
//!
//! Values of environment variables are never read into the line, only names.

#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The command line is not `NONCE COMMAND [ARG…]`.
const EXIT_USAGE: u8 = 2;
/// The line could not be written: nothing runs unproven.
const EXIT_UNHEARD: u8 = 125;
/// The command exists and cannot be run.
const EXIT_NOT_RUNNABLE: u8 = 126;
/// There is no such command.
const EXIT_NOT_FOUND: u8 = 127;

/// Member of the line, and the file whose text it holds. `null` where the file
/// cannot be read: an unreadable file is not an empty one.
const FILES: &[(&str, &str)] = &[
    ("status", "/proc/self/status"),
    ("mountinfo", "/proc/self/mountinfo"),
    ("net_dev", "/proc/net/dev"),
    ("route", "/proc/net/route"),
    ("ipv6_route", "/proc/net/ipv6_route"),
    ("limits", "/proc/self/limits"),
    ("cgroup", "/proc/self/cgroup"),
];

/// Controller and file of cgroup v1, then of v2 (one tree, so no controller).
const CGROUP_FILES: &[(&str, &str)] = &[
    ("memory", "memory.limit_in_bytes"),
    ("memory", "memory.memsw.limit_in_bytes"),
    ("pids", "pids.max"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_period_us"),
    ("", "memory.max"),
    ("", "memory.swap.max"),
    ("", "pids.max"),
    ("", "cpu.max"),
];

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (nonce, command) = match (args.next(), args.next()) {
        (Some(nonce), Some(command)) => (nonce, command),
        _ => {
            eprintln!("bulkhead probe: usage: probe NONCE COMMAND [ARG...]");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let names: Vec<OsString> = env::vars_os().map(|(name, _)| name).collect();
    let line = report(&nonce, &names, &|path| fs::read(path).ok());
    if let Err(error) = say(&line) {
        eprintln!("bulkhead probe: cannot write the report: {error}");
        return ExitCode::from(EXIT_UNHEARD);
    }
    become_command(&command, args)
}

/// Returns only where the command could not be started.
fn become_command(command: &OsStr, args: impl Iterator<Item = OsString>) -> ExitCode {
    let error = Command::new(command).args(args).exec();
    eprintln!("bulkhead probe: cannot run {command:?}: {error}");
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_RUNNABLE,
    })
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// The whole line, its end of line included. `read` gives the bytes of a file.
fn report(nonce: &OsStr, names: &[OsString], read: &dyn Fn(&str) -> Option<Vec<u8>>) -> String {
    let mut line = String::from("{\"bulkhead_probe\":1,\"nonce\":");
    push_string(&mut line, nonce.as_bytes());
    for (member, path) in FILES {
        push_member(&mut line, member, read(path).as_deref());
    }
    line.push_str(",\"cgroup_files\":{");
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let mut first = true;
    for (path, text) in cgroup_files(&String::from_utf8_lossy(&own), read) {
        if !first {
            line.push(',');
        }
        first = false;
        push_string(&mut line, path.as_bytes());
        line.push(':');
        push_string(&mut line, &text);
    }
    line.push_str("},\"env\":[");
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        push_string(&mut line, name.as_bytes());
    }
    line.push(']');
    let hostname = read("/proc/sys/kernel/hostname");
    let hostname = hostname.as_deref().map(without_line_end);
    push_member(&mut line, "hostname", hostname);
    push_member(&mut line, "init", read("/proc/1/status").as_deref());
    line.push_str("}\n");
    line
}

/// The limits of the cgroup that this process is in, by path; absent files are
/// left out.
fn cgroup_files(own: &str, read: &dyn Fn(&str) -> Option<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    CGROUP_FILES
        .iter()
        .filter_map(|(controller, file)| {
            places(own, controller, file).into_iter().find_map(|path| read(&path).map(|text| (path, text)))
        })
        .collect()
}

/// Where a limit may be, the likeliest first. `own` is the text of
/// /proc/self/cgroup, lines of `hierarchy:controllers:path`.
///
/// Most engines mount the container's own cgroup as the top of the tree. Where
/// the whole tree of the host is mounted instead (host cgroup namespace on v2),
/// the top holds the host's limits or none, and ours are under our own path: so
/// that one is looked at first.
fn places(own: &str, controller: &str, file: &str) -> Vec<String> {
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (list, path) = match (fields.next(), fields.next()) {
            (Some(list), Some(path)) => (list, path.trim_end_matches('/')),
            _ => continue,
        };
        if !list.split(',').any(|name| name == controller) {
            continue;
        }
        let mut tops = vec![format!("/sys/fs/cgroup/{controller}")];
        if list != controller {
            // Controllers mounted together: "cpu" may be only "cpu,cpuacct".
            tops.push(format!("/sys/fs/cgroup/{list}"));
        }
        let under = |dir: &str| -> Vec<String> {
            tops.iter().map(|top| format!("{}{}/{}", top.trim_end_matches('/'), dir, file)).collect()
        };
        let mut places = if path.is_empty() { vec![] } else { under(path) };
        places.extend(under(""));
        return places;
    }
    vec![]
}

fn without_line_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Appends `,"member":"text"`, or `,"member":null`.
fn push_member(line: &mut String, member: &str, text: Option<&[u8]>) {
    line.push(',');
    push_string(line, member.as_bytes());
    line.push(':');
    match text {
        Some(text) => push_string(line, text),
        None => line.push_str("null"),
    }
}

/// Appends any bytes as a JSON string; what is not UTF-8 becomes U+FFFD.
fn push_string(line: &mut String, bytes: &[u8]) {
    line.push('"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            // JSON lets the last three stand, but some readers end a line there.
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                write!(line, "\\u{:04x}", u32::from(c)).expect("a String takes any text");
            }
            _ => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> String {
        let mut line = String::new();
        push_string(&mut line, bytes);
        line
    }

    /// A file system of the given paths and texts.
    fn files<'a>(known: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<Vec<u8>> + 'a {
        move |path| {
            let found = known.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| text.as_bytes().to_vec())
        }
    }

    #[test]
    fn plain_text_stands_as_it_is() {
        assert_eq!(string(b""), r#""""#);
        assert_eq!(string(b"lo: 0 /x"), r#""lo: 0 /x""#);
        assert_eq!(string("é 漢 🚢".as_bytes()), "\"é 漢 🚢\"");
    }

    #[test]
    fn quotes_and_backslashes_are_escaped() {
        assert_eq!(string(br#"a"b\c"#), r#""a\"b\\c""#);
        assert_eq!(string(br"\040"), r#""\\040""#);
    }

    #[test]
    fn controls_are_escaped_so_the_line_stays_one_line() {
        assert_eq!(string(b"a\nb\r\tc"), r#""a\nb\r\tc""#);
        assert_eq!(string(b"\0\x1b\x1f\x7f"), r#""\u0000\u001b\u001f\u007f""#);
        assert_eq!(string("\u{85}\u{2028}\u{2029}".as_bytes()), r#""\u0085\u2028\u2029""#);
    }

    #[test]
    fn bytes_that_are_no_utf8_become_replacement_characters() {
        assert_eq!(string(b"a\xffb"), "\"a\u{fffd}b\"");
        assert_eq!(string(b"\xe2\x82"), "\"\u{fffd}\"");
        assert_eq!(string(b"\xed\xa0\x80").matches('\u{fffd}').count(), 3);
    }

    #[test]
    fn every_byte_alone_gives_a_closed_string_without_raw_controls() {
        for byte in 0..=255u8 {
            let text = string(&[byte]);
            assert!(text.len() > 2 && text.starts_with('"') && text.ends_with('"'));
            assert!(!text.chars().any(char::is_control), "{byte:#x}: {text}");
        }
    }

    #[test]
    fn unreadable_files_are_null_and_the_report_is_one_line() {
        let read = files(&[("/proc/self/status", "Name:\tx\n"), ("/proc/sys/kernel/hostname", "box\n")]);
        let names = [OsString::from("PATH"), OsString::from("HOME")];
        assert_eq!(
            report(OsStr::new("n\"1"), &names, &read),
            concat!(
                r#"{"bulkhead_probe":1,"nonce":"n\"1","status":"Name:\tx\n","mountinfo":null,"#,
                r#""net_dev":null,"route":null,"ipv6_route":null,"limits":null,"cgroup":null,"#,
                r#""cgroup_files":{},"env":["PATH","HOME"],"hostname":"box","init":null}"#,
                "\n"
            )
        );
    }

    #[test]
    fn v1_limits_are_at_the_top_where_the_own_cgroup_is_mounted() {
        let own = "4:memory:/docker/id\n8:pids:/docker/id\n1:cpu:/docker/id\n0::/docker/id\n";
        let read = files(&[
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "64\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
        ]);
        let found: Vec<_> = cgroup_files(own, &read).into_iter().map(|f| f.0).collect();
        assert_eq!(found, ["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"]);
    }

    #[test]
    fn v2_limits_under_the_own_path_win_over_the_top() {
        let read = files(&[("/sys/fs/cgroup/pids.max", "max\n"), ("/sys/fs/cgroup/docker/id/pids.max", "64\n")]);
        let found = cgroup_files("0::/docker/id\n", &read);
        assert_eq!(found, [("/sys/fs/cgroup/docker/id/pids.max".into(), b"64\n".to_vec())]);
        let found = cgroup_files("0::/\n", &read);
        assert_eq!(found[0].0, "/sys/fs/cgroup/pids.max");
    }

    #[test]
    fn controllers_mounted_together_are_found_under_their_joint_name() {
        let own = "2:cpu,cpuacct:/\n";
        let read = files(&[("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")]);
        assert_eq!(cgroup_files(own, &read).len(), 1);
    }
}
