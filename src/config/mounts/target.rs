//! Where in a container a mount or a volume may appear. Knows nothing of the host.

use std::path::Path;

use crate::config::fault::quoted;

/// Where nothing may be mounted in a container: our own file systems, the kernel's, and where the engine has its init.
const TAKEN: [&str; 9] = ["/proc", "/sys", "/dev", "/tmp", "/run", "/sbin", "/usr/sbin", "/bin", "/usr/bin"];

/// The same, but not what lies below.
const WHOLE: [&str; 4] = ["/etc", "/usr", "/lib", "/lib64"];

/// What the probe's place begins with.
const PROBE: &str = "/.bulkhead";

/// Where a mount or the state of a server may appear in its container: the path itself, or why not.
pub(in crate::config) fn target(at: &str) -> Result<String, String> {
    let normal = at.len() > 1
        && at.starts_with('/')
        && at[1..].split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !at.contains(|c: char| c.is_control() || ":,\\".contains(c));
    if !normal {
        return Err(format!("must be an absolute, normalized path other than \"/\", not {}", quoted(at)));
    }
    let path = Path::new(at);
    let taken = TAKEN.iter().any(|taken| path.starts_with(taken));
    if taken || WHOLE.contains(&at) || at.starts_with(PROBE) {
        return Err(format!("{} is taken by the compartment itself", quoted(at)));
    }
    Ok(at.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_absolute_normal_and_free() {
        for good in ["/data", "/etc/app/conf.d", "/usr/share/notes", "/tmpfiles", "/a b"] {
            assert_eq!(target(good).unwrap(), good);
        }
        for bad in ["", "/", "data", "/a/", "//a", "/a//b", "/a/../etc", "/.", "/a/.", "/a:b", "/a,b", "/a\nb"] {
            assert!(target(bad).unwrap_err().starts_with("must be an absolute, normalized path"), "{bad}");
        }
        for taken in [
            "/proc",
            "/proc/1",
            "/sys",
            "/dev/shm",
            "/tmp",
            "/tmp/x",
            "/run",
            "/.bulkhead",
            "/.bulkhead-0123",
            "/etc",
            "/usr",
            "/usr/sbin",
            "/sbin/docker-init",
        ] {
            assert!(target(taken).unwrap_err().ends_with("is taken by the compartment itself"), "{taken}");
        }
    }
}
