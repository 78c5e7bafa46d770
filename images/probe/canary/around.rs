//! Attempts to reach what is around a container: other processes, the network, the host, its engine.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::raw::c_long;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::sys::{self, call, nr, Held};
use crate::{Outcome, Row, Targets};

/// How long a connection may take.
const WAIT: Duration = Duration::from_secs(2);

pub const ROWS: &[Row] = &[
    ("see processes that are not its own", "namespaces", others),
    ("see another first process than its own init", "namespaces", first_process),
    ("read the environment of another process", "namespaces", environ),
    ("find a way to the internet", "network", |_| route("198.51.100.1:9")),
    ("find a way to the internet by IPv6", "network", |_| route("[2001:db8::1]:9")),
    ("find a way to a cloud's metadata", "network", |_| route("169.254.169.254:80")),
    ("find a way to the next machine", "network", |_| route("[ff02::1]:9").or_else(|_| route("224.0.0.251:5353"))),
    ("ask a name server", "network", ask_for_a_name),
    ("change a network interface", "network", change_interface),
    ("add a route", "network", add_route),
    ("reach the container engine", "mounts", engine),
];

pub const OF_A_PROCESS: &[Row] = &[
    ("see a process of the host", "namespaces", see),
    ("signal a process of the host", "namespaces", signal),
    ("attach to a process of the host", "namespaces", attach),
    ("read the memory of a process of the host", "namespaces", read_memory),
];

/// The processes in /proc that are neither this program nor the init that started it.
fn strangers() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && !is_ours(&name) {
            found.push(name);
        }
    }
    Ok(found)
}

/// By its command line: init's, too, has this program in it.
fn is_ours(pid: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // One that has just ended has none any more, but is still named as it was.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("canary") || name.starts_with("canary")
}

fn others(_: &Targets) -> Outcome {
    match strangers()?.len() {
        0 => Err(Held("there are none".to_owned())),
        n => Ok(format!("{n} processes")),
    }
}

fn first_process(_: &Targets) -> Outcome {
    if is_ours("1") {
        return Err(Held("it is its own init".to_owned()));
    }
    Ok(fs::read_to_string("/proc/1/comm")?.trim_end().to_owned())
}

fn environ(_: &Targets) -> Outcome {
    let mut why = Held("there is no other process".to_owned());
    for pid in strangers()? {
        match File::open(format!("/proc/{pid}/environ")).and_then(|mut file| file.read(&mut [0; 64])) {
            Ok(0) => {}
            Ok(_) => return Ok(format!("that of process {pid}")),
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}

/// Whether there is a route: no packet is sent.
fn route(to: &str) -> Outcome {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    UdpSocket::bind(any)?.connect(to)?;
    Ok(format!("a route leads to {to}"))
}

fn ask_for_a_name(_: &Targets) -> Outcome {
    let known = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut known = known.lines().filter_map(|line| line.trim().strip_prefix("nameserver ")).map(str::trim);
    // One on its own loopback is no way out; where no other is known, any address would be asked the same way.
    let far = |address: &&str| !address.starts_with("127.") && !address.contains(':');
    let server = known.find(far).unwrap_or("198.51.100.53");
    let question = b"\x0b\x0d\x01\0\0\x01\0\0\0\0\0\0\x07invalid\0\0\x01\0\x01";
    UdpSocket::bind("0.0.0.0:0")?.send_to(question, (server, 53))?;
    Ok(format!("a question left for {server}"))
}

/// Asks the kernel for a change by a netlink message: its type, flags and body.
fn netlink(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    const RAW: c_long = 3;
    const NETLINK: c_long = 16;
    let socket = sys::fd(sys::socket(NETLINK, RAW, 0)?);
    let mut message = Vec::from((16 + body.len() as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    // A request that is to be answered.
    message.extend_from_slice(&(flags | 5).to_ne_bytes());
    message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(body);
    // To process 0, the kernel.
    let kernel: [u16; 6] = [16, 0, 0, 0, 0, 0];
    let length = message.len() as c_long;
    call(nr::SENDTO, &[socket, message.as_ptr() as c_long, length, 0, kernel.as_ptr() as c_long, 12])?;
    let mut answer = [0u8; 256];
    call(nr::RECVFROM, &[socket, answer.as_mut_ptr() as c_long, 256, 0, 0, 0])?;
    let mut code = [0; 4];
    code.copy_from_slice(&answer[16..20]);
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

/// The loopback interface is put up, which it is.
fn change_interface(_: &Targets) -> Outcome {
    const SETLINK: u16 = 19;
    let mut body = vec![0u8; 4];
    for number in [1u32, 1, 1] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    netlink(SETLINK, 0, &body)?;
    Ok("an interface was changed".to_owned())
}

/// By an interface that does not exist: what that is told to has the right.
fn add_route(_: &Targets) -> Outcome {
    const NEWROUTE: u16 = 24;
    const CREATE: u16 = 0x400;
    let mut body = vec![2, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    body.extend_from_slice(&[8, 0, 1, 0, 198, 51, 100, 1]);
    body.extend_from_slice(&[8, 0, 4, 0, 0xf0, 0xff, 0xff, 0x7f]);
    match netlink(NEWROUTE, CREATE, &body) {
        Ok(()) => Ok("a route was added".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error.into()),
        Err(error) => Ok(format!("the right was there: {error}")),
    }
}

fn engine(_: &Targets) -> Outcome {
    let all = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/crio/crio.sock",
    ];
    let mut why = Held("there is no socket".to_owned());
    for path in all {
        match UnixStream::connect(path) {
            Ok(_) => return Ok(path.to_owned()),
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}

/// A connection that is refused has found its way, too.
pub fn tcp(to: &str) -> Outcome {
    let address: SocketAddr = to.parse().map_err(|_| Held(format!("{to} is no address")))?;
    match TcpStream::connect_timeout(&address, WAIT) {
        Ok(_) => Ok(format!("connected with {to}")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !address.ip().is_loopback() => {
            Ok(format!("{to} answered: {error}"))
        }
        Err(error) => Err(error.into()),
    }
}

/// A socket by its path, or by its abstract name.
pub fn unix(name: &[u8], is_abstract: bool) -> Outcome {
    const UNIX: c_long = 1;
    const STREAM: c_long = 1;
    if name.len() > 100 {
        return Err(Held("its name is too long".to_owned()));
    }
    let socket = sys::fd(sys::socket(UNIX, STREAM, 0)?);
    let mut address = Vec::from((UNIX as u16).to_ne_bytes());
    if is_abstract {
        address.push(0);
    }
    address.extend_from_slice(name);
    if !is_abstract {
        address.push(0);
    }
    call(nr::CONNECT, &[socket, address.as_ptr() as c_long, address.len() as c_long])?;
    Ok(format!("connected with {}", String::from_utf8_lossy(name)))
}

/// The process, if it is the one that is meant: numbers mean another process in here.
pub fn host_process(targets: &Targets) -> Result<i64, Held> {
    let (pid, start) = targets.pid.as_ref().ok_or_else(|| Held("no process is given".to_owned()))?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    if after_name.split_whitespace().nth(19) != Some(start) {
        return Err(Held(format!("process {pid} is another one here")));
    }
    Ok(*pid)
}

fn see(targets: &Targets) -> Outcome {
    Ok(format!("process {}", host_process(targets)?))
}

/// With the signal that is none.
fn signal(targets: &Targets) -> Outcome {
    let pid = host_process(targets)?;
    call(nr::KILL, &[pid as c_long, 0])?;
    Ok(format!("process {pid} may be signalled"))
}

/// Without stopping it.
fn attach(targets: &Targets) -> Outcome {
    const SEIZE: c_long = 0x4206;
    let pid = host_process(targets)?;
    call(nr::PTRACE, &[SEIZE, pid as c_long, 0, 0])?;
    Ok(format!("attached to process {pid}"))
}

fn read_memory(targets: &Targets) -> Outcome {
    let pid = host_process(targets)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let start = maps.split('-').next().unwrap_or_default();
    let start = usize::from_str_radix(start, 16).map_err(|error| Held(error.to_string()))?;
    let mut bytes = [0u8; 16];
    let (here, there) = ([bytes.as_mut_ptr() as usize, 16], [start, 16]);
    let (here, there) = (here.as_ptr() as c_long, there.as_ptr() as c_long);
    let length = call(nr::PROCESS_VM_READV, &[pid as c_long, here, 1, there, 1, 0])?;
    Ok(format!("{length} bytes of process {pid}"))
}
