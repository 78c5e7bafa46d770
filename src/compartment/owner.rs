//! Which process owns what is at the engine, told so that another gateway can see whether it still lives. Knows no engine.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::lease::{LEASE, Lease};

/// Label: what it is to us.
pub const ROLE: &str = "org.bulkhead.role";
const GATEWAY: &str = "org.bulkhead.gateway";
const HOST: &str = "org.bulkhead.owner.host";
const BOOT: &str = "org.bulkhead.owner.boot";
const PID: &str = "org.bulkhead.owner.pid";
const STARTED: &str = "org.bulkhead.owner.started";
const PRINCIPAL: &str = "org.bulkhead.principal";

/// A gateway process, and the principal it acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the gateway's run.
    pub gateway: String,
    /// Hash of the host's identity.
    pub host: String,
    /// Which boot of that host.
    pub boot: String,
    /// The process.
    pub pid: u32,
    /// When it started, where the host says; process ids are used again.
    pub started: String,
    /// Whom the instance belongs to.
    pub principal: String,
    /// Which configuration it belongs to: two of them never share a volume because two servers have one name.
    pub scope: String,
}

/// Whether an owner still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Alive,
    /// It does not.
    Dead,
    /// It is of another boot of what calls itself this host. On this host it is dead; but machines made from one image may
    /// call themselves the same, and share an engine.
    Earlier,
    /// It is of another host, and nobody here can say.
    Elsewhere,
}

impl Owner {
    /// This very process.
    pub fn this_process(gateway: &str) -> Self {
        let pid = std::process::id();
        Owner {
            gateway: gateway.to_owned(),
            host: host::identity(),
            boot: host::boot(),
            pid,
            started: host::started(pid).unwrap_or_default(),
            principal: String::new(),
            scope: String::new(),
        }
    }

    /// The same process acting for a principal.
    pub fn for_principal(&self, principal: &str) -> Self {
        Owner { principal: principal.to_owned(), ..self.clone() }
    }

    /// The same process acting for a configuration.
    pub fn for_scope(&self, scope: &str) -> Self {
        Owner { scope: scope.to_owned(), ..self.clone() }
    }

    /// A short stable hash that tells the volumes of one configuration and principal from another's.
    pub fn volume_key(&self) -> String {
        crate::hex(&Sha256::digest(format!("{}\0{}", self.scope, self.principal))[..6])
    }

    /// The labels that say all this, and until when what carries them may stay.
    pub fn labels(&self, lease: Lease) -> HashMap<String, String> {
        let (pid, lease) = (self.pid.to_string(), lease.to_string());
        let pairs = [
            (GATEWAY, &self.gateway),
            (HOST, &self.host),
            (BOOT, &self.boot),
            (PID, &pid),
            (STARTED, &self.started),
            (PRINCIPAL, &self.principal),
            (LEASE, &lease),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// The owner that labels tell of.
    pub fn from_labels(labels: &HashMap<String, String>) -> Option<Self> {
        let text = |key: &str| labels.get(key).cloned();
        Some(Owner {
            gateway: text(GATEWAY)?,
            host: text(HOST)?,
            boot: text(BOOT)?,
            pid: text(PID)?.parse().ok()?,
            started: text(STARTED)?,
            principal: text(PRINCIPAL)?,
            scope: String::new(),
        })
    }

    /// Whether that process lives, seen from the host of `me`.
    pub fn life(&self, me: &Owner) -> Life {
        if self.host != me.host {
            return Life::Elsewhere;
        }
        if self.boot != me.boot {
            return Life::Earlier;
        }
        match host::started(self.pid) {
            Some(started) if started == self.started => Life::Alive,
            _ => Life::Dead,
        }
    }
}

#[cfg(target_os = "linux")]
mod host {
    use std::fs::{read_link, read_to_string};
    use std::path::Path;

    use sha2::{Digest as _, Sha256};

    /// Where the id of a process means this process and no other, hashed: a machine's identity is not meant to be shown.
    /// Gateways in containers may have the machine's id, and yet each sees its own processes alone.
    pub fn identity() -> String {
        let machine = read_to_string("/etc/machine-id").ok().filter(|id| !id.trim().is_empty());
        let name = || read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        identity_of(&machine.unwrap_or_else(name), &read_link("/proc/self/ns/pid").unwrap_or_default())
    }

    /// `processes` is the namespace of process ids, `pid:[4026531836]`.
    pub(super) fn identity_of(machine: &str, processes: &Path) -> String {
        let text = format!("{}\0{}", machine.trim(), processes.display());
        crate::hex(&Sha256::digest(text)[..8])
    }

    pub fn boot() -> String {
        read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }

    /// The 22nd field of the process's stat line; the name before it may hold anything but ends with the last bracket.
    /// A process that has ended and whose parent has not asked for it is no longer alive.
    pub fn started(pid: u32) -> Option<String> {
        let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        (state != "Z" && state != "X").then(|| fields.nth(18).map(str::to_owned))?
    }
}

/// Where there is no /proc, a process counts as alive for as long as its id is in use: what is left behind may stay
/// longer, but nothing that lives is ever removed.
#[cfg(not(target_os = "linux"))]
mod host {
    pub fn identity() -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        use sha2::{Digest as _, Sha256};
        crate::hex(&Sha256::digest(name.as_bytes())[..8])
    }

    pub fn boot() -> String {
        String::new()
    }

    pub fn started(pid: u32) -> Option<String> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
        match rustix::process::test_kill_process(pid) {
            Err(rustix::io::Errno::SRCH) => None,
            _ => Some(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_the_owner_and_whether_it_lives() {
        let me = Owner::this_process("g").for_principal("p");
        let lease = Lease::from_now(std::time::Duration::from_secs(60));
        assert_eq!(Owner::from_labels(&me.labels(lease)), Some(me.clone()));
        assert_eq!(Lease::from_labels(&me.labels(lease)), Some(lease));
        assert_eq!(me.life(&me), Life::Alive);
        let reused = Owner { started: "1".into(), ..me.clone() };
        assert_eq!(reused.life(&me), Life::Dead);
        let gone = Owner { pid: 4_000_000_000, ..me.clone() };
        assert_eq!(gone.life(&me), Life::Dead);
        let before = Owner { boot: "other".into(), ..me.clone() };
        assert_eq!(before.life(&me), Life::Earlier);
        let elsewhere = Owner { host: "other".into(), ..me.clone() };
        assert_eq!(elsewhere.life(&me), Life::Elsewhere);
        assert_eq!(Owner::from_labels(&HashMap::new()), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn where_process_ids_mean_something_else_is_elsewhere() {
        let me = Owner::this_process("g");
        let of = |machine: &str, processes: &str| host::identity_of(machine, processes.as_ref());
        let here = of("m1\n", "pid:[4026531836]");
        assert_eq!(here, of("m1", "pid:[4026531836]"));
        // A gateway in a container that has the machine's id: our process ids are nobody's there, or somebody else's.
        assert_ne!(here, of("m1", "pid:[4026532180]"));
        assert_ne!(here, of("m2", "pid:[4026531836]"));
        let contained = Owner { host: of("m1", "pid:[4026532180]"), pid: 4_000_000_000, ..me.clone() };
        assert_eq!(contained.life(&Owner { host: here, ..me }), Life::Elsewhere);
    }
}
