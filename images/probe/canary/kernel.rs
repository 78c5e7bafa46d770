//! Attempts on the kernel that all containers share: its modules, its clock, its settings, its memory, its devices.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::raw::c_long;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::sys::{self, at, c, call, nr, Held};
use crate::{Outcome, Row, Targets};

pub const ROWS: &[Row] = &[
    ("load a kernel module", "capabilities", init_module),
    ("load a kernel module from a file", "capabilities", finit_module),
    ("unload a kernel module", "capabilities", delete_module),
    ("load another kernel", "capabilities", kexec),
    ("restart the machine", "capabilities", reboot),
    ("load a program into the kernel", "capabilities", bpf),
    ("watch the processors", "capabilities", perf),
    ("set the clock", "capabilities", settimeofday),
    ("steer the clock", "capabilities", adjtimex),
    ("swap memory to a file", "capabilities", swapon),
    ("keep account of processes", "capabilities", acct),
    #[cfg(target_arch = "x86_64")]
    ("reach the ports of the hardware", "capabilities", iopl),
    ("read the kernel's log by a call", "capabilities", syslog),
    ("read the kernel's log", "kernel files", |_| readable("/proc/kmsg")),
    ("read the kernel's memory", "kernel files", |_| readable("/proc/kcore")),
    ("name a program for crashes", "kernel files", |_| writable("/proc/sys/kernel/core_pattern")),
    ("set what programs may ask of the kernel", "kernel files", |_| writable("/proc/sys/kernel/modprobe")),
    ("set how the network forwards", "kernel files", |_| writable("/proc/sys/net/ipv4/ip_forward")),
    ("press the kernel's emergency keys", "kernel files", |_| writable("/proc/sysrq-trigger")),
    ("change an interrupt", "kernel files", |_| writable("/proc/irq/default_smp_affinity")),
    ("read what the engine hides", "kernel files", hidden),
    ("write to /sys", "kernel files", sys_write),
    ("read the machine's memory", "devices", |_| readable("/dev/mem")),
    ("open the kernel's log as a device", "devices", |_| readable("/dev/kmsg")),
    ("open a device of the host", "devices", devices),
    ("make a device", "devices", mknod),
    ("open a disk of the host", "devices", disk),
    ("type into the terminal it was started from", "devices", type_into_terminal),
];

/// What the kernel said, where any answer but a missing right means that it was ready to do it.
fn unless_refused(answer: io::Result<c_long>) -> Outcome {
    const REFUSALS: [i32; 4] = [1, 13, 38, 95]; // EPERM, EACCES, ENOSYS, EOPNOTSUPP
    match answer {
        Ok(_) => Ok("the kernel did it".to_owned()),
        Err(error) if REFUSALS.contains(&sys::code(&error)) => Err(error.into()),
        Err(error) => Ok(format!("the right was there: {error}")),
    }
}

fn init_module(_: &Targets) -> Outcome {
    let (image, none) = ([0u8; 64], c(""));
    unless_refused(call(nr::INIT_MODULE, &[image.as_ptr() as c_long, 64, at(&none)]))
}

fn finit_module(_: &Targets) -> Outcome {
    let (file, none) = (sys::fd(File::open("/proc/self/status")?), c(""));
    unless_refused(call(nr::FINIT_MODULE, &[file, at(&none), 0]))
}

fn delete_module(_: &Targets) -> Outcome {
    const NONBLOCK: c_long = 0o4000;
    unless_refused(call(nr::DELETE_MODULE, &[at(&c("bulkhead_no_such_module")), NONBLOCK]))
}

/// With flags that no kernel knows.
fn kexec(_: &Targets) -> Outcome {
    unless_refused(call(nr::KEXEC_LOAD, &[0, 0, 0, 0xff00]))
}

/// Without the numbers that a restart has to be asked for with.
fn reboot(_: &Targets) -> Outcome {
    unless_refused(call(nr::REBOOT, &[0, 0, 0, 0]))
}

fn bpf(_: &Targets) -> Outcome {
    const MAP_CREATE: c_long = 0;
    let array = [2u32, 4, 4, 1, 0, 0, 0, 0];
    call(nr::BPF, &[MAP_CREATE, array.as_ptr() as c_long, 32])?;
    Ok("a map was made".to_owned())
}

fn perf(_: &Targets) -> Outcome {
    // The clock of the first processor, for all processes.
    let mut attributes = [0u32; 32];
    attributes[0] = 1;
    attributes[1] = 64;
    call(nr::PERF_EVENT_OPEN, &[attributes.as_ptr() as c_long, -1, 0, -1, 0])?;
    Ok("a counter over all processes".to_owned())
}

/// To nothing: the kernel looks at the rights, and then has nothing to do.
fn settimeofday(_: &Targets) -> Outcome {
    call(nr::SETTIMEOFDAY, &[0, 0])?;
    Ok("the kernel did it".to_owned())
}

fn adjtimex(_: &Targets) -> Outcome {
    // A mode that means nothing, which only those may ask for who may ask for the others.
    let mut change = [0u32; 64];
    change[0] = 0x400_0000;
    call(nr::ADJTIMEX, &[change.as_mut_ptr() as c_long])?;
    Ok("the kernel did it".to_owned())
}

fn swapon(_: &Targets) -> Outcome {
    unless_refused(call(nr::SWAPON, &[at(&c("/bulkhead-no-such-file")), 0]))
}

fn acct(_: &Targets) -> Outcome {
    unless_refused(call(nr::ACCT, &[at(&c("/bulkhead-no-such-file"))]))
}

#[cfg(target_arch = "x86_64")]
fn iopl(_: &Targets) -> Outcome {
    const IOPL: c_long = 172;
    call(IOPL, &[3])?;
    Ok("level 3".to_owned())
}

fn syslog(_: &Targets) -> Outcome {
    const READ_ALL: c_long = 3;
    let mut text = [0u8; 256];
    let length = call(nr::SYSLOG, &[READ_ALL, text.as_mut_ptr() as c_long, 256])?;
    Ok(format!("{length} bytes"))
}

fn open(path: &str, write: bool) -> io::Result<File> {
    const NONBLOCK: i32 = 0o4000;
    OpenOptions::new().read(!write).write(write).custom_flags(NONBLOCK).open(path)
}

/// A file with something in it: what hides one puts an empty one in its place.
fn readable(path: &str) -> Outcome {
    // The kernel's log is read by whole records.
    let mut record = vec![0; 8192];
    match open(path, false)?.read(&mut record) {
        Ok(0) => Err(Held(format!("{path} is empty"))),
        Ok(_) => Ok(format!("{path} was read")),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe) => {
            Ok(format!("{path} was opened"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Opened, and left as it is.
fn writable(path: &str) -> Outcome {
    open(path, true)?;
    Ok(format!("{path} was opened for writing"))
}

/// The first of several that works, or why the last did not.
fn any<'a>(all: impl IntoIterator<Item = &'a str>, one: impl Fn(&str) -> Outcome) -> Outcome {
    let mut why = Held("there is none".to_owned());
    for each in all {
        match one(each) {
            Err(held) => why = held,
            broke => return broke,
        }
    }
    Err(why)
}

fn hidden(_: &Targets) -> Outcome {
    let all = ["/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/acpi", "/proc/scsi", "/sys/firmware"];
    any(all, |path| {
        if Path::new(path).is_dir() {
            return match fs::read_dir(path)?.next() {
                Some(_) => Ok(format!("{path} has files")),
                None => Err(Held(format!("{path} is empty"))),
            };
        }
        readable(path)
    })
}

fn sys_write(_: &Targets) -> Outcome {
    let all = [
        "/sys/devices/system/cpu/cpu0/uevent",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/class/net/lo/ifalias",
    ];
    any(all, writable)
}

fn devices(_: &Targets) -> Outcome {
    any(["/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/loop-control"], |path| {
        OpenOptions::new().read(true).write(true).open(path)?;
        Ok(format!("{path} was opened"))
    })
}

/// Makes a device with these numbers and opens it: one that opens can be read.
fn node(kind: u32, major: u32, minor: u32) -> Outcome {
    let number = (major << 8) | (minor & 0xff) | ((minor & !0xff) << 12);
    any(["/", "/tmp", "/dev", "/dev/shm"], |place| {
        let path = format!("{}/canary-device", place.trim_end_matches('/'));
        let name = c(&path);
        call(nr::MKNODAT, &[-100, at(&name), (kind | 0o600).into(), number.into()])?;
        let opened = open(&path, false);
        let _ = fs::remove_file(&path);
        opened?;
        Ok(format!("device {major}:{minor} was made and opened"))
    })
}

/// The kernel's log.
fn mknod(_: &Targets) -> Outcome {
    node(0o2_0000, 1, 11)
}

fn disk(_: &Targets) -> Outcome {
    let mut why = Held("no disk is seen".to_owned());
    for disk in fs::read_dir("/sys/class/block")? {
        let numbers = fs::read_to_string(disk?.path().join("dev"))?;
        let mut numbers = numbers.trim().split(':').map(|n| n.parse().unwrap_or(0));
        match node(0o6_0000, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
            Err(held) => why = held,
            broke => return broke,
        }
    }
    Err(why)
}

fn type_into_terminal(_: &Targets) -> Outcome {
    const TIOCSTI: c_long = 0x5412;
    let terminal = sys::fd(OpenOptions::new().read(true).write(true).open("/dev/tty")?);
    let line_end = [b'\n'];
    call(nr::IOCTL, &[terminal, TIOCSTI, line_end.as_ptr() as c_long])?;
    Ok("a line end was typed".to_owned())
}
