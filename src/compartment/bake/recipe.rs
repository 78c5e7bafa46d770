//! What runs where packages are installed, and the build that seals them. Pure.
//!
//! Nothing in the Dockerfile comes from a configuration except the program to start, which stands there as JSON.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::context::Context;
use crate::config::Runner;

/// Who the server is, and who installs it. In another container, and without any privilege there either.
pub(super) const USER: &str = "10001:10001";
const UID: u64 = 10001;

/// What says which content an installation has.
pub(super) const DIGEST: &str = include_str!("content.py");

/// What is on the containers and passing images of a bake, in one order.
pub(super) type Labels = BTreeMap<String, String>;

/// The script that resolves and installs, order by order.
pub(super) fn script(runner: Runner) -> &'static str {
    match runner {
        Runner::Npx => include_str!("npx.mjs"),
        Runner::Uvx => include_str!("uvx.py"),
    }
}

/// The program of the container that packages are installed in. Neither the order nor anything secret is in it.
pub(super) fn command(runner: Runner) -> Vec<String> {
    let before: &[&str] = match runner {
        Runner::Npx => &["node", "--input-type=module", "--eval"],
        // Without the folder it runs in among the places that modules are looked for.
        Runner::Uvx => &["python3", "-P", "-c"],
    };
    before.iter().copied().chain([script(runner)]).map(str::to_owned).collect()
}

/// The folder that packages are installed into, as their user's own, for a container that has none yet.
pub(super) fn home() -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_uid(UID);
    header.set_gid(UID);
    header.set_size(0);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "opt/server", io::empty())?;
    archive.into_inner()
}

/// A build that puts what the image `installed` holds onto `runtime`, and has `command` as its entry point.
pub(super) fn seal(runtime: &str, installed: &str, command: &[String]) -> io::Result<Vec<u8>> {
    let mut context = Context::new();
    context.file("Dockerfile", seal_file(runtime, installed, command).as_bytes())?;
    context.finish()
}

/// Copied rather than built upon: what the installation left elsewhere stays behind, and root owns the files without a
/// second layer of the same size.
pub(super) fn seal_file(runtime: &str, installed: &str, command: &[String]) -> String {
    let command = Value::from(command);
    format!(
        "FROM {runtime}\n\
         COPY --from={installed} --chown=0:0 /opt/server /opt/server\n\
         USER {USER}\n\
         ENTRYPOINT {command}\n\
         CMD []\n"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn read(context: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(context);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        entries.collect()
    }

    #[test]
    fn the_folder_is_its_users_own() {
        let home = home().unwrap();
        let mut archive = tar::Archive::new(&home[..]);
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!((entry.path().unwrap().to_str().unwrap(), entry.header().mode().unwrap()), ("opt/server", 0o755));
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (UID, UID));
        assert_eq!(USER, format!("{UID}:{UID}"));
    }

    #[test]
    fn the_content_depends_on_what_is_there_and_not_on_when_it_was_written() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let content = || {
            let python = std::process::Command::new("python3").args(["-c", DIGEST]).arg(dir.path()).output().unwrap();
            assert!(python.status.success(), "{python:?}");
            String::from_utf8(python.stdout).unwrap().trim().to_owned()
        };
        std::fs::create_dir(at("a")).unwrap();
        std::fs::write(at("a/f"), "x").unwrap();
        symlink("f", at("a/l")).unwrap();
        let first = content();
        assert!(first.len() == 64 && first.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
        let file = std::fs::File::options().write(true).open(at("a/f")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(content(), first);
        let mut seen = vec![first.clone()];
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::write(at("a/f"), "y").unwrap(),
            &|| std::fs::set_permissions(at("a/f"), std::fs::Permissions::from_mode(0o755)).unwrap(),
            &|| std::fs::rename(at("a/f"), at("a/g")).unwrap(),
            &|| std::fs::create_dir(at("b")).unwrap(),
            &|| {
                std::fs::remove_file(at("a/l")).unwrap();
                symlink("g", at("a/l")).unwrap();
            },
        ];
        for change in changes {
            change();
            let now = content();
            assert!(!seen.contains(&now));
            seen.push(now);
        }
    }

    #[test]
    fn a_program_stays_one_line_of_json() {
        let context = seal("sha256:1", "bulkhead/baking:b", &["/opt/server/a\nRUN id\"".to_owned()]).unwrap();
        let [(name, file)] = &read(&context)[..] else { panic!("one file") };
        assert_eq!(name, "Dockerfile");
        assert_eq!(
            file,
            "FROM sha256:1\n\
             COPY --from=bulkhead/baking:b --chown=0:0 /opt/server /opt/server\n\
             USER 10001:10001\n\
             ENTRYPOINT [\"/opt/server/a\\nRUN id\\\"\"]\n\
             CMD []\n"
        );
    }
}
