//! Attempts to use more than was given: by lifting a limit, and by going over it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::raw::c_long;

use crate::sys::{self, call, nr, End, Held};
use crate::{Outcome, Row, Targets};

const CORE: c_long = 4;
const NOFILE: c_long = 7;

pub const ROWS: &[Row] = &[
    ("raise its own limit of memory", "memory", |_| lift("memory", "memory.limit_in_bytes", "memory.max")),
    ("raise its own limit of swap", "swap", |_| lift("memory", "memory.memsw.limit_in_bytes", "memory.swap.max")),
    ("raise its own limit of processes", "pids", |_| lift("pids", "pids.max", "pids.max")),
    ("raise its own limit of processors", "cpu", |_| lift("cpu", "cpu.cfs_quota_us", "cpu.max")),
    ("allow itself a device", "devices", devices_allow),
    ("make a control group", "namespaces", make_group),
    ("have the kernel start a program as root", "capabilities", release_agent),
    ("never be killed for want of memory", "memory", never_killed),
    ("raise its limit of memory dumps", "core dumps", raise_core),
    ("leave a dump of its memory", "core dumps", dump),
];

pub const OF_TMP: &[Row] = &[("put more into /tmp than fits", "tmpfs", fill)];
pub const OF_MEMORY: &[Row] = &[("use more memory than it has", "memory", allocate)];
pub const OF_FILES: &[Row] = &[("open more files than it may", "open files", open_files)];
pub const OF_PIDS: &[Row] = &[("start more processes than it may", "pids", multiply)];
pub const OF_CPUS: &[Row] = &[("run on more processors than it may", "processors", spread)];

/// Where a control group's file may be: under the own path, or at the top of what is mounted; version 1, then 2.
fn places(controller: &str, v1: &str, v2: &str) -> Vec<String> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path_of = |wanted: &str| -> String {
        let mut lines = own.lines().map(|line| line.splitn(3, ':').skip(1));
        let found = lines.find_map(|mut fields| {
            let (list, path) = (fields.next()?, fields.next()?);
            list.split(',').any(|name| name == wanted).then(|| path.trim_end_matches('/').to_owned())
        });
        found.unwrap_or_default()
    };
    let top = "/sys/fs/cgroup";
    vec![
        format!("{top}/{controller}{}/{v1}", path_of(controller)),
        format!("{top}/{controller}/{v1}"),
        format!("{top}{}/{v2}", path_of("")),
        format!("{top}/{v2}"),
    ]
}

fn first(places: Vec<String>, one: impl Fn(&str) -> io::Result<()>) -> Outcome {
    let mut why: Option<io::Error> = None;
    for place in places {
        match one(&place) {
            Ok(()) => return Ok(format!("{place} was changed")),
            // That one is not there says less than that one must not be changed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && why.is_some() => {}
            Err(error) => why = Some(error),
        }
    }
    Err(why.map_or_else(|| Held("there is no such file".to_owned()), Held::from))
}

/// Written with what it holds.
fn lift(controller: &str, v1: &str, v2: &str) -> Outcome {
    first(places(controller, v1, v2), |path| {
        let limit = fs::read(path)?;
        OpenOptions::new().write(true).open(path)?.write_all(&limit)
    })
}

/// Opened, and left as it is.
fn devices_allow(_: &Targets) -> Outcome {
    let places = places("devices", "devices.allow", "devices.allow");
    first(places, |path| OpenOptions::new().write(true).open(path).map(drop))
}

fn make_group(_: &Targets) -> Outcome {
    first(places("pids", "canary", "canary"), |path| {
        fs::create_dir(path)?;
        fs::remove_dir(path)
    })
}

/// The file that names the program: opened, and left as it is.
fn release_agent(_: &Targets) -> Outcome {
    sys::own_mounts();
    sys::mount("cgroup", "/tmp", "cgroup", 0, "memory")?;
    OpenOptions::new().write(true).open("/tmp/release_agent")?;
    Ok("release_agent was opened for writing".to_owned())
}

fn never_killed(_: &Targets) -> Outcome {
    fs::write("/proc/self/oom_score_adj", "-1000")?;
    Ok("a score of -1000".to_owned())
}

fn set_limit(what: c_long, limit: u64) -> io::Result<()> {
    let both = [limit, limit];
    call(nr::PRLIMIT64, &[0, what, both.as_ptr() as c_long, 0]).map(drop)
}

fn raise_core(_: &Targets) -> Outcome {
    set_limit(CORE, u64::MAX)?;
    Ok("a dump may have any size".to_owned())
}

/// After an attempt to raise the limit.
fn open_files(targets: &Targets) -> Outcome {
    let limit = targets.files.unwrap_or(0);
    let _ = set_limit(NOFILE, limit + 64);
    let mut open = Vec::new();
    while open.len() as u64 <= limit {
        open.push(File::open("/dev/null")?);
    }
    Ok(format!("{} are open", open.len()))
}

fn dump(_: &Targets) -> Outcome {
    std::env::set_current_dir("/tmp")?;
    let mut limits = [0u64; 2];
    call(nr::PRLIMIT64, &[0, CORE, 0, limits.as_mut_ptr() as c_long])?;
    let pid = sys::child(|| {
        let _ = set_limit(CORE, limits[1]);
        std::process::abort()
    })?;
    let dumped = matches!(sys::end(pid)?, End::Signal(_, true));
    let mut left = false;
    for entry in fs::read_dir(".")? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with("core") {
            left = true;
            let _ = fs::remove_file(name);
        }
    }
    // A kernel that hands dumps to a program does so whatever the limit is, unless that program asks for it.
    if left || dumped && limits[1] > 0 {
        return Ok("its memory was dumped".to_owned());
    }
    Err(Held(format!("no dump, with a limit of {}", limits[1])))
}

fn fill(targets: &Targets) -> Outcome {
    let size = targets.tmp.unwrap_or(0);
    let path = "/tmp/canary-fill";
    let mut file = File::create(path)?;
    let piece = vec![1u8; 1 << 20];
    let mut written = 0;
    let filled = loop {
        match file.write(&piece) {
            Ok(length) => written += length as u64,
            Err(error) => break Err(error.into()),
        }
        if written > size {
            break Ok(format!("{written} bytes"));
        }
    };
    fs::remove_file(path)?;
    filled
}

/// In a process that is to be killed before any other.
fn allocate(targets: &Targets) -> Outcome {
    let size = targets.memory.unwrap_or(0);
    let pid = sys::child(|| {
        let _ = fs::write("/proc/self/oom_score_adj", "1000");
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=(size >> 20) + 8 {
            pieces.push(vec![1; 1 << 20]);
        }
        i32::from(pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() < size)
    })?;
    match sys::end(pid)? {
        End::Exit(0) => Ok(format!("more than {size} bytes")),
        End::Signal(9, _) => Err(Held("it was killed".to_owned())),
        _ => Err(Held("it had to give up".to_owned())),
    }
}

fn multiply(targets: &Targets) -> Outcome {
    let limit = targets.pids.unwrap_or(0);
    let mut started = Vec::new();
    let refused = loop {
        match sys::idler() {
            Ok(pid) => started.push(pid),
            Err(error) => break Some(error),
        }
        if started.len() as u64 > limit {
            break None;
        }
    };
    for pid in &started {
        sys::kill(*pid);
        sys::end(*pid)?;
    }
    match refused {
        Some(error) => Err(Held(format!("{} were started: {error}", started.len()))),
        None => Ok(format!("{} were started", started.len())),
    }
}

/// On one after the other, of all that there can be; then it may run on all of these again.
fn spread(targets: &Targets) -> Outcome {
    let most = targets.cpus.unwrap_or(0);
    let affinity = |set: &[u64; 128]| {
        let size = std::mem::size_of_val(set) as c_long;
        call(nr::SCHED_SETAFFINITY, &[0, size, set.as_ptr() as c_long])
    };
    let mut ran = 0;
    let mut refused = None;
    for number in 0..128 * 64 {
        let mut set = [0u64; 128];
        set[number / 64] = 1 << (number % 64);
        match affinity(&set) {
            Ok(_) => ran += 1,
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if ran <= most => Err(Held(format!("on {ran}, and beyond that: {error}"))),
        _ => Ok(format!("it ran on {ran}")),
    }
}
