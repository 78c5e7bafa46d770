//! Mounts that somebody may try to bring in, and overlaps that hide them.

use super::*;

/// A mount that is not asked for, whatever it is and wherever it lies.
#[test]
fn no_mount_comes_in_beside_those_that_an_engine_makes() {
    for (what, line) in [
        ("the host's root", "1 2 254:0 / /host rw - ext4 /dev/vda rw"),
        ("a file over a program", "1 2 254:0 /tmp/x /usr/bin/python3 ro - ext4 /dev/vda rw"),
        ("the engine's socket", "1 2 0:25 /docker.sock /var/run/docker.sock rw - tmpfs tmpfs rw"),
        ("a socket in a file system in memory", "1 2 0:25 /docker.sock /run/docker.sock rw - tmpfs tmpfs rw"),
        ("memory over a process's files", "1 2 0:60 / /proc/self rw - tmpfs tmpfs rw"),
        ("memory over a process's files, read-only", "1 2 0:60 / /proc/1 ro - tmpfs tmpfs ro"),
        ("another process's files", "1 2 0:42 /1 /proc/self ro - proc proc rw"),
        ("a second /proc", "1 2 0:70 / /host/proc ro - proc proc rw"),
        ("a disk", "1 2 254:0 /vda /dev/sda rw - ext4 /dev/vda rw"),
        ("a device", "1 2 0:6 /mem /dev/mem rw - devtmpfs devtmpfs rw"),
        ("the host's devices below our own", "1 2 0:6 / /dev/host rw - devtmpfs devtmpfs rw"),
        ("a terminal that was not asked for", "1 2 0:44 /0 /dev/console rw - devpts devpts rw"),
        ("the kernel's debug files", "1 2 0:7 / /sys/kernel/debug ro - debugfs debugfs rw"),
        ("the kernel's security files", "1 2 0:7 / /sys/kernel/security ro - securityfs securityfs rw"),
        ("memory over a part of /sys", "1 2 0:7 / /sys/block ro - tmpfs tmpfs ro"),
        ("a writable control group", "1 2 0:29 / /sys/fs/cgroup/rdma rw - cgroup cgroup rw,rdma"),
        ("a control group of somebody else", "1 2 0:29 /docker /sys/fs/cgroup/rdma ro - cgroup cgroup rw,rdma"),
        ("a control group within another", "1 2 0:29 / /sys/fs/cgroup/cpu/x ro - cgroup cgroup rw,cpu"),
        ("the second version, writable", "1 2 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw"),
        ("a disk below the control groups", "1 2 254:0 /etc /sys/fs/cgroup/x ro - ext4 /dev/vda rw"),
        ("below a mount that was asked for", "1 2 254:0 /etc /notes/etc ro - ext4 /dev/vda rw"),
        ("below a volume that was asked for", "1 2 254:0 /etc /data/etc rw - ext4 /dev/vda rw"),
        ("below the probe's place", "1 2 254:0 /evil /.bulkhead/probe ro - ext4 /dev/vda rw"),
        ("below the home", "1 2 254:0 /root/.ssh /home/mcp/.ssh ro - ext4 /dev/vda rw"),
        ("below /tmp", "1 2 254:0 /root /tmp/root ro - ext4 /dev/vda rw"),
        ("below shared memory", "1 2 254:0 /root /dev/shm/root ro - ext4 /dev/vda rw"),
        ("a name that begins like a place", "1 2 254:0 /srv/notes /notes2 ro - ext4 /dev/vda rw"),
        ("a second init", "1 2 254:0 /root/.ssh/id /dev/init ro - ext4 /dev/vda rw"),
        ("a name with a blank", r"1 2 254:0 /etc /my\040etc ro - ext4 /dev/vda rw"),
    ] {
        let case = Case::captured().mounted(line);
        assert_eq!(case.broken(), ["mounts"], "{what}: {line}");
        assert!(case.control("mounts").inside.starts_with("not asked for: "), "{what}");
    }
}

/// A place that an engine makes, with something else in it.
#[test]
fn none_of_the_engines_places_holds_anything_else() {
    for (what, at, from, to) in [
        ("another container's hosts", "/etc/hosts", "c1c1c1c1", "00000000"),
        ("a secret for the hosts", "/etc/hosts", "/hosts /etc", "/shadow /etc"),
        ("writable hosts", "/etc/hosts", "ro,relatime", "rw,relatime"),
        ("a writable host name", "/etc/hostname", "ro,relatime", "rw,relatime"),
        ("somebody's resolver", "/etc/resolv.conf", "/resolv.conf /etc", "/hosts /etc"),
        ("a writable init", "/usr/sbin/docker-init", "ro,relatime", "rw,relatime"),
        ("a secret for the init", "/usr/sbin/docker-init", "/usr/bin/tini-static", "/root/.ssh/id"),
        ("a disk at /proc", "/proc", "- proc", "- ext4"),
        ("a part of the host's /proc", "/proc", " / /proc ", " /1 /proc "),
        ("a part of the host's memory", "/dev", " / /dev ", " /x /dev "),
        ("a writable /sys", "/sys", "ro,", "rw,"),
        ("a disk at the control groups", "/sys/fs/cgroup", "- tmpfs", "- ext4"),
        ("a writable control group", "/sys/fs/cgroup/memory", "ro,", "rw,"),
        ("somebody's control group", "/sys/fs/cgroup/memory", " / /sys", " /docker /sys"),
        ("the queue of somebody else", "/dev/mqueue", "- mqueue", "- tmpfs"),
        ("a probe of somebody else", "/.bulkhead-0011223344556677", "/bulkhead-probe-0123456789abcdef/", "/evil/"),
        ("a probe that begins otherwise", "/.bulkhead-0011223344556677", "/bulkhead-probe", "/evil-bulkhead-probe"),
        ("a writable probe", "/.bulkhead-0011223344556677", "ro,", "rw,"),
        (
            "a volume with the host behind it",
            "/data",
            "/var/lib/docker/volumes/bulkhead-state-my-notes-230c19ec3d9e/_data",
            "/etc",
        ),
        ("a volume of another principal", "/data", "230c19ec3d9e", "000000000000"),
        ("a part of a volume", "/data", "/_data", "/_data/x"),
        ("the kernel as notes", "/notes", "- ext4", "- sysfs"),
        ("devices as notes", "/notes", "- ext4", "- devtmpfs"),
        ("another place as notes", "/notes", " /srv/notes ", " /home/me/.ssh "),
        ("a place of that name elsewhere", "/notes", " /srv/notes ", " /home/me/notes "),
        ("all of a file system as notes", "/notes", " /srv/notes ", " / "),
    ] {
        let case = Case::captured().remounted(at, from, to);
        assert_eq!(case.broken(), ["mounts"], "{what}");
    }
}

#[test]
fn what_hides_a_file_of_the_kernel_is_empty_and_its_own() {
    for (what, at, from, to) in [
        ("writable memory over a directory", "/proc/acpi", "ro,relatime - tmpfs tmpfs ro", "rw - tmpfs tmpfs rw"),
        ("a part of other memory", "/proc/acpi", " / /proc/acpi", " /x /proc/acpi"),
        ("a disk over a directory", "/proc/acpi", "- tmpfs", "- ext4"),
        ("another device than null", "/proc/keys", " /null ", " /full "),
        ("the null of another /dev", "/proc/keys", " 0:", " 9:"),
        ("the null of the host's devices", "/dev", "- tmpfs", "- devtmpfs"),
        ("a writable /proc/sys", "/proc/sys", "ro,", "rw,"),
        ("another part of /proc", "/proc/sys", " /sys /proc/sys", " /1 /proc/sys"),
    ] {
        let case = Case::captured().remounted(at, from, to);
        assert_eq!(case.broken(), ["mounts", "kernel files"], "{what}");
    }
}

/// Whatever lies over a place that was checked, nobody can say from here which of the two is seen.
#[test]
fn a_mount_over_another_does_not_hold() {
    for (at, control) in [
        ("/", "root file system"),
        ("/tmp", "tmpfs"),
        ("/dev/shm", "tmpfs"),
        ("/notes", "mounts"),
        ("/data", "mounts"),
        ("/.bulkhead-0011223344556677", "mounts"),
        ("/proc", "mounts"),
        ("/sys/fs/cgroup/memory", "mounts"),
        ("/etc/hosts", "mounts"),
    ] {
        let case = Case::captured();
        let lines = case.inside["mountinfo"].as_str().unwrap();
        let line = lines.lines().find(|l| l.split(' ').nth(4) == Some(at)).unwrap().to_owned();
        assert_eq!(case.clone().mounted(&line).broken(), [control], "the same twice at {at}");
        // Of two, the later one is over the earlier one: neither order may hide what the other is.
        let open = format!("1 2 254:0 /evil {at} rw - ext4 /dev/vda rw");
        assert_eq!(case.clone().mounted(&open).broken(), [control], "over {at}");
        let under = format!("{open}\n{lines}");
        assert_eq!(case.inside("mountinfo", under).broken(), [control], "under {at}");
    }
}

#[test]
fn the_tree_of_the_second_version_is_read_only_and_whole() {
    for (from, to) in [("ro,nosuid", "rw,nosuid"), (" / /sys/fs", " /docker/x /sys/fs"), ("- cgroup2", "- ext4")] {
        assert_eq!(Case::on_v2().remounted("/sys/fs/cgroup", from, to).broken(), ["mounts"], "{to}");
    }
}

#[test]
fn what_only_a_newer_engine_hides_is_hidden_where_it_says_so() {
    let powercap = "/sys/devices/virtual/powercap";
    assert_eq!(Case::on_v2().unmounted(powercap).broken(), ["kernel files"]);
    let mut silent = Case::on_v2();
    silent.engine["HostConfig"]["MaskedPaths"].as_array_mut().unwrap().pop();
    assert_eq!(silent.clone().broken(), ["mounts", "kernel files"], "what no list names is nobody's place");
    assert_eq!(silent.unmounted(powercap).broken(), NONE, "an older engine leaves it as it is");
}

/// An engine that is asked for both mounts memory over the volume, and reports the volume as if it were there.
#[test]
fn memory_in_the_place_of_state_is_no_state() {
    let mut case = Case::captured().unmounted("/data");
    case.asked.volumes[0].at = "/home/mcp".into();
    let told = case.engine.to_string().replace("\"/data\"", "\"/home/mcp\"");
    case.engine = serde_json::from_str(&told).unwrap();
    assert_eq!(case.broken(), ["mounts"]);
}
