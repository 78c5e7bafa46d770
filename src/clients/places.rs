//! Where each client keeps its configuration, for each operating system. Knows nothing of what is in it.

use std::path::{Path, PathBuf};

use super::Client;
use crate::config::env::{Environment, directory};

/// The operating systems whose places differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux, and what else keeps to the XDG rules.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

/// A file, and what shows that its client is there at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The configuration.
    pub file: PathBuf,
    /// The client's own directory; it need not be the file's parent.
    pub folder: PathBuf,
}

impl System {
    /// The one that we run on.
    pub fn here() -> Self {
        match () {
            () if cfg!(target_os = "macos") => System::MacOs,
            () if cfg!(windows) => System::Windows,
            () => System::Linux,
        }
    }
}

impl Place {
    fn within(folder: PathBuf, file: &str) -> Self {
        Place { file: folder.join(file), folder }
    }

    /// Whether the client is there, with a configuration or without.
    pub fn is_found(&self) -> bool {
        self.folder.is_dir() || self.file.symlink_metadata().is_ok()
    }
}

impl Client {
    /// The configuration for all of a user's work: the first place where the client is, else the usual one. None where
    /// the environment names no home.
    pub fn place(self, env: &dyn Environment, system: System) -> Option<Place> {
        let candidates = Bases { env, system }.candidates(self);
        let found = candidates.iter().find(|place| place.is_found()).cloned();
        found.or_else(|| candidates.into_iter().next_back())
    }

    /// The configuration of one project, for the clients that have one.
    pub fn project(self, root: &Path) -> Option<Place> {
        match self {
            Client::ClaudeCode => Some(Place::within(root.to_owned(), ".mcp.json")),
            Client::Cursor => Some(Place::within(root.join(".cursor"), "mcp.json")),
            Client::VsCode => Some(Place::within(root.join(".vscode"), "mcp.json")),
            Client::ClaudeDesktop | Client::Windsurf | Client::Zed | Client::Cline => None,
        }
    }
}

/// What all places begin with.
struct Bases<'a> {
    env: &'a dyn Environment,
    system: System,
}

impl Bases<'_> {
    /// The places of a client, those that are preferred where they are there first, the usual one last.
    fn candidates(&self, client: Client) -> Vec<Place> {
        match client {
            Client::ClaudeDesktop => self.claude_desktop(),
            Client::ClaudeCode => self.claude_code().into_iter().collect(),
            Client::Cursor => self.below_home(".cursor", "mcp.json"),
            Client::VsCode => self.below_applications("Code/User", "mcp.json"),
            Client::Windsurf => self.below_home(".codeium/windsurf", "mcp_config.json"),
            Client::Zed => self.zed().map(|folder| Place::within(folder, "settings.json")).into_iter().collect(),
            Client::Cline => self.cline(),
        }
    }

    fn home(&self) -> Option<PathBuf> {
        directory(self.env, if self.system == System::Windows { "USERPROFILE" } else { "HOME" })
    }

    /// Where applications keep what belongs to a user.
    fn applications(&self) -> Option<PathBuf> {
        let below = |below: &str| self.home().map(|home| home.join(below));
        match self.system {
            System::Linux => directory(self.env, "XDG_CONFIG_HOME").or_else(|| below(".config")),
            System::MacOs => below("Library/Application Support"),
            System::Windows => directory(self.env, "APPDATA").or_else(|| below("AppData/Roaming")),
        }
    }

    fn below_home(&self, folder: &str, file: &str) -> Vec<Place> {
        self.home().map(|home| Place::within(home.join(folder), file)).into_iter().collect()
    }

    fn below_applications(&self, folder: &str, file: &str) -> Vec<Place> {
        self.applications().map(|base| Place::within(base.join(folder), file)).into_iter().collect()
    }

    /// As a package of the Windows store it sees another directory under the usual one's name.
    fn claude_desktop(&self) -> Vec<Place> {
        const FILE: &str = "claude_desktop_config.json";
        let packages = (self.system == System::Windows)
            .then(|| directory(self.env, "LOCALAPPDATA").or_else(|| Some(self.home()?.join("AppData/Local"))))
            .flatten()
            .and_then(|local| std::fs::read_dir(local.join("Packages")).ok());
        let named = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("Claude_"));
        let packages = packages.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).filter(named);
        let mut places: Vec<_> =
            packages.map(|package| Place::within(package.join("LocalCache/Roaming/Claude"), FILE)).collect();
        places.sort_by(|a, b| a.file.cmp(&b.file));
        places.extend(self.below_applications("Claude", FILE));
        places
    }

    /// The file lies beside its directory, not in it, unless that was chosen.
    fn claude_code(&self) -> Option<Place> {
        const FILE: &str = ".claude.json";
        if let Some(folder) = directory(self.env, "CLAUDE_CONFIG_DIR") {
            return Some(Place::within(folder, FILE));
        }
        let home = self.home()?;
        Some(Place { file: home.join(FILE), folder: home.join(".claude") })
    }

    /// On macOS, too, it is below `.config`, and no variable moves it there.
    fn zed(&self) -> Option<PathBuf> {
        match self.system {
            System::Linux => Some(self.applications()?.join("zed")),
            System::MacOs => Some(self.home()?.join(".config/zed")),
            System::Windows => Some(self.applications()?.join("Zed")),
        }
    }

    /// A directory that its extension, its command line and other editors share; before that, the extension's own in
    /// VS Code, which it moves over when it starts.
    fn cline(&self) -> Vec<Place> {
        const FILE: &str = "cline_mcp_settings.json";
        if let Some(file) = directory(self.env, "CLINE_MCP_SETTINGS_PATH") {
            let folder = file.parent().unwrap_or(&file).to_owned();
            return vec![Place { file, folder }];
        }
        let data = directory(self.env, "CLINE_DATA_DIR")
            .or_else(|| Some(directory(self.env, "CLINE_DIR")?.join("data")))
            .or_else(|| Some(self.home()?.join(".cline/data")));
        let shared = data.map(|data| Place::within(data.join("settings"), FILE));
        let own = self.applications().map(|base| {
            let folder = base.join("Code/User/globalStorage/saoudrizwan.claude-dev");
            Place { file: folder.join("settings").join(FILE), folder }
        });
        shared.clone().into_iter().chain(own).chain(shared).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::env::Fixed;

    /// The file of a client where nothing is installed.
    fn file(client: Client, env: &Fixed, system: System) -> String {
        client.place(env, system).unwrap().file.to_str().unwrap().to_owned()
    }

    #[test]
    fn every_client_on_every_system() {
        let unix = Fixed::from([("HOME", "/h")]);
        let windows = Fixed::from([("USERPROFILE", "/u"), ("APPDATA", "/u/roam"), ("LOCALAPPDATA", "/u/loc")]);
        let support = "/h/Library/Application Support";
        let table = [
            (Client::ClaudeDesktop, "/h/.config/Claude", support, "/Claude", "/u/roam/Claude"),
            (Client::VsCode, "/h/.config/Code/User", support, "/Code/User", "/u/roam/Code/User"),
            (Client::Cursor, "/h/.cursor", "/h", "/.cursor", "/u/.cursor"),
            (Client::Windsurf, "/h/.codeium/windsurf", "/h", "/.codeium/windsurf", "/u/.codeium/windsurf"),
            (Client::Zed, "/h/.config/zed", "/h", "/.config/zed", "/u/roam/Zed"),
            (Client::Cline, "/h/.cline/data/settings", "/h", "/.cline/data/settings", "/u/.cline/data/settings"),
            (Client::ClaudeCode, "/h", "/h", "", "/u"),
        ];
        for (client, linux, mac, below, roaming) in table {
            let name = match client {
                Client::ClaudeDesktop => "claude_desktop_config.json",
                Client::ClaudeCode => ".claude.json",
                Client::Windsurf => "mcp_config.json",
                Client::Zed => "settings.json",
                Client::Cline => "cline_mcp_settings.json",
                Client::Cursor | Client::VsCode => "mcp.json",
            };
            assert_eq!(file(client, &unix, System::Linux), format!("{linux}/{name}"));
            assert_eq!(file(client, &unix, System::MacOs), format!("{mac}{below}/{name}"));
            assert_eq!(file(client, &windows, System::Windows), format!("{roaming}/{name}"));
            assert_eq!(client.place(&Fixed::default(), System::Linux), None, "nowhere without a home");
        }
    }

    #[test]
    fn variables_move_what_they_are_for() {
        let env = Fixed::from([
            ("HOME", "/h"),
            ("XDG_CONFIG_HOME", "/x"),
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("CLINE_DATA_DIR", "/d"),
            ("CLINE_DIR", "/no"),
        ]);
        assert_eq!(file(Client::ClaudeDesktop, &env, System::Linux), "/x/Claude/claude_desktop_config.json");
        assert_eq!(file(Client::Zed, &env, System::Linux), "/x/zed/settings.json");
        assert_eq!(file(Client::Zed, &env, System::MacOs), "/h/.config/zed/settings.json");
        assert_eq!(file(Client::ClaudeCode, &env, System::Linux), "/c/.claude.json");
        assert_eq!(file(Client::Cline, &env, System::Linux), "/d/settings/cline_mcp_settings.json");
        let env = Fixed::from([("HOME", "/h"), ("CLINE_MCP_SETTINGS_PATH", "/s/m.json"), ("XDG_CONFIG_HOME", "rel")]);
        assert_eq!(file(Client::Cline, &env, System::Linux), "/s/m.json");
        assert_eq!(file(Client::VsCode, &env, System::Linux), "/h/.config/Code/User/mcp.json");
    }

    #[test]
    fn the_place_where_a_client_is_comes_before_the_usual_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let env = Fixed::from([("HOME", home), ("USERPROFILE", home)]);
        let store = dir.path().join("AppData/Local/Packages/Claude_x/LocalCache/Roaming/Claude");
        std::fs::create_dir_all(dir.path().join("AppData/Local/Packages/Other_x")).unwrap();
        let usual = dir.path().join("AppData/Roaming/Claude");
        let folder = || Client::ClaudeDesktop.place(&env, System::Windows).unwrap().folder;
        assert_eq!(folder(), usual);
        std::fs::create_dir_all(&store).unwrap();
        assert_eq!(folder(), store);

        let own = dir.path().join(".config/Code/User/globalStorage/saoudrizwan.claude-dev");
        std::fs::create_dir_all(&own).unwrap();
        let cline = || Client::Cline.place(&env, System::Linux).unwrap();
        assert_eq!(cline().file, own.join("settings/cline_mcp_settings.json"));
        std::fs::create_dir_all(dir.path().join(".cline/data/settings")).unwrap();
        assert_eq!(cline().file, dir.path().join(".cline/data/settings/cline_mcp_settings.json"));
    }

    #[test]
    fn the_files_of_projects() {
        let root = Path::new("/p");
        let file = |client: Client| Some(client.project(root)?.file.to_str().unwrap().to_owned());
        assert_eq!(file(Client::ClaudeCode).unwrap(), "/p/.mcp.json");
        assert_eq!(file(Client::Cursor).unwrap(), "/p/.cursor/mcp.json");
        assert_eq!(file(Client::VsCode).unwrap(), "/p/.vscode/mcp.json");
        for none in [Client::ClaudeDesktop, Client::Windsurf, Client::Zed, Client::Cline] {
            assert_eq!(file(none), None);
        }
    }
}
