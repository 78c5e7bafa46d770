//! Host paths that may and may not be seen, on a small machine of our own.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;
use crate::config::env::Fixed;

struct Machine {
    dir: tempfile::TempDir,
    guard: Guard,
}

/// A home, a configuration and a state directory below one temporary directory.
fn machine() -> Machine {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path).to_str().unwrap().to_owned();
    for path in
        ["me/notes", "me/.ssh", "me/.config/gcloud", "conf", "state", "srv/data", "other/.aws", "third/.config/gh"]
    {
        std::fs::create_dir_all(at(path)).unwrap();
    }
    std::fs::write(at("conf/bulkhead.toml"), "").unwrap();
    let env = Fixed::from([("HOME", at("me").as_str()), ("BULKHEAD_STATE", at("state").as_str())]);
    let guard = Guard::new(Path::new(&at("conf/bulkhead.toml")), &env);
    Machine { dir, guard }
}

impl Machine {
    fn vet(&self, path: &str) -> Result<PathBuf, String> {
        let path = if path.starts_with('/') { PathBuf::from(path) } else { self.dir.path().join(path) };
        self.guard.vet(path.to_str().unwrap())
    }

    #[track_caller]
    fn refuses(&self, path: &str, why: &str) {
        let said = self.vet(path).expect_err(path);
        assert!(said.contains(why), "{path}: {said}");
    }
}

#[test]
fn ordinary_directories_and_files_are_let_through() {
    let m = machine();
    std::fs::write(m.dir.path().join("srv/data/a.txt"), "").unwrap();
    for path in ["srv/data", "srv/data/a.txt", "me/notes"] {
        assert_eq!(m.vet(path).unwrap(), m.dir.path().canonicalize().unwrap().join(path));
    }
}

#[test]
fn the_system_is_refused_above_at_and_below() {
    let m = machine();
    for path in
        ["/", "/etc", "/etc/passwd", "/proc", "/sys", "/dev", "/dev/shm", "/var", "/var/lib", "/home", "/tmp", "/root"]
    {
        if Path::new(path).exists() {
            m.refuses(path, "is refused: it ");
        }
    }
    m.refuses("/etc", "is refused: it belongs to the system or to a container engine");
}

#[test]
fn links_are_followed_before_judging() {
    let m = machine();
    symlink("/etc", m.dir.path().join("srv/innocent")).unwrap();
    symlink("/nowhere", m.dir.path().join("srv/dangling")).unwrap();
    let real = Path::new("/etc").canonicalize().unwrap();
    m.refuses("srv/innocent", &format!("(really {real:?}) is refused"));
    m.refuses("srv/innocent/../etc/passwd", "is refused");
    m.refuses("srv/dangling", "cannot be used: No such file");
    m.refuses("srv/none", "cannot be used: No such file");
}

#[test]
fn a_place_that_is_not_there_yet_is_known_through_links() {
    let m = machine();
    symlink(m.dir.path().join("srv"), m.dir.path().join("link")).unwrap();
    let state = m.dir.path().join("link/data/later/state");
    let env = Fixed::from([("BULKHEAD_STATE", state.to_str().unwrap())]);
    let guard = Guard::new(Path::new("/x.toml"), &env);
    let said = guard.vet(m.dir.path().join("srv/data").to_str().unwrap()).unwrap_err();
    assert!(said.contains("which is the gateway's own state"), "{said}");
}

#[test]
fn homes_are_refused_whole_and_credentials_everywhere() {
    let m = machine();
    m.refuses("me", "it is a home directory");
    m.refuses("me/.ssh", "place of credentials (.ssh)");
    m.refuses("me/.config/gcloud", "place of credentials (.config/gcloud)");
    m.refuses("me/.config", "it has what somebody's programs are and do");
    m.refuses("third/.config", "it holds credentials (gh)");
    m.refuses("other", "it holds credentials (.aws)");
    m.refuses("other/.aws", "place of credentials (.aws)");
    std::fs::create_dir(m.dir.path().join("srv/.GnuPG")).unwrap();
    m.refuses("srv/.GnuPG", "place of credentials (.gnupg)");
    let strangers = Guard { homes: vec![m.dir.path().canonicalize().unwrap()], ..m.guard.clone() };
    assert!(strangers.vet(m.dir.path().join("srv").to_str().unwrap()).unwrap_err().contains("it is a home directory"));
    assert!(strangers.vet(m.dir.path().join("srv/data").to_str().unwrap()).is_ok());
}

#[test]
fn what_a_login_runs_or_holds_tokens_is_refused_by_itself() {
    let m = machine();
    for name in [".bashrc", ".profile", ".zprofile", ".npmrc", ".pypirc", ".BashRC"] {
        std::fs::write(m.dir.path().join("srv/data").join(name), "").unwrap();
        m.refuses(&format!("srv/data/{name}"), "a login may run it, or it may hold tokens");
    }
    for name in [".netrc", ".git-credentials"] {
        std::fs::write(m.dir.path().join("other").join(name), "").unwrap();
        m.refuses(&format!("other/{name}"), "place of credentials");
    }
    // A project may have one of them.
    assert!(m.vet("srv/data").is_ok());
}

#[test]
fn what_a_home_keeps_its_programs_in_is_refused_whole() {
    let m = machine();
    let strangers = Guard { homes: vec![m.dir.path().canonicalize().unwrap()], ..m.guard.clone() };
    for part in [".config", ".local", ".cargo", ".bin"] {
        for at in ["me", "stranger", "srv/data"] {
            std::fs::create_dir_all(m.dir.path().join(at).join(part).join("one")).unwrap();
        }
        m.refuses(&format!("me/{part}"), "it has what somebody's programs are and do");
        assert!(m.vet(&format!("me/{part}/one")).is_ok(), "{part}");
        assert!(m.vet(&format!("srv/data/{part}")).is_ok(), "{part}");
        let whole = m.dir.path().join("stranger").join(part);
        let said = strangers.vet(whole.to_str().unwrap()).unwrap_err();
        assert!(said.contains("it has what somebody's programs"), "{said}");
        assert!(strangers.vet(whole.join("one").to_str().unwrap()).is_ok(), "{part}");
    }
}

#[test]
fn engine_sockets_are_found_one_level_deeper() {
    let m = machine();
    std::fs::create_dir_all(m.dir.path().join("srv/data/deep/deeper")).unwrap();
    std::fs::write(m.dir.path().join("srv/data/deep/docker.md"), "").unwrap();
    symlink("/nowhere/docker.sock", m.dir.path().join("srv/data/deep/docker.sock")).unwrap();
    let _far = UnixListener::bind(m.dir.path().join("srv/data/deep/deeper/docker.sock")).unwrap();
    assert!(m.vet("srv/data").is_ok());
    let _near = UnixListener::bind(m.dir.path().join("srv/data/deep/podman.sock")).unwrap();
    m.refuses("srv/data", "it holds a container engine's socket (\"deep/podman.sock\")");
}

#[test]
fn the_gateways_own_files_are_refused() {
    let m = machine();
    m.refuses("conf", "the gateway's own configuration");
    m.refuses("conf/bulkhead.toml", "it is the gateway's own configuration");
    m.refuses("state", "it is the gateway's own state");
    std::fs::write(m.dir.path().join("conf/bulkhead.lock"), "").unwrap();
    m.refuses("conf/bulkhead.lock", "it holds what was approved");
    let (mut guard, log) = (m.guard.clone(), m.dir.path().join("srv/data/audit.jsonl"));
    guard.protect(&log);
    assert!(guard.vet(log.parent().unwrap().to_str().unwrap()).unwrap_err().contains("which is the gateway's own"));
    m.refuses(".", "it holds");
}

#[test]
fn engine_sockets_are_refused_with_the_directories_that_hold_them() {
    let m = machine();
    let _socket = UnixListener::bind(m.dir.path().join("srv/my-docker.sock")).unwrap();
    m.refuses("srv/my-docker.sock", "neither a directory nor a regular file");
    m.refuses("srv", "it holds a container engine's socket (\"my-docker.sock\")");
    let elsewhere = m.dir.path().join("srv/data/e.sock");
    let env = Fixed::from([("DOCKER_HOST", format!("unix://{}", elsewhere.display()).as_str())]);
    let guard = Guard::new(Path::new("/x.toml"), &env);
    assert!(guard.vet(elsewhere.parent().unwrap().to_str().unwrap()).unwrap_err().contains("engine's socket"));
}

#[test]
fn only_people_have_homes() {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/false\nme:x:1000:1000::/data/me:/bin/sh\n\
                  nobody:x:65534:65534::/nonexistent:/bin/false\nodd:x:1001:1001::/:/bin/sh\nbroken\n";
    assert_eq!(people(passwd).collect::<Vec<_>>(), [PathBuf::from("/root"), PathBuf::from("/data/me")]);
}

#[test]
fn nothing_is_written_to_where_programs_are() {
    let guard = Guard::new(Path::new("/nonexistent/bulkhead.toml"), &Fixed::default());
    for place in ["/", "/usr", "/usr/local/bin", "/usr/share/doc", "/bin"] {
        assert!(guard.vet_writing(Path::new(place)).is_err(), "{place}");
    }
    for place in ["/srv/notes", "/usrlocal", "/home/me/usr"] {
        assert_eq!(guard.vet_writing(Path::new(place)), Ok(()), "{place}");
    }
}
