//! The one entry in the configuration of every client: what becomes of each file, byte for byte, and what is left alone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::site::{BULKHEAD, Ran, ran};
use crate::support::{Serving, Site, on_host, repository};

mod edges;
mod goldens;

/// A home with clients in it.
struct Home(Site);

/// Every client with the file that is its own on Linux, what shows that it is there, and the key of its servers.
const CLIENTS: [(&str, &str, &str, &str); 7] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", ".config/Claude", "mcpServers"),
    ("claude-code", ".claude.json", ".claude", "mcpServers"),
    ("cursor", ".cursor/mcp.json", ".cursor", "mcpServers"),
    ("vscode", ".config/Code/User/mcp.json", ".config/Code/User", "servers"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", ".codeium/windsurf", "mcpServers"),
    ("zed", ".config/zed/settings.json", ".config/zed", "context_servers"),
    ("cline", ".cline/data/settings/cline_mcp_settings.json", ".cline/data/settings", "mcpServers"),
];

impl Home {
    fn new() -> Self {
        Home(Site::new(&on_host("fx", &[])))
    }

    /// With a file of Cursor's in it.
    fn with(text: &str) -> (Self, PathBuf) {
        let home = Home::new();
        let file = home.0.path(CURSOR);
        write(&file, text);
        (home, file)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.with_environment(BULKHEAD);
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args))
    }

    /// What a command prints that has to succeed, with names in the place of what differs from run to run.
    fn prints(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}: {ran:?}");
        self.named(&ran.stdout)
    }

    /// What a command says that has to be refused with this code.
    fn refused(&self, code: i32, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
        self.named(&ran.stderr)
    }

    fn named(&self, text: &str) -> String {
        let home = self.0.path("");
        text.replace(BULKHEAD, "@PROGRAM").replace(home.to_str().unwrap().trim_end_matches('/'), "@HOME")
    }
}

const CURSOR: &str = ".cursor/mcp.json";

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

/// The names in a directory.
fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o7777
}
