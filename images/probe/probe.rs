//! Says, in one line of JSON on stdout, what a process in this container sees of
//! its confinement, and then becomes the server's command.
//!
//!     probe NONCE[,ATTEMPT…] COMMAND [ARG…]
//!
//! The gateway holds the line against what it asked for before it lets a byte of
//! the client through; the nonce ties the line to this one start. The probe reads
//! only /proc, /sys and /dev, needs no privilege, no shell and no library, and
//! knows nothing of limits, policies or MCP: judging is the gateway's part.
//!
//! An attempt is an address and a port: whether there is a route there, which is
//! asked without a packet. With a `!` before it, a datagram is sent from this
//! container's own address: those to all on the link need no route.
//!
//! Values of environment variables are never read into the line, only names.

#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The command line is not as above.
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
    ("devices", "devices.list"),
    ("", "memory.max"),
    ("", "memory.swap.max"),
    ("", "pids.max"),
    ("", "cpu.max"),
];

/// The namespaces of a process, as /proc/self/ns names them.
const NAMESPACES: &[&str] = &["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// What engines hide or make read-only in every container, where the kernel has
/// it at all: only a process inside can say whether it is there to be hidden.
const KERNEL: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// A public address. Nothing is sent there: the kernel is asked which address of
/// this container's it would be sent from.
const OUTSIDE: &str = "1.1.1.1:9";

/// How deep /dev is searched for devices.
const DEPTH: usize = 4;

/// What the report is made of; tests put their own in its place.
struct World<'a> {
    /// The bytes of a file.
    read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// Where a link leads.
    link: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// Whether there is something at a path.
    exists: &'a dyn Fn(&str) -> bool,
    /// Every device below /dev, as `c 1:3 /dev/null`.
    devices: &'a dyn Fn() -> Option<Vec<String>>,
    /// The number of the error that an attempt ends with, 0 for none.
    attempt: &'a dyn Fn(&str) -> Option<i32>,
}

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (nonce, command) = match (args.next(), args.next()) {
        (Some(nonce), Some(command)) => (nonce, command),
        _ => {
            eprintln!("bulkhead probe: usage: probe NONCE[,ATTEMPT...] COMMAND [ARG...]");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let names: Vec<OsString> = env::vars_os().map(|(name, _)| name).collect();
    let world = World {
        read: &|path| fs::read(path).ok(),
        link: &|path| fs::read_link(path).ok().map(|to| to.as_os_str().as_bytes().to_vec()),
        exists: &|path| fs::symlink_metadata(path).is_ok(),
        devices: &|| {
            let mut found = vec![];
            devices(Path::new("/dev"), DEPTH, &mut found).ok().map(|()| found)
        },
        attempt: &attempt,
    };
    let line = report(&nonce, &names, &world);
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

/// The whole line, its end of line included.
fn report(nonce: &OsStr, names: &[OsString], world: &World) -> String {
    let read = world.read;
    let told = nonce.to_string_lossy();
    let mut words = told.split(',');
    let mut line = String::from("{\"bulkhead_probe\":1,\"nonce\":");
    push_string(&mut line, words.next().unwrap_or_default().as_bytes());
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
    line.push('}');
    push_list(&mut line, "env", names.iter().map(|name| name.as_bytes()));
    let hostname = read("/proc/sys/kernel/hostname");
    let hostname = hostname.as_deref().map(without_line_end);
    push_member(&mut line, "hostname", hostname);
    push_member(&mut line, "init", read("/proc/1/status").as_deref());
    let label = read("/proc/self/attr/apparmor/current").or_else(|| read("/proc/self/attr/current"));
    push_member(&mut line, "apparmor", label.as_deref().map(without_line_end));
    line.push_str(",\"namespaces\":{");
    for (index, name) in NAMESPACES.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        push_string(&mut line, name.as_bytes());
        line.push(':');
        push_text(&mut line, (world.link)(&format!("/proc/self/ns/{name}")).as_deref());
    }
    line.push('}');
    let here = KERNEL.iter().filter(|path| (world.exists)(path));
    push_list(&mut line, "kernel_files", here.map(|path| path.as_bytes()));
    match (world.devices)() {
        Some(devices) => push_list(&mut line, "devices", devices.iter().map(|device| device.as_bytes())),
        None => push_member(&mut line, "devices", None),
    }
    line.push_str(",\"attempts\":{");
    for (index, tried) in words.enumerate() {
        if index > 0 {
            line.push(',');
        }
        push_string(&mut line, tried.as_bytes());
        match (world.attempt)(tried) {
            Some(code) => write!(line, ":{code}").expect("a String takes any text"),
            None => line.push_str(":null"),
        }
    }
    line.push_str("}}\n");
    line
}

/// What comes of an attempt; none where it could not be made.
fn attempt(tried: &str) -> Option<i32> {
    let done = match tried.strip_prefix('!') {
        Some(to) => {
            let asking = UdpSocket::bind("0.0.0.0:0").ok()?;
            asking.connect(OUTSIDE).ok()?;
            let own = asking.local_addr().ok()?;
            let socket = UdpSocket::bind((own.ip(), 0)).ok()?;
            socket.set_broadcast(true).ok()?;
            socket.send_to(b"", to).map(drop)
        }
        None => UdpSocket::bind("0.0.0.0:0").ok()?.connect(tried),
    };
    match done {
        Ok(()) => Some(0),
        Err(error) => error.raw_os_error(),
    }
}

/// Every device below a directory. A link is no device; a directory that cannot
/// be searched is told as `? /dev/name`, since nobody knows what it holds.
fn devices(dir: &Path, depth: usize, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let seen = match fs::symlink_metadata(&path) {
            Ok(seen) => seen,
            Err(_) => continue,
        };
        let kind = seen.file_type();
        if kind.is_dir() {
            if depth == 1 || devices(&path, depth - 1, found).is_err() {
                found.push(format!("? {}", path.display()));
            }
        } else if kind.is_char_device() || kind.is_block_device() {
            let letter = if kind.is_block_device() { 'b' } else { 'c' };
            let (major, minor) = numbers(seen.rdev());
            found.push(format!("{letter} {major}:{minor} {}", path.display()));
        }
    }
    Ok(())
}

/// Major and minor of a device, as makedev(3) puts them together.
fn numbers(device: u64) -> (u64, u64) {
    (((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff), ((device >> 12) & 0xffff_ff00) | (device & 0xff))
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
    push_text(line, text);
}

/// Appends `,"member":["item",…]`.
fn push_list<'a>(line: &mut String, member: &str, items: impl Iterator<Item = &'a [u8]>) {
    line.push(',');
    push_string(line, member.as_bytes());
    line.push_str(":[");
    for (index, item) in items.enumerate() {
        if index > 0 {
            line.push(',');
        }
        push_string(line, item);
    }
    line.push(']');
}

/// Appends a string, or null.
fn push_text(line: &mut String, text: Option<&[u8]>) {
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
        let world = World {
            read: &read,
            link: &|path| path.ends_with("/ipc").then(|| b"ipc:[7]".to_vec()),
            exists: &|path| path == "/proc/keys" || path == "/proc/sys",
            devices: &|| Some(vec!["c 1:3 /dev/null".into()]),
            attempt: &|tried| if tried == "odd" { None } else { Some(tried.len() as i32) },
        };
        assert_eq!(
            report(OsStr::new("n\"1,10.0.0.1:80,odd,!a"), &names, &world),
            concat!(
                r#"{"bulkhead_probe":1,"nonce":"n\"1","status":"Name:\tx\n","mountinfo":null,"#,
                r#""net_dev":null,"route":null,"ipv6_route":null,"limits":null,"cgroup":null,"#,
                r#""cgroup_files":{},"env":["PATH","HOME"],"hostname":"box","init":null,"#,
                r#""apparmor":null,"namespaces":{"cgroup":null,"ipc":"ipc:[7]","mnt":null,"net":null,"#,
                r#""pid":null,"user":null,"uts":null},"kernel_files":["/proc/keys","/proc/sys"],"#,
                r#""devices":["c 1:3 /dev/null"],"attempts":{"10.0.0.1:80":11,"odd":null,"!a":2}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn attempts_end_with_the_kernels_own_number() {
        assert_eq!(attempt("127.0.0.1:9"), Some(0));
        assert_eq!(attempt("no address"), None);
        assert_eq!(attempt("!no address"), None);
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
    fn device_numbers_are_those_of_makedev() {
        assert_eq!((numbers(0x103), numbers(0x0301)), ((1, 3), (3, 1)));
        assert_eq!((numbers(0xfe00), numbers(0x0010_8801)), ((254, 0), (136, 257)));
    }

    #[test]
    fn devices_are_found_in_the_directories_of_dev_and_links_are_none() {
        let mut found = vec![];
        devices(Path::new("/dev"), DEPTH, &mut found).unwrap();
        assert!(found.contains(&"c 1:3 /dev/null".to_string()), "{found:?}");
        assert!(!found.iter().any(|device| device.ends_with("/dev/stdin")), "{found:?}");
    }

    #[test]
    fn controllers_mounted_together_are_found_under_their_joint_name() {
        let own = "2:cpu,cpuacct:/\n";
        let read = files(&[("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")]);
        assert_eq!(cgroup_files(own, &read).len(), 1);
    }
}
