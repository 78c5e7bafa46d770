//! The kernel, asked directly: system calls by number, and a process for each attempt.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::raw::{c_int, c_long, c_uint};
use std::os::unix::io::{FromRawFd as _, IntoRawFd as _};

use crate::Outcome;

/// Longest that an attempt may take, in seconds.
const DEADLINE: c_uint = 8;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn _exit(code: c_int) -> !;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn getuid() -> c_uint;
    fn geteuid() -> c_uint;
    fn pause() -> c_int;
    fn pipe(ends: *mut c_int) -> c_int;
}

/// What kept an attempt from breaking a rule.
#[derive(Debug, PartialEq)]
pub struct Held(pub String);

impl From<io::Error> for Held {
    fn from(error: io::Error) -> Self {
        Held(error.to_string())
    }
}

/// What became of an attempt.
pub enum Verdict {
    /// It got what the rule forbids.
    Broke(String),
    /// It did not.
    Held(String),
    /// It did not come to its end, and nobody knows.
    Unclear(String),
}

/// A system call; `args` are numbers, or pointers to what outlives the call.
pub fn call(number: c_long, args: &[c_long]) -> io::Result<c_long> {
    let arg = |at: usize| args.get(at).copied().unwrap_or(0);
    // Safe as far as this program goes: each attempt is a process of its own that ends with it, and every pointer among
    // the arguments is to a value that its caller still holds.
    let answer = unsafe { syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// A text for the kernel.
pub fn c(text: &str) -> CString {
    CString::new(text).expect("no text here has a zero byte")
}

/// The address of a text.
pub fn at(text: &CString) -> c_long {
    text.as_ptr() as c_long
}

/// The error's number.
pub fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Whether this process acts as root without having been started by root.
pub fn is_root() -> bool {
    unsafe { geteuid() == 0 && getuid() != 0 }
}

/// The acting user.
pub fn user() -> u32 {
    unsafe { geteuid() }
}

/// A child process that carries out `work` and ends; its number.
pub fn child(work: impl FnOnce() -> i32) -> io::Result<c_int> {
    // Nothing of the parent is used by two: it has a single thread, which waits.
    match unsafe { fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = work();
            unsafe { _exit(code) }
        }
        pid => Ok(pid),
    }
}

/// A child that does nothing until it is killed.
pub fn idler() -> io::Result<c_int> {
    child(|| loop {
        unsafe { pause() };
    })
}

/// How a child ended.
pub enum End {
    Exit(i32),
    /// By that signal, and whether its memory was dumped.
    Signal(i32, bool),
}

/// Waits for a child's end.
pub fn end(pid: c_int) -> io::Result<End> {
    let mut status: c_int = 0;
    while unsafe { waitpid(pid, &mut status, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(match status & 0x7f {
        0 => End::Exit((status >> 8) & 0xff),
        signal => End::Signal(signal, status & 0x80 != 0),
    })
}

/// Kills a child.
pub fn kill(pid: c_int) {
    let _ = call(nr::KILL, &[pid.into(), 9]);
}

/// Carries out an attempt in a process of its own, and ends whatever it leaves.
pub fn apart(attempt: impl FnOnce() -> Outcome) -> Verdict {
    let unclear = |error: io::Error| Verdict::Unclear(format!("it could not be tried: {error}"));
    let mut ends: [c_int; 2] = [0; 2];
    if unsafe { pipe(ends.as_mut_ptr()) } == -1 {
        return unclear(io::Error::last_os_error());
    }
    let (mut from, mut to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    let started = child(|| {
        unsafe {
            setpgid(0, 0);
            alarm(DEADLINE);
        }
        let (mark, how) = match attempt() {
            Ok(how) => ('!', how),
            Err(Held(how)) => ('-', how),
        };
        // Short enough for the pipe: nobody reads before this process has ended.
        let short: String = how.chars().take(300).collect();
        i32::from(to.write_all(format!("{}{}", mark, short).as_bytes()).is_err())
    });
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => return unclear(error),
    };
    let ended = end(pid);
    let _ = call(nr::KILL, &[-c_long::from(pid), 9]);
    match ended {
        Ok(End::Exit(0)) => {}
        Ok(End::Exit(code)) => return Verdict::Unclear(format!("it ended with code {}", code)),
        Ok(End::Signal(14, _)) => return Verdict::Unclear(format!("it did not end within {} s", DEADLINE)),
        Ok(End::Signal(signal, _)) => return Verdict::Unclear(format!("it was ended by signal {}", signal)),
        Err(error) => return unclear(error),
    }
    let mut said = [0; 2048];
    let length = match from.read(&mut said) {
        Ok(length) => length,
        Err(error) => return unclear(error),
    };
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    match said.split_at(said.len().min(1)) {
        ("!", how) => Verdict::Broke(how.to_owned()),
        ("-", how) => Verdict::Held(how.to_owned()),
        _ => Verdict::Unclear("it said nothing".to_owned()),
    }
}

/// A socket, as a file.
pub fn socket(family: c_long, kind: c_long, protocol: c_long) -> io::Result<File> {
    let fd = call(nr::SOCKET, &[family, kind, protocol])?;
    Ok(unsafe { File::from_raw_fd(fd as c_int) })
}

/// The descriptor of a file that stays open.
pub fn fd(file: File) -> c_long {
    file.into_raw_fd().into()
}

/// Puts what follows into a mount namespace of its own where that is allowed, so that nothing of it stays.
pub fn own_mounts() {
    const NEWNS: c_long = 0x2_0000;
    const REC_PRIVATE: c_long = 0x4000 | 0x4_0000;
    if call(nr::UNSHARE, &[NEWNS]).is_ok() {
        let _ = mount("", "/", "", REC_PRIVATE, "");
    }
}

/// mount(2); an empty text is none.
pub fn mount(from: &str, to: &str, kind: &str, flags: c_long, data: &str) -> io::Result<()> {
    let texts = [c(from), c(to), c(kind), c(data)];
    let place = |n: usize| if texts[n].as_bytes().is_empty() { 0 } else { at(&texts[n]) };
    call(nr::MOUNT, &[place(0), place(1), place(2), flags, place(3)]).map(drop)
}

/// The numbers of the system calls.
#[cfg(target_arch = "x86_64")]
pub mod nr {
    use std::os::raw::c_long;
    pub const IOCTL: c_long = 16;
    pub const SOCKET: c_long = 41;
    pub const CONNECT: c_long = 42;
    pub const SENDTO: c_long = 44;
    pub const RECVFROM: c_long = 45;
    pub const CLONE: c_long = 56;
    pub const KILL: c_long = 62;
    pub const PTRACE: c_long = 101;
    pub const SYSLOG: c_long = 103;
    pub const SETGROUPS: c_long = 116;
    pub const SETRESUID: c_long = 117;
    pub const SETRESGID: c_long = 119;
    pub const CAPSET: c_long = 126;
    pub const PERSONALITY: c_long = 135;
    pub const SETPRIORITY: c_long = 141;
    pub const PIVOT_ROOT: c_long = 155;
    pub const PRCTL: c_long = 157;
    pub const ADJTIMEX: c_long = 159;
    pub const CHROOT: c_long = 161;
    pub const ACCT: c_long = 163;
    pub const SETTIMEOFDAY: c_long = 164;
    pub const MOUNT: c_long = 165;
    pub const SWAPON: c_long = 167;
    pub const REBOOT: c_long = 169;
    pub const SETHOSTNAME: c_long = 170;
    pub const INIT_MODULE: c_long = 175;
    pub const DELETE_MODULE: c_long = 176;
    pub const QUOTACTL: c_long = 179;
    pub const SCHED_SETAFFINITY: c_long = 203;
    pub const KEXEC_LOAD: c_long = 246;
    pub const ADD_KEY: c_long = 248;
    pub const KEYCTL: c_long = 250;
    pub const MKNODAT: c_long = 259;
    pub const FCHOWNAT: c_long = 260;
    pub const UNSHARE: c_long = 272;
    pub const PERF_EVENT_OPEN: c_long = 298;
    pub const FANOTIFY_INIT: c_long = 300;
    pub const PRLIMIT64: c_long = 302;
    pub const NAME_TO_HANDLE_AT: c_long = 303;
    pub const OPEN_BY_HANDLE_AT: c_long = 304;
    pub const SETNS: c_long = 308;
    pub const PROCESS_VM_READV: c_long = 310;
    pub const FINIT_MODULE: c_long = 313;
    pub const BPF: c_long = 321;
    pub const USERFAULTFD: c_long = 323;
    pub const OPEN_TREE: c_long = 428;
}

/// The numbers of the system calls, as newer processors have them in common.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
pub mod nr {
    use std::os::raw::c_long;
    pub const IOCTL: c_long = 29;
    pub const MKNODAT: c_long = 33;
    pub const MOUNT: c_long = 40;
    pub const PIVOT_ROOT: c_long = 41;
    pub const CHROOT: c_long = 51;
    pub const FCHOWNAT: c_long = 54;
    pub const QUOTACTL: c_long = 60;
    pub const ACCT: c_long = 89;
    pub const CAPSET: c_long = 91;
    pub const PERSONALITY: c_long = 92;
    pub const UNSHARE: c_long = 97;
    pub const KEXEC_LOAD: c_long = 104;
    pub const INIT_MODULE: c_long = 105;
    pub const DELETE_MODULE: c_long = 106;
    pub const SYSLOG: c_long = 116;
    pub const PTRACE: c_long = 117;
    pub const SCHED_SETAFFINITY: c_long = 122;
    pub const KILL: c_long = 129;
    pub const SETPRIORITY: c_long = 140;
    pub const REBOOT: c_long = 142;
    pub const SETRESUID: c_long = 147;
    pub const SETRESGID: c_long = 149;
    pub const SETGROUPS: c_long = 159;
    pub const SETHOSTNAME: c_long = 161;
    pub const PRCTL: c_long = 167;
    pub const SETTIMEOFDAY: c_long = 170;
    pub const ADJTIMEX: c_long = 171;
    pub const SOCKET: c_long = 198;
    pub const CONNECT: c_long = 203;
    pub const SENDTO: c_long = 206;
    pub const RECVFROM: c_long = 207;
    pub const ADD_KEY: c_long = 217;
    pub const KEYCTL: c_long = 219;
    pub const CLONE: c_long = 220;
    pub const SWAPON: c_long = 224;
    pub const PERF_EVENT_OPEN: c_long = 241;
    pub const PRLIMIT64: c_long = 261;
    pub const FANOTIFY_INIT: c_long = 262;
    pub const NAME_TO_HANDLE_AT: c_long = 264;
    pub const OPEN_BY_HANDLE_AT: c_long = 265;
    pub const SETNS: c_long = 268;
    pub const PROCESS_VM_READV: c_long = 270;
    pub const FINIT_MODULE: c_long = 273;
    pub const BPF: c_long = 280;
    pub const USERFAULTFD: c_long = 282;
    pub const OPEN_TREE: c_long = 428;
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
compile_error!("the numbers of this processor's system calls have to be added here");
