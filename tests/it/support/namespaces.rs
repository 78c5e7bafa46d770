//! A gateway that sees other files of names than the rest of the machine, or another internet. Linux alone, as root. Knows
//! no behaviour.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::engine::command_succeeds;
use super::site::BULKHEAD;
use super::{Site, site};

/// Why nothing of this can be had here.
pub fn hindrance() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("only Linux has namespaces for it".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("only root may make namespaces for it".to_owned());
    }
    let asked = [("unshare", "--version"), ("nsenter", "--version"), ("ip", "-V"), ("python3", "--version")];
    let missing = asked.into_iter().find(|(program, version)| !command_succeeds(Command::new(program).arg(version)));
    missing.map(|(program, _)| format!("{program} is not installed"))
}

/// Lays each of its first arguments, up to an empty one, over the place that follows it, and becomes the rest.
const OVER: &str = r#"
while [ -n "$1" ]; do
    mount --bind "$1" "$2" || exit
    shift 2
done
shift
exec "$@"
"#;

/// Files that lie over those of the system, for who is started with them alone.
pub struct Names {
    folder: TempDir,
    files: Vec<(PathBuf, &'static str)>,
}

impl Names {
    /// Files by the place where each is to be seen.
    pub fn new(files: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let written = files.iter().enumerate().map(|(number, (place, text))| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, text).unwrap();
            site::open_to_all(&[&path]);
            (path, *place)
        });
        let files = written.collect();
        site::open_to_all(&[folder.path()]);
        Names { folder, files }
    }

    /// A subcommand of a site that sees them.
    pub fn command(&self, site: &Site, args: &[&str]) -> Command {
        self.command_behind(site, &[], args)
    }

    /// The same behind another program that becomes the one that it is given.
    pub fn command_behind(&self, site: &Site, before: &[&str], args: &[&str]) -> Command {
        let words = [before, &["unshare", "--mount", "sh", "-c", OVER, "over"]].concat();
        let mut command = site.with_environment(words[0]);
        command.args(&words[1..]);
        for (path, place) in &self.files {
            command.arg(path).arg(place);
        }
        command.arg("").arg(BULKHEAD).args(site.line(args));
        // Held for as long as they are needed.
        debug_assert!(self.folder.path().exists());
        command
    }
}
