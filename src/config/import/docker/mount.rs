//! `-v`, `--mount` and `--tmpfs` in our words. Knows nothing of which host paths may be seen: that is judged like any other.

/// What one of these flags comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A host path.
    Host {
        /// On the host.
        host: String,
        /// In the container.
        at: String,
        /// Whether writing was asked for, in so many words.
        write: bool,
        /// Whether neither reading nor writing was said: docker lets write then, we do not.
        silent: bool,
    },
    /// A named volume, which our servers have one of.
    State(String),
    /// A directory in memory that every compartment has.
    Already,
}

/// Options after `-v` that change nothing where there is no such thing, or only how fast it is.
const IDLE: [&str; 5] = ["z", "Z", "cached", "delegated", "consistent"];

/// Directories in memory of every compartment.
const IN_MEMORY: [&str; 4] = ["/tmp", "/run", "/tmp/", "/run/"];

/// `HOST:AT[:OPTIONS]` or `VOLUME:AT`.
pub(super) fn volume(text: &str) -> Result<Kind, &'static str> {
    let mut parts = text.split(':');
    let (Some(from), Some(at), options, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("a volume without a name is empty at each start; say \"state\" for what is to stay");
    };
    let (mut write, mut read_only) = (false, false);
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        match option {
            "rw" => write = true,
            "ro" => read_only = true,
            idle if IDLE.contains(&idle) => {}
            _ => return Err("of the options of a volume only \"ro\" and \"rw\" can be kept"),
        }
    }
    if write && read_only {
        return Err("it is read-only and writable at once");
    }
    mounted(from, at, write, read_only)
}

/// `type=bind,source=…,target=…[,readonly]`.
pub(super) fn mount(text: &str) -> Result<Kind, &'static str> {
    let (mut kind, mut from, mut at, mut read_only) = ("volume", None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, "true"));
        match key {
            "type" => kind = value,
            "source" | "src" if from.is_none() => from = Some(value),
            "target" | "destination" | "dst" if at.is_none() => at = Some(value),
            "readonly" | "ro" if read_only.is_none() => {
                read_only = Some(value.parse().map_err(|_| "\"readonly\" is neither true nor false")?);
            }
            "consistency" => {}
            _ => return Err("of what a mount says only type, source, target and readonly can be kept"),
        }
    }
    let at = at.ok_or("it has no target")?;
    match (kind, from) {
        ("bind", Some(from)) if !from.starts_with('/') => Err(ABSOLUTE),
        ("volume", Some(from)) if from.contains('/') => Err("a volume's name has no slash"),
        ("bind" | "volume", Some(from)) => mounted(from, at, read_only == Some(false), read_only == Some(true)),
        ("tmpfs", None) if IN_MEMORY.contains(&at) => Ok(Kind::Already),
        ("tmpfs", _) => Err(MEMORY),
        _ => Err("a mount of this kind cannot be kept"),
    }
}

/// `AT[:OPTIONS]`, in memory.
pub(super) fn tmpfs(text: &str) -> Result<Kind, &'static str> {
    let at = text.split(':').next().unwrap_or_default();
    if IN_MEMORY.contains(&at) { Ok(Kind::Already) } else { Err(MEMORY) }
}

const MEMORY: &str = "only /tmp and /run are in memory; say \"state\" for another place to write to";
const ABSOLUTE: &str = "a host path must be absolute, with nothing in it that a shell or a client would replace";

fn mounted(from: &str, at: &str, write: bool, read_only: bool) -> Result<Kind, &'static str> {
    if from.starts_with('/') && !from.contains("${") {
        return Ok(Kind::Host { host: from.to_owned(), at: at.to_owned(), write, silent: !write && !read_only });
    }
    let name = from.starts_with(|c: char| c.is_ascii_alphanumeric())
        && from.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    match name {
        true if read_only => Err("a volume that nothing can be written to would be empty; leave it out"),
        true => Ok(Kind::State(at.to_owned())),
        false => Err(ABSOLUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(write: bool, silent: bool) -> Kind {
        Kind::Host { host: "/srv/a".into(), at: "/a".into(), write, silent }
    }

    #[test]
    fn host_paths_are_read_only_unless_writing_was_asked_for() {
        for (text, kind) in [
            ("/srv/a:/a", host(false, true)),
            ("/srv/a:/a:ro", host(false, false)),
            ("/srv/a:/a:rw", host(true, false)),
            ("/srv/a:/a:ro,z", host(false, false)),
            ("/srv/a:/a:cached", host(false, true)),
            ("notes:/data", Kind::State("/data".into())),
        ] {
            assert_eq!(volume(text), Ok(kind), "{text}");
        }
        for (text, kind) in [
            ("type=bind,source=/srv/a,target=/a", host(false, true)),
            ("type=bind,src=/srv/a,dst=/a,readonly", host(false, false)),
            ("type=bind,src=/srv/a,destination=/a,ro=false", host(true, false)),
            ("type=volume,source=notes,target=/data", Kind::State("/data".into())),
            ("type=tmpfs,target=/tmp", Kind::Already),
        ] {
            assert_eq!(mount(text), Ok(kind), "{text}");
        }
        assert_eq!(tmpfs("/tmp:size=64m"), Ok(Kind::Already));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for text in [
            "/data",
            "./a:/a",
            "~/a:/a",
            "${HOME}/a:/a",
            "$HOME/a:/a",
            "C:\\a:/a",
            "/a:/b:ro,rw",
            "/a:/b:nosuid",
            "/a:/b:ro:x",
            "n:/b:ro",
        ] {
            assert!(volume(text).is_err(), "{text}");
        }
        for text in [
            "type=bind,source=a,target=/a",
            "type=bind,target=/a",
            "type=bind,source=/a",
            "type=npipe,source=/a,target=/b",
            "type=bind,source=/a,source=/c,target=/b",
            "type=bind,source=/a,target=/b,bind-propagation=shared",
            "type=volume,source=/a,target=/b",
            "type=tmpfs,target=/scratch",
            "",
        ] {
            assert!(mount(text).is_err(), "{text}");
        }
        assert!(tmpfs("/scratch").is_err());
    }
}
