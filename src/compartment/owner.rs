//! Which process owns what is at the engine, told so that another gateway can see whether it still lives. Knows no engine.

use std::collections::HashMap;
use std::sync::OnceLock;

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

/// What commands that are no gateway call themselves, every time anew: no name of one run.
const COMMANDS: [&str; 2] = ["check", "reap"];

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
    /// Which state directory it acts with; empty where that is not known.
    pub keeper: String,
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
        // Read once: were it told in two ways, what this process has would look as if it were another's.
        static PROCESS: OnceLock<(String, String, String)> = OnceLock::new();
        let pid = std::process::id();
        let (host, boot, started) = PROCESS.get_or_init(|| host::itself(pid)).clone();
        Owner {
            gateway: gateway.to_owned(),
            host,
            boot,
            pid,
            started,
            principal: String::new(),
            scope: String::new(),
            keeper: String::new(),
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

    /// The same process acting with a state directory.
    pub fn for_keeper(&self, keeper: &str) -> Self {
        Owner { keeper: keeper.to_owned(), ..self.clone() }
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
            keeper: String::new(),
        })
    }

    /// Whether that process lives, seen from the host of `me`. What `me` has itself is always of the living.
    pub fn life(&self, me: &Owner) -> Life {
        let process = |owner: &Owner| (owner.host.clone(), owner.boot.clone(), owner.pid, owner.started.clone());
        let same_run = self.gateway == me.gateway && !COMMANDS.contains(&self.gateway.as_str());
        if same_run || process(self) == process(me) {
            return Life::Alive;
        }
        if self.host != me.host {
            return Life::Elsewhere;
        }
        if self.boot != me.boot {
            return Life::Earlier;
        }
        host::sight(self.pid).life(&self.started)
    }
}

/// What can be seen of a process id.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sight {
    /// A process has it that started then.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing there says when"))]
    Started(String),
    /// A process has it, and which one is not shown: another user's, perhaps.
    Hidden,
    /// No process has it that still runs.
    Gone,
}

impl Sight {
    /// Whether a process that started then may be the one that is seen. Dead is only said of what surely is.
    fn life(&self, then: &str) -> Life {
        match self {
            Sight::Started(started) if !then.is_empty() && started != then => Life::Dead,
            Sight::Started(_) | Sight::Hidden => Life::Alive,
            Sight::Gone => Life::Dead,
        }
    }

    /// What the kernel says where nothing else tells of the process: one that may not be asked is there all the same.
    fn by_signal(pid: u32) -> Self {
        let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return Sight::Gone };
        match rustix::process::test_kill_process(pid) {
            Err(rustix::io::Errno::SRCH) => Sight::Gone,
            _ => Sight::Hidden,
        }
    }
}

#[cfg(target_os = "linux")]
mod host {
    use std::fs::{read, read_link, read_to_string};
    use std::path::Path;

    use sha2::{Digest as _, Sha256};

    use super::Sight;

    /// Host, boot and start of this process.
    ///
    /// One that does not find itself in /proc sees the processes of others there, under numbers that mean nothing to it:
    /// such a process has a host of its own, so that it judges nobody and nobody judges it, and leases decide.
    pub fn itself(pid: u32) -> (String, String, String) {
        let boot = read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let found = read_link("/proc/self").unwrap_or_default();
        let namespace = read_link("/proc/self/ns/pid").ok();
        match (started_of(&found, pid, sight(pid)), namespace) {
            (Some(started), Some(processes)) => (identity_of(&machine(), &processes), boot, started),
            _ => (identity_of(&machine(), uuid::Uuid::now_v7().simple().to_string().as_ref()), boot, String::new()),
        }
    }

    /// When this process started, if it is the one that /proc shows under its id; `found` is where `/proc/self` leads.
    pub(super) fn started_of(found: &Path, pid: u32, seen: Sight) -> Option<String> {
        match seen {
            Sight::Started(started) if found == Path::new(&pid.to_string()) => Some(started),
            _ => None,
        }
    }

    fn machine() -> String {
        let id = read_to_string("/etc/machine-id").ok().filter(|id| !id.trim().is_empty());
        id.unwrap_or_else(|| read_to_string("/proc/sys/kernel/hostname").unwrap_or_default())
    }

    /// Where the id of a process means this process and no other, hashed: a machine's identity is not meant to be shown.
    /// Gateways in containers may have the machine's id, and yet each sees its own processes alone: `processes` is the
    /// namespace of process ids, `pid:[4026531836]`.
    pub(super) fn identity_of(machine: &str, processes: &Path) -> String {
        let text = format!("{}\0{}", machine.trim(), processes.display());
        crate::hex(&Sha256::digest(text)[..8])
    }

    pub fn sight(pid: u32) -> Sight {
        match read(format!("/proc/{pid}/stat")) {
            Ok(stat) => sight_in(&String::from_utf8_lossy(&stat)),
            // Not there, or not shown: /proc may hide what is of other users.
            Err(_) => Sight::by_signal(pid),
        }
    }

    /// The 22nd field of the process's stat line; the name before it may hold anything but ends with the last bracket.
    /// A process that has ended and whose parent has not asked for it is no longer alive.
    pub(super) fn sight_in(stat: &str) -> Sight {
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        match (fields.first(), fields.get(19)) {
            (Some(&"Z" | &"X"), _) => Sight::Gone,
            (_, Some(started)) => Sight::Started((*started).to_owned()),
            _ => Sight::Hidden,
        }
    }
}

/// Where there is no /proc, a process counts as alive for as long as its id is in use: what is left behind may stay
/// longer, but nothing that lives is ever removed.
#[cfg(not(target_os = "linux"))]
mod host {
    use sha2::{Digest as _, Sha256};

    use super::Sight;

    pub fn itself(_pid: u32) -> (String, String, String) {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        (crate::hex(&Sha256::digest(name.as_bytes())[..8]), String::new(), String::new())
    }

    pub fn sight(pid: u32) -> Sight {
        Sight::by_signal(pid)
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
        let other = Owner { gateway: "other".into(), ..me.clone() };
        let reused = Owner { started: "1".into(), ..other.clone() };
        let gone = Owner { pid: 4_000_000_000, ..other.clone() };
        let before = Owner { boot: "other".into(), ..other.clone() };
        let elsewhere = Owner { host: "other".into(), ..other.clone() };
        assert_eq!(me.life(&me), Life::Alive);
        assert_eq!(other.life(&me), Life::Alive);
        for (owner, life) in
            [(&reused, Life::Dead), (&gone, Life::Dead), (&before, Life::Earlier), (&elsewhere, Life::Elsewhere)]
        {
            assert_eq!(owner.life(&me), life, "{owner:?}");
            // A gateway's own things are never anybody's leftovers; a command's name is not that of one run.
            assert_eq!(Owner { gateway: "g".into(), ..owner.clone() }.life(&me), Life::Alive);
            let check = |owner: &Owner| Owner { gateway: "check".into(), ..owner.clone() };
            assert_eq!(check(owner).life(&check(&me)), life);
        }
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
        let contained =
            Owner { host: of("m1", "pid:[4026532180]"), pid: 4_000_000_000, gateway: "c".into(), ..me.clone() };
        assert_eq!(contained.life(&Owner { host: here, ..me }), Life::Elsewhere);
    }

    #[test]
    fn only_a_process_that_surely_is_gone_is_dead() {
        let pid = std::process::id();
        assert_eq!(Sight::by_signal(pid), Sight::Hidden);
        assert_eq!(Sight::by_signal(1), Sight::Hidden, "whoever may signal it");
        assert_eq!(Sight::by_signal(4_000_000_000), Sight::Gone);
        assert_ne!(host::sight(1), Sight::Gone, "whether or not it is shown in /proc");
        assert_eq!(Sight::Hidden.life("7"), Life::Alive);
        assert_eq!(Sight::Started("7".into()).life("7"), Life::Alive);
        assert_eq!(Sight::Started("7".into()).life(""), Life::Alive);
        assert_eq!(Sight::Started("8".into()).life("7"), Life::Dead);
        assert_eq!(Sight::Gone.life("7"), Life::Dead);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_start_is_found_whatever_the_name_and_nothing_is_made_of_half_a_line() {
        let stat = |state: &str| format!("7 (a) b\u{fffd} (c) {state} {} 4711 9\n", ["0"; 18].join(" "));
        assert_eq!(host::sight_in(&stat("S")), Sight::Started("4711".into()));
        assert_eq!(host::sight_in(&stat("Z")), Sight::Gone);
        for half in ["", "7 (a) S 1 2", "7 (a"] {
            assert_eq!(host::sight_in(half), Sight::Hidden, "{half:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_does_not_find_itself_has_no_start_and_a_host_of_its_own() {
        let seen = || Sight::Started("7".into());
        assert_eq!(host::started_of("42".as_ref(), 42, seen()), Some("7".into()));
        for (found, seen) in [("4711", seen()), ("", seen()), ("42", Sight::Hidden), ("42", Sight::Gone)] {
            assert_eq!(host::started_of(found.as_ref(), 42, seen), None, "{found}");
        }
        // Nobody has that id, so this process does not find itself under it.
        let (one, two) = (host::itself(4_000_000_000), host::itself(4_000_000_000));
        assert_ne!(one.0, two.0);
        assert_ne!(one.0, host::itself(std::process::id()).0);
        assert_eq!(one.2, "");
    }
}
