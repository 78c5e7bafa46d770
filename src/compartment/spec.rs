//! From a server's configuration to the body of the request that creates its container. Pure: no engine is asked.
//!
//! A [`Compartment`] is made by [`Compartment::plan`] and its kin alone, and a container is started from nothing else, so
//! that no way (a reconnect, a restart, a new secret) can leave a control out. One that may reach something is planned
//! [`behind`](Compartment::behind) its guard, or [`within`](Compartment::within) its fence, and there is neither but one
//! that runs and is proven.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use crate::config::{CACHE, Network, Resources, Run, Sensitive, Server, Share};
use crate::egress::environment::variables;
use crate::error::{Class, Fault};
use crate::name::ServerName;

use super::fence::{Bounds, CAPABILITIES, Fence};
use super::guard::Guard;
use super::image::ImageFacts;
use super::lease::Lease;
use super::owner::{Owner, ROLE};
use super::seat::Seat;

mod way;

pub(super) use way::Way;

/// Label: the server's configured name.
pub const SERVER: &str = "org.bulkhead.server";
/// Label: the digest of the configuration that was asked for.
pub const DIGEST: &str = "org.bulkhead.digest";
/// What the probe's place begins with. The rest is new with each start: what is mounted by another way (a link in an image
/// or in what a server keeps) cannot come to lie over a place whose name nobody knew.
pub const PROBE: &str = "/.bulkhead";
/// The host name inside.
pub const HOSTNAME: &str = "server";
/// The home directory inside, on a file system in memory.
pub const HOME: &str = "/home/mcp";
/// Open files.
pub const NOFILE: i64 = 1024;
/// What fits into /tmp, in bytes.
pub const TMP: u64 = 64 * MIB;
/// Shared memory, in bytes.
pub const SHM: u64 = 64 * MIB;

const MIB: u64 = 1 << 20;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A file system in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Where.
    pub at: &'static str,
    /// Bytes.
    pub size: u64,
    /// The mount options beside the size.
    pub options: String,
}

/// A named volume that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name at the engine.
    pub name: String,
    /// Where.
    pub at: String,
    /// Whether it stays when its session is over.
    pub stays: bool,
}

/// Everything that confines one instance. `Debug` leaves out the command, whose arguments may hold secrets.
#[derive(Clone)]
pub struct Compartment {
    pub(super) server: Server,
    pub(super) image: String,
    pub(super) owner: Owner,
    pub(super) lease: Lease,
    pub(super) way: Way,
    pub(super) nonce: String,
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, Sensitive>,
    unset: Vec<String>,
    pub(super) tmpfs: Vec<Tmpfs>,
    pub(super) volumes: Vec<Volume>,
    /// Its processors: which they are is decided when it is started.
    pub(super) seat: Option<Arc<Seat>>,
}

impl fmt::Debug for Compartment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compartment")
            .field("server", &self.server)
            .field("image", &self.image)
            .field("owner", &self.owner)
            .field("lease", &self.lease)
            .field("way", &self.way)
            .field("env", &self.env)
            .field("unset", &self.unset)
            .field("tmpfs", &self.tmpfs)
            .field("volumes", &self.volumes)
            .field("seat", &self.seat)
            .finish_non_exhaustive()
    }
}

impl Compartment {
    /// Plans the compartment of an instance that lives until its lease is over, or says why it cannot be as asked.
    /// What may reach something has no such compartment: see [`Self::behind`] and [`Self::within`].
    pub fn plan(server: &Server, image: &ImageFacts, owner: &Owner, lease: Lease) -> Result<Self, Fault> {
        if server.network != Network::None {
            let text = format!(
                "server {}: it may reach something, and there is no guard or fence to see to that",
                server.name
            );
            return Err(Fault::new(Class::Isolation, text));
        }
        Self::with(server, image, owner, lease, Way::Alone)
    }

    /// The same for a server that may reach something: in the network of a guard, which was started for it.
    pub fn behind(
        server: &Server,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
        guard: &Guard,
    ) -> Result<Self, Fault> {
        if !matches!(server.network, Network::Guarded { .. }) || !guard.is_of(server, owner) {
            let text = format!("server {}: that guard is another one's", server.name);
            return Err(Fault::new(Class::Isolation, text));
        }
        Self::with(server, image, owner, lease, Way::Behind(Box::new(guard.clone())))
    }

    /// The same for a server that may reach the internet: in the network of a fence, which was started for it.
    pub fn within(
        server: &Server,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
        fence: &Fence,
    ) -> Result<Self, Fault> {
        if server.network != Network::Bridge || !fence.is_of(server, owner) {
            let text = format!("server {}: that fence is another one's", server.name);
            return Err(Fault::new(Class::Isolation, text));
        }
        Self::with(server, image, owner, lease, Way::Within(Box::new(fence.clone())))
    }

    /// The same for a fence of such a server.
    pub(super) fn fencing(
        fenced: &ServerName,
        fence: &Server,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
        bounds: &Arc<Bounds>,
    ) -> Result<Self, Fault> {
        Self::with(fence, image, owner, lease, Way::Fencing(fenced.clone(), bounds.clone()))
    }

    /// The same for a guard of such a server.
    pub(super) fn guarding(
        guarded: &ServerName,
        guard: &Server,
        image: &ImageFacts,
        owner: &Owner,
        lease: Lease,
    ) -> Result<Self, Fault> {
        Self::with(guard, image, owner, lease, Way::Guarding(guarded.clone()))
    }

    fn with(server: &Server, image: &ImageFacts, owner: &Owner, lease: Lease, way: Way) -> Result<Self, Fault> {
        let refused = |why: String| Err(Fault::new(Class::Isolation, format!("server {}: {why}", server.name)));
        let command = command(server, image);
        if command.is_empty() {
            return refused("neither its configuration nor its image names a command".into());
        }
        if server.uid == 0 {
            return refused("it must not run as root".into());
        }
        let volumes = volumes(server, owner);
        let given = |path: &str| volumes.iter().any(|v| v.at == path) || server.mounts.iter().any(|m| m.at == path);
        // An engine that is asked for both makes the one in memory, says nothing, and still reports the other.
        let tmpfs: Vec<Tmpfs> = tmpfs(server.uid).into_iter().filter(|t| !given(t.at)).collect();
        let covered = |path: &str| {
            let path = path.trim_end_matches('/');
            given(path) || tmpfs.iter().any(|t| t.at == path)
        };
        if let Some(loose) = image.volumes.iter().find(|path| !covered(path)) {
            return refused(format!("its image wants a volume at {loose:?}; give it a place with state or mounts"));
        }
        let env = env(server, image, &way);
        let unset = unset(&env, image);
        Ok(Compartment {
            server: server.clone(),
            image: image.id.clone(),
            owner: owner.clone(),
            lease,
            way,
            nonce: uuid::Uuid::new_v4().simple().to_string(),
            command,
            env,
            unset,
            tmpfs,
            volumes,
            seat: None,
        })
    }

    /// Where this start has its probe.
    pub(super) fn probe_place(&self) -> String {
        format!("{PROBE}-{:.16}", self.nonce)
    }

    /// Where what is not the compartment's own is mounted: host paths and volumes.
    pub(super) fn targets(&self) -> impl Iterator<Item = &str> {
        self.server.mounts.iter().map(|m| m.at.as_str()).chain(self.volumes.iter().map(|v| v.at.as_str()))
    }

    /// The container's name, for people; the nonce makes it unique.
    pub(super) fn name(&self) -> String {
        match &self.way {
            Way::Guarding(guarded) => format!("bulkhead-guard-{}-{:.8}", guarded.slug(), self.nonce),
            Way::Fencing(fenced, _) => format!("bulkhead-fence-{}-{:.8}", fenced.slug(), self.nonce),
            Way::Alone | Way::Behind(_) | Way::Within(_) => {
                format!("bulkhead-{}-{:.8}", self.server.name.slug(), self.nonce)
            }
        }
    }

    /// The labels that say whose it is.
    pub(super) fn labels(&self) -> HashMap<String, String> {
        let mut labels = self.owner.labels(self.lease);
        let (role, server) = match &self.way {
            Way::Guarding(guarded) => ("guard", guarded),
            Way::Fencing(fenced, _) => ("fence", fenced),
            Way::Alone | Way::Behind(_) | Way::Within(_) => ("server", &self.server.name),
        };
        labels.insert(ROLE.to_owned(), role.to_owned());
        labels.insert(SERVER.to_owned(), server.as_str().to_owned());
        labels.insert(DIGEST.to_owned(), self.server.digest.clone());
        labels
    }

    /// The body of the request; `probe` is the volume that has the probe.
    pub fn body(&self, probe: &str) -> ContainerCreateBody {
        // A name without a value takes the image's or the engine's variable of that name away.
        let env = self.declared().chain(self.unset.iter().cloned()).collect();
        ContainerCreateBody {
            image: Some(self.image.clone()),
            // Who has another's network has its name, too, and engines take no other.
            hostname: self.host_of_network().is_none().then(|| HOSTNAME.to_owned()),
            user: Some(self.user()),
            entrypoint: Some(self.entrypoint()),
            cmd: Some(Vec::new()),
            // The image's own check of its health would be a second program, which nothing proves.
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
            env: Some(env),
            labels: Some(self.labels()),
            host_config: Some(self.host(probe)),
            ..piped()
        }
    }

    /// `uid:gid`, numeric, as it begins.
    pub(super) fn user(&self) -> String {
        format!("{0}:{0}", if self.is_fence() { 0 } else { self.server.uid })
    }

    /// The program: the probe, which becomes the server's command. A fence's own comes before that as well, so that the
    /// probe sees what it has become.
    pub(super) fn entrypoint(&self) -> Vec<String> {
        let tried = self.bounds().map(Bounds::attempts).unwrap_or_default();
        let nonce = tried.into_iter().fold(self.nonce.clone(), |all, attempt| all + "," + &attempt.text());
        let mut entrypoint = match &self.way {
            Way::Fencing(_, bounds) => bounds.arguments(self.server.uid).to_vec(),
            _ => Vec::new(),
        };
        entrypoint.extend([format!("{}/probe", self.probe_place()), nonce]);
        entrypoint.extend(self.command.iter().cloned());
        entrypoint
    }

    /// The environment as `NAME=value`.
    pub(super) fn declared(&self) -> impl Iterator<Item = String> {
        self.env.iter().map(|(key, value)| format!("{key}={}", value.reveal()))
    }

    fn host(&self, probe: &str) -> HostConfig {
        let Resources { memory, cpus, pids } = self.server.resources;
        let memory = i64::try_from(memory).unwrap_or(i64::MAX);
        HostConfig {
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: self.is_fence().then(|| CAPABILITIES.map(str::to_owned).to_vec()),
            dns: self.name_servers(),
            // The host's own domain is nothing to anybody inside.
            dns_search: self.is_fence().then(|| vec![".".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            privileged: Some(false),
            readonly_rootfs: Some(!self.server.writable_root),
            memory: Some(memory),
            memory_swap: Some(memory),
            nano_cpus: Some(nano(cpus)),
            cpuset_cpus: self.seat.as_ref().map(|seat| seat.list()),
            pids_limit: Some(i64::from(pids)),
            ulimits: Some(vec![ulimit("nofile", NOFILE), ulimit("core", 0)]),
            network_mode: Some(self.network_mode()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            shm_size: i64::try_from(SHM).ok(),
            // A fence is the first process itself: an init before it would keep what it gives up.
            init: Some(!self.is_fence()),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            // An ended container goes even where nobody is left to remove it; its end is heard from the events.
            auto_remove: Some(true),
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
            tmpfs: Some(
                self.tmpfs.iter().map(|t| (t.at.to_owned(), format!("{},size={}", t.options, t.size))).collect(),
            ),
            mounts: Some(self.mounts(probe)),
            ..HostConfig::default()
        }
    }

    /// The mounts that are asked for.
    pub(super) fn mounts(&self, probe: &str) -> Vec<Mount> {
        let mut all = vec![volume(probe, &self.probe_place(), true)];
        all.extend(self.volumes.iter().map(|v| volume(&v.name, &v.at, false)));
        all.extend(self.server.mounts.iter().map(|m| Mount {
            target: Some(m.at.clone()),
            source: Some(m.host.to_string_lossy().into_owned()),
            typ: Some(MountType::BIND),
            read_only: Some(!m.write),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        }));
        all
    }
}

/// Processors in the engine's unit.
pub fn nano(cpus: f64) -> i64 {
    (cpus * 1e9).round() as i64
}

fn ulimit(name: &str, limit: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(limit), hard: Some(limit) }
}

fn volume(name: &str, at: &str, read_only: bool) -> Mount {
    Mount {
        target: Some(at.to_owned()),
        source: Some(name.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(read_only),
        // What the image has there must not decide what the volume holds, or who owns it.
        volume_options: Some(MountVolumeOptions { no_copy: Some(true), ..MountVolumeOptions::default() }),
        ..Mount::default()
    }
}

fn command(server: &Server, image: &ImageFacts) -> Vec<String> {
    let own = || image.entrypoint.iter().chain(&image.command).cloned().collect::<Vec<_>>();
    match &server.run {
        Run::Image { command, args, .. } => {
            let mut all = command.clone().unwrap_or_else(|| match args.is_empty() {
                true => own(),
                // As with the engine's own command line: arguments replace the image's arguments, not its program.
                false => image.entrypoint.clone(),
            });
            all.extend(args.iter().cloned());
            all
        }
        Run::Package(package) => own().into_iter().chain(package.args.iter().cloned()).collect(),
        Run::Unisolated { .. } | Run::Remote { .. } => Vec::new(),
    }
}

fn volumes(server: &Server, owner: &Owner) -> Vec<Volume> {
    let name =
        |kind: &str| format!("bulkhead-{kind}-{}-{}", server.name.slug(), owner.volume_key()).to_ascii_lowercase();
    // A session does not come again, so nobody could ever want what it kept.
    let stays = server.share != Share::Session;
    let state = server.state.iter().map(|at| Volume { name: name("state"), at: at.clone(), stays });
    let cache = server.cache.then(|| Volume { name: name("cache"), at: CACHE.to_owned(), stays });
    state.chain(cache).collect()
}

/// All belong to the user: where an image has such a directory, the engine gives it the mode it has there, which need not
/// let anybody else write.
fn tmpfs(uid: u32) -> Vec<Tmpfs> {
    [("/tmp", TMP, "1777"), ("/run", 16 * MIB, "1777"), (HOME, 64 * MIB, "0700")]
        .map(|(at, size, mode)| {
            let options = format!("rw,nosuid,nodev,noexec,mode={mode},uid={uid},gid={uid}");
            Tmpfs { at, size, options }
        })
        .into()
}

fn env(server: &Server, image: &ImageFacts, way: &Way) -> BTreeMap<String, Sensitive> {
    let path = image.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let given = [("HOME", HOME), ("PATH", path), ("LANG", "C.UTF-8")];
    let mut env: BTreeMap<_, _> = given.into_iter().map(|(k, v)| (k.to_owned(), Sensitive::new(v))).collect();
    if let Way::Behind(guard) = way {
        // Most programs read either spelling; whoever declares one of them means both.
        let declared = |name: &str| server.env.keys().any(|own| own.eq_ignore_ascii_case(name));
        let proxies = guard.proxy().map(variables).unwrap_or_default();
        let proxies = proxies.into_iter().filter(|(name, _)| !declared(name));
        env.extend(proxies.map(|(name, value)| (name.to_owned(), Sensitive::new(value))));
    }
    // Whoever declares a variable himself has the last word on it.
    env.extend(server.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    env
}

fn unset(env: &BTreeMap<String, Sensitive>, image: &ImageFacts) -> Vec<String> {
    let brought = image.env.keys().map(String::as_str).chain(["HOSTNAME"]);
    brought.filter(|name| !env.contains_key(*name)).map(str::to_owned).collect()
}

/// A container that is spoken to over its streams. The end of our connection is the end of its input, however we end.
pub(super) fn piped() -> ContainerCreateBody {
    ContainerCreateBody {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(false),
        ..ContainerCreateBody::default()
    }
}

#[cfg(test)]
mod tests;
