//! Where a path lies within its file system, by which a container's own list of mounts names it. Knows no container.

use std::path::{Path, PathBuf};

/// The path within its file system, as far as this machine tells; `path` has no links.
pub(in crate::config) fn within(path: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    found(&mounts, path)
}

/// `mounts` as in `/proc/PID/mountinfo`: the fourth word of a line is the place within the file system that is mounted, the
/// fifth where.
fn found(mounts: &str, path: &Path) -> Option<PathBuf> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(3);
        let mut path = || unescaped(words.next()?).map(PathBuf::from);
        Some((path()?, path()?))
    });
    // Of two at one place the later lies over the earlier.
    let (root, at) = mounted.filter(|(_, at)| path.starts_with(at)).max_by_key(|(_, at)| at.components().count())?;
    let rest = path.strip_prefix(at).ok()?;
    // A path with nothing after it would get a slash at its end.
    Some(if rest.as_os_str().is_empty() { root } else { root.join(rest) })
}

/// A path as a list of mounts has it: the kernel writes blanks and backslashes as three octal digits, and anything else is
/// not the kernel's.
pub fn unescaped(path: &str) -> Option<String> {
    let mut parts = path.split('\\');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3)?;
        text.push(char::from(u8::from_str_radix(digits, 8).ok()?));
        text.push_str(rest);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 254:1 / /srv rw - ext4 /dev/vdb rw
31 22 254:0 /data/homes /home rw - ext4 /dev/vda rw
32 30 0:40 /@sub /srv/a\\040b rw - btrfs /dev/vdc rw
33 22 0:50 / /mnt/x rw - tmpfs tmpfs rw
34 22 254:0 /over /mnt/x rw - ext4 /dev/vda rw";

    #[test]
    fn it_is_what_the_kernel_would_name_it() {
        for (path, within) in [
            ("/opt/notes", "/opt/notes"),
            ("/srv/notes", "/notes"),
            ("/srv", "/"),
            ("/home/me/notes", "/data/homes/me/notes"),
            ("/srv/a b/c", "/@sub/c"),
            ("/mnt/x/y", "/over/y"),
        ] {
            assert_eq!(found(MOUNTS, Path::new(path)), Some(PathBuf::from(within)), "{path}");
        }
        assert_eq!(found("", Path::new("/x")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells() {
        assert!(within(Path::new("/proc")).is_some());
    }
}
