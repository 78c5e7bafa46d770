//! Attempts on files: to change what is read-only, to mount what is not there, to run what was written.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::raw::c_long;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::sys::{self, at, c, call, nr, Held};
use crate::{around, Outcome, Row, Targets, NOTHING};

/// Where a server may write.
const PLACES: [&str; 4] = ["/tmp", "/run", "/home/mcp", "/dev/shm"];

pub const ROWS: &[Row] = &[
    ("mount a file system", "capabilities", |_| mounted("none", "tmpfs", "")),
    ("mount /proc anew", "capabilities", |_| mounted("proc", "proc", "")),
    ("mount the control groups anew", "capabilities", |_| {
        mounted("cgroup", "cgroup", "memory").or_else(|_| mounted("none", "cgroup2", ""))
    }),
    ("show a directory at another place", "capabilities", bind),
    ("copy the tree of mounts", "capabilities", open_tree),
    ("make the root writable", "root file system", |_| remount("/")),
    ("write to /", "root file system", |_| write("/")),
    ("write to /etc", "root file system", |_| write("/etc")),
    ("write to /usr", "root file system", |_| write("/usr")),
    ("change the hosts file", "mounts", |_| append("/etc/hosts")),
    ("change which name server is asked", "mounts", |_| append("/etc/resolv.conf")),
    ("write to the probe's volume", "mounts", |_| write(&probes_place()?)),
    ("make the probe's volume writable", "mounts", |_| remount(&probes_place()?)),
    ("see the host's files by a process of it", "mounts", root_of_another),
    ("run a program that it has written", "tmpfs", run_written),
    ("make /tmp run programs", "tmpfs", remount_tmp),
    ("find a variable that nobody declared", "environment", environment),
];

fn mounted(from: &str, kind: &str, data: &str) -> Outcome {
    sys::own_mounts();
    sys::mount(from, "/tmp", kind, 0, data)?;
    Ok(format!("{kind} is mounted"))
}

fn bind(_: &Targets) -> Outcome {
    const BIND: c_long = 0x1000;
    sys::own_mounts();
    sys::mount("/proc", "/tmp", "", BIND, "")?;
    Ok("/proc is seen at /tmp".to_owned())
}

fn open_tree(_: &Targets) -> Outcome {
    const CLONE: c_long = 1;
    call(nr::OPEN_TREE, &[-100, at(&c("/")), CLONE])?;
    Ok("a copy of the mounts".to_owned())
}

fn remount(place: &str) -> Outcome {
    const REMOUNT_BIND: c_long = 0x20 | 0x1000;
    sys::own_mounts();
    sys::mount("", place, "", REMOUNT_BIND, "")?;
    write(place)
}

fn remount_tmp(_: &Targets) -> Outcome {
    sys::own_mounts();
    const REMOUNT_BIND: c_long = 0x20 | 0x1000;
    if sys::mount("", "/tmp", "", REMOUNT_BIND, "").is_err() {
        // Where it is no mount of its own, it can be made one.
        sys::mount("none", "/tmp", "tmpfs", 0, "")?;
    }
    run_in("/tmp")
}

/// Where the probe's volume is: at each start another place.
fn probes_place() -> std::io::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let found = places.find(|place| place.starts_with("/.bulkhead"));
    found.map(str::to_owned).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// A file there, or the directory itself where the image has none.
fn write(place: &str) -> Outcome {
    if !Path::new(place).exists() {
        fs::create_dir(place)?;
        fs::remove_dir(place)?;
        return Ok(format!("{place} was made"));
    }
    let path = format!("{}/canary-file", place.trim_end_matches('/'));
    File::create(&path)?.write_all(b"x")?;
    fs::remove_file(&path)?;
    Ok(format!("{path} was written"))
}

/// Opened, and left as it is.
fn append(path: &str) -> Outcome {
    OpenOptions::new().append(true).open(path)?;
    Ok(format!("{path} was opened for writing"))
}

/// By a process of the host where one is known, else by the first that is seen.
fn root_of_another(targets: &Targets) -> Outcome {
    let pid = around::host_process(targets).unwrap_or(1);
    let root = format!("/proc/{pid}/root/");
    let (theirs, ours) = (fs::metadata(&root)?, fs::metadata("/")?);
    if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
        return Err(Held("its root is this one".to_owned()));
    }
    Ok(format!("{} entries in another root", fs::read_dir(&root)?.count()))
}

fn run_written(_: &Targets) -> Outcome {
    let mut why = Held("nowhere to put it".to_owned());
    for place in PLACES {
        match run_in(place) {
            Err(held) => why = held,
            broke => return broke,
        }
    }
    Err(why)
}

fn run_in(place: &str) -> Outcome {
    let path = Path::new(place).join("canary-program");
    let ran = fs::copy("/proc/self/exe", &path)
        .and_then(|_| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .and_then(|()| std::process::Command::new(&path).arg(NOTHING).status());
    let _ = fs::remove_file(&path);
    match ran? {
        status if status.success() => Ok(format!("a program in {place} was run")),
        status => Err(Held(format!("it ended with {status}"))),
    }
}

/// Names only.
fn environment(_: &Targets) -> Outcome {
    let given = ["HOME", "LANG", "PATH"];
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let others: Vec<String> = names.filter(|name| !given.contains(&name.as_str())).collect();
    if others.is_empty() {
        return Err(Held("there is none".to_owned()));
    }
    Ok(others.join(" "))
}
