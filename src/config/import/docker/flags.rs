//! What each flag of `docker run` and `podman run` comes to. Knows nothing of how a line is read.

/// What a flag comes to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Meaning {
    /// Every compartment does so already; the flag takes no value.
    Already,
    /// Left out, for a reason that is told; the flag takes a value.
    LeftOut(&'static str),
    /// Refused whatever its value, for a reason that is told.
    Refused(&'static str),
    /// A variable.
    Env,
    Memory,
    Cpus,
    Pids,
    Network,
    User,
    /// Every capability is dropped already, so dropping one more is.
    CapDrop,
    SecurityOpt,
    /// Replaces what the image begins with.
    Entrypoint,
    /// A host path or a volume, after `-v`.
    Volume,
    /// The same in the words of `--mount`.
    Mount,
    /// Memory as a directory.
    Tmpfs,
    /// A namespace, which is the container's own in every compartment.
    Namespace,
}

use Meaning::{Already, LeftOut, Refused};

const LABELS: &str = "labels are the gateway's own";
const LOGS: &str = "the engine keeps no log of what a server says";
const LIMIT: &str = "this limit cannot be kept; say it in \"memory\", \"cpus\" or \"pids\"";
const HARDWARE: &str = "a compartment has no devices of the host";
const NAMES: &str = "names are resolved by the gateway, or not at all";
const INWARD: &str = "nothing connects into a compartment";
const ENDS: &str = "when an instance ends is the gateway's to say";

/// The flags that are known; any other is refused.
pub(super) const FLAGS: [(&str, Option<char>, Meaning); 69] = [
    ("--interactive", Some('i'), Already),
    ("--rm", None, Already),
    ("--init", None, Already),
    ("--read-only", None, Already),
    ("--quiet", Some('q'), Already),
    ("--env", Some('e'), Meaning::Env),
    ("--memory", Some('m'), Meaning::Memory),
    ("--cpus", None, Meaning::Cpus),
    ("--pids-limit", None, Meaning::Pids),
    ("--network", None, Meaning::Network),
    ("--net", None, Meaning::Network),
    ("--user", Some('u'), Meaning::User),
    ("--cap-drop", None, Meaning::CapDrop),
    ("--security-opt", None, Meaning::SecurityOpt),
    ("--entrypoint", None, Meaning::Entrypoint),
    ("--volume", Some('v'), Meaning::Volume),
    ("--mount", None, Meaning::Mount),
    ("--tmpfs", None, Meaning::Tmpfs),
    ("--ipc", None, Meaning::Namespace),
    ("--cgroupns", None, Meaning::Namespace),
    ("--name", None, LeftOut("a fixed name would clash between two instances")),
    ("--pull", None, LeftOut("images are resolved by \"bulkhead lock\", never at a call")),
    ("--platform", None, LeftOut("the image is taken as the engine has it")),
    ("--hostname", Some('h'), LeftOut("every compartment has the same host name")),
    ("--label", Some('l'), LeftOut(LABELS)),
    ("--attach", Some('a'), LeftOut("the gateway holds all streams")),
    ("--log-driver", None, LeftOut(LOGS)),
    ("--log-opt", None, LeftOut(LOGS)),
    ("--memory-swap", None, LeftOut("swap is equal to the memory")),
    ("--shm-size", None, LeftOut("shared memory is sized by the compartment")),
    ("--restart", None, LeftOut(ENDS)),
    ("--stop-signal", None, LeftOut(ENDS)),
    ("--stop-timeout", None, LeftOut(ENDS)),
    ("--privileged", None, Refused("it would lift the whole compartment")),
    ("--cap-add", None, Refused("a compartment has no capabilities")),
    ("--device", None, Refused(HARDWARE)),
    ("--device-cgroup-rule", None, Refused(HARDWARE)),
    ("--gpus", None, Refused(HARDWARE)),
    ("--pid", None, Refused("a compartment sees no processes but its own")),
    ("--uts", None, Refused("a compartment has a host name of its own")),
    ("--userns", None, Refused("which users there are is the engine's to say; say \"user\"")),
    ("--cgroup-parent", None, Refused("limits are the compartment's own")),
    ("--runtime", None, Refused("which runtime runs a container is the engine's to say")),
    ("--sysctl", None, Refused("a compartment keeps the kernel's settings")),
    ("--group-add", None, Refused("a compartment has no further groups")),
    ("--publish", Some('p'), Refused(INWARD)),
    ("--publish-all", Some('P'), Refused(INWARD)),
    ("--expose", None, Refused(INWARD)),
    ("--link", None, Refused("a compartment reaches no other container")),
    ("--volumes-from", None, Refused("a compartment shares nothing with another container")),
    ("--add-host", None, Refused(NAMES)),
    ("--dns", None, Refused(NAMES)),
    ("--dns-search", None, Refused(NAMES)),
    ("--ip", None, Refused("a compartment has no address of its own")),
    ("--mac-address", None, Refused("a compartment has no address of its own")),
    ("--env-file", None, Refused("the file is not read; name its variables with \"-e\"")),
    ("--label-file", None, Refused("the file is not read, and labels are the gateway's own")),
    ("--cidfile", None, Refused("no file of the host is written")),
    ("--workdir", Some('w'), Refused("the working directory is the image's; name one with that directory")),
    ("--tty", Some('t'), Refused("a server speaks through pipes, and a terminal would change what it says")),
    ("--detach", Some('d'), Refused("a server speaks through pipes, which a detached one has not")),
    ("--cpu-shares", Some('c'), Refused(LIMIT)),
    ("--cpu-quota", None, Refused(LIMIT)),
    ("--cpuset-cpus", None, Refused(LIMIT)),
    ("--memory-reservation", None, Refused(LIMIT)),
    ("--ulimit", None, Refused(LIMIT)),
    ("--oom-kill-disable", None, Refused("what takes more than its memory ends")),
    ("--oom-score-adj", None, Refused("what takes more than its memory ends")),
    ("--health-cmd", None, Refused("the gateway asks nothing but the server itself")),
];
