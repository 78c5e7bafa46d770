//! Attempts at more rights than a server has: capabilities, another user, namespaces, what the system-call filter refuses.

use std::fs::{self, File};
use std::os::raw::c_long;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::sys::{self, at, c, call, nr, End, Held};
use crate::{around, Outcome, Row, Targets, AM_I_ROOT};

/// Of a server's user, and of nobody else where root has to become somebody.
const SOMEBODY: c_long = 10001;

pub const ROWS: &[Row] = &[
    ("raise every capability", "capabilities", capset),
    ("find a capability that programs may regain", "capabilities", bounding),
    ("give a file to root", "capabilities", chown),
    ("open a raw socket", "capabilities", |_| open(2, 3, 1)),
    ("open a packet socket", "capabilities", |_| open(17, 3, 0)),
    ("change the root directory", "capabilities", chroot),
    ("exchange the root file system", "capabilities", pivot_root),
    ("take more of the processors than others", "capabilities", nice),
    ("set the host name", "capabilities", sethostname),
    ("watch every access to files", "capabilities", fanotify),
    ("open a file by its number", "capabilities", handle),
    ("run without no-new-privileges", "privilege escalation", no_new_privs),
    ("become root by a program of root's", "privilege escalation", set_user_id),
    ("become root", "user", become_root),
    ("become a member of root's group", "user", become_group),
    ("join the group of the disks", "user", join_group),
    ("run without a filter of system calls", "seccomp", no_filter),
    ("keep a key in the kernel", "seccomp", add_key),
    ("look into the kernel's keyrings", "seccomp", keyctl),
    ("switch the layout of memory to a fixed one", "seccomp", personality),
    ("handle page faults of the kernel", "seccomp", userfaultfd),
    ("write quotas to the disks", "seccomp", quotactl),
    ("make a user namespace", "namespaces", |_| unshare(0x1000_0000)),
    ("make a user namespace with a new process", "namespaces", clone_user),
    ("make a mount namespace", "namespaces", |_| unshare(0x2_0000)),
    ("make a network namespace", "namespaces", |_| unshare(0x4000_0000)),
    ("make a process namespace", "namespaces", |_| unshare(0x2000_0000)),
    ("make a namespace of control groups", "namespaces", |_| unshare(0x200_0000)),
    ("enter the mounts of the host", "namespaces", |targets| setns(targets, "mnt")),
    ("enter the network of the host", "namespaces", |targets| setns(targets, "net")),
];

fn capset(_: &Targets) -> Outcome {
    // Version 3 of the header, for this process; effective and permitted, low and high.
    let header: [u32; 2] = [0x2008_0522, 0];
    let data: [u32; 6] = [1 << 21, 1 << 21, 0, 0, 0, 0];
    call(nr::CAPSET, &[header.as_ptr() as c_long, data.as_ptr() as c_long])?;
    Ok("CAP_SYS_ADMIN is in effect".to_owned())
}

fn bounding(_: &Targets) -> Outcome {
    const READ: c_long = 23;
    let found: Vec<String> =
        (0..41).filter(|n| matches!(call(nr::PRCTL, &[READ, *n]), Ok(1))).map(|n| n.to_string()).collect();
    if found.is_empty() {
        return Err(Held("the bounding set is empty".to_owned()));
    }
    Ok(format!("{} capabilities are in the bounding set", found.len()))
}

fn chown(_: &Targets) -> Outcome {
    let path = "/tmp/canary-owner";
    File::create(path)?;
    call(nr::FCHOWNAT, &[-100, at(&c(path)), 0, 0, 0])?;
    Ok(format!("{path} is root's"))
}

fn open(family: c_long, kind: c_long, protocol: c_long) -> Outcome {
    sys::socket(family, kind, protocol)?;
    Ok("a socket".to_owned())
}

fn chroot(_: &Targets) -> Outcome {
    call(nr::CHROOT, &[at(&c("/tmp"))])?;
    Ok("/tmp is the root".to_owned())
}

fn pivot_root(_: &Targets) -> Outcome {
    sys::own_mounts();
    let _ = sys::mount("none", "/tmp", "tmpfs", 0, "");
    std::env::set_current_dir("/tmp")?;
    let here = c(".");
    call(nr::PIVOT_ROOT, &[at(&here), at(&here)])?;
    Ok("another root".to_owned())
}

fn nice(_: &Targets) -> Outcome {
    call(nr::SETPRIORITY, &[0, 0, -5])?;
    Ok("a nice value of -5".to_owned())
}

fn sethostname(_: &Targets) -> Outcome {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim_end();
    call(nr::SETHOSTNAME, &[at(&c(name)), name.len() as c_long])?;
    Ok("it was set to what it is".to_owned())
}

fn fanotify(_: &Targets) -> Outcome {
    const CLASS_CONTENT: c_long = 4;
    call(nr::FANOTIFY_INIT, &[CLASS_CONTENT])?;
    Ok("a watch on contents".to_owned())
}

/// The number of a place that is seen from here: the same call opens what is not.
fn handle(_: &Targets) -> Outcome {
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let (mut mount, pointer) = (0i32, handle.as_mut_ptr() as c_long);
    let place = c("/dev/shm");
    // Where even that is refused, a made-up number has to be: whoever may try one may try all.
    if call(nr::NAME_TO_HANDLE_AT, &[-100, at(&place), pointer, &mut mount as *mut i32 as c_long]).is_err() {
        handle[..4].copy_from_slice(&[8, 1, 2, 0]);
    }
    let of = sys::fd(File::open("/dev/shm")?);
    call(nr::OPEN_BY_HANDLE_AT, &[of, pointer, 0])?;
    Ok("/dev/shm was opened by its number".to_owned())
}

fn no_new_privs(_: &Targets) -> Outcome {
    const GET: c_long = 39;
    match call(nr::PRCTL, &[GET])? {
        0 => Ok("programs may give more rights".to_owned()),
        _ => Err(Held("no-new-privileges is set".to_owned())),
    }
}

/// A copy of this program that is root's and makes root of whoever runs it, run by somebody.
fn set_user_id(_: &Targets) -> Outcome {
    let mut why = Held("nowhere to put it".to_owned());
    for place in ["/", "/tmp", "/dev/shm"] {
        let path = Path::new(place).join("canary-root");
        match fs::copy("/proc/self/exe", &path).map_err(Held::from).and_then(|_| run_as_root(&path)) {
            Ok(how) => {
                let _ = fs::remove_file(&path);
                return Ok(how);
            }
            Err(held) => why = held,
        }
        let _ = fs::remove_file(&path);
    }
    Err(why)
}

fn run_as_root(path: &Path) -> Outcome {
    let text = path.display().to_string();
    call(nr::FCHOWNAT, &[-100, at(&c(&text)), 0, 0, 0])?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o4755))?;
    let pid = sys::child(|| {
        if call(nr::SETRESUID, &[SOMEBODY, SOMEBODY, SOMEBODY]).is_err() {
            return 125;
        }
        std::process::Command::new(path).arg(AM_I_ROOT).status().ok().and_then(|s| s.code()).unwrap_or(126)
    })?;
    match sys::end(pid)? {
        End::Exit(0) => Ok(format!("{text} made root of a user")),
        End::Exit(code) => Err(Held(format!("it ended with code {code}"))),
        End::Signal(signal, _) => Err(Held(format!("it was ended by signal {signal}"))),
    }
}

fn become_root(_: &Targets) -> Outcome {
    call(nr::SETRESUID, &[0, 0, 0])?;
    Ok(format!("user {}", sys::user()))
}

fn become_group(_: &Targets) -> Outcome {
    call(nr::SETRESGID, &[0, 0, 0])?;
    Ok("group 0".to_owned())
}

fn join_group(_: &Targets) -> Outcome {
    let disks = [6u32];
    call(nr::SETGROUPS, &[1, disks.as_ptr() as c_long])?;
    Ok("group 6".to_owned())
}

fn no_filter(_: &Targets) -> Outcome {
    const GET: c_long = 21;
    match call(nr::PRCTL, &[GET])? {
        0 => Ok("no system call is filtered".to_owned()),
        _ => Err(Held("system calls are filtered".to_owned())),
    }
}

fn add_key(_: &Targets) -> Outcome {
    const PROCESS_KEYRING: c_long = -2;
    let (kind, name) = (c("user"), c("canary"));
    call(nr::ADD_KEY, &[at(&kind), at(&name), at(&name), 6, PROCESS_KEYRING])?;
    Ok("a key was added".to_owned())
}

fn keyctl(_: &Targets) -> Outcome {
    const GET_ID: c_long = 0;
    const SESSION: c_long = -3;
    call(nr::KEYCTL, &[GET_ID, SESSION, 1])?;
    Ok("a session's keyring".to_owned())
}

fn personality(_: &Targets) -> Outcome {
    call(nr::PERSONALITY, &[0x004_0000])?;
    Ok("addresses are no longer random".to_owned())
}

fn userfaultfd(_: &Targets) -> Outcome {
    call(nr::USERFAULTFD, &[0])?;
    Ok("a descriptor for page faults".to_owned())
}

fn quotactl(_: &Targets) -> Outcome {
    const SYNC: c_long = 0x80_0001 << 8;
    call(nr::QUOTACTL, &[SYNC])?;
    Ok("the quotas of all disks were written".to_owned())
}

fn unshare(kind: c_long) -> Outcome {
    call(nr::UNSHARE, &[kind])?;
    Ok("a new namespace".to_owned())
}

fn clone_user(_: &Targets) -> Outcome {
    const NEWUSER_SIGCHLD: c_long = 0x1000_0000 | 17;
    match call(nr::CLONE, &[NEWUSER_SIGCHLD])? {
        0 => std::process::exit(0),
        pid => {
            sys::end(pid as i32)?;
            Ok("a process in a new namespace".to_owned())
        }
    }
}

/// By a process of the host where one is known, else by the first that is seen.
fn setns(targets: &Targets, kind: &str) -> Outcome {
    let pid = around::host_process(targets).unwrap_or(1);
    let of = sys::fd(File::open(format!("/proc/{pid}/ns/{kind}"))?);
    call(nr::SETNS, &[of, 0])?;
    Ok(format!("the {kind} namespace of process {pid}"))
}
