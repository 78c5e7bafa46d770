//! The clients whose own configuration can name us: where each keeps it, what its entry looks like, and edits that
//! change nothing else. Knows nothing of what a server is to us, nor of how anything is shown.
//!
//! [`Client::place`] says which file, [`Original`] holds it as it was found and replaces it, and [`edit`] makes one text
//! of another.

pub mod document;
pub mod edit;
pub mod entry;
mod layout;
pub mod mask;
pub mod original;
mod places;

pub use document::Wrong;
pub use edit::{Outcome, Seen};
pub use entry::{Entry, Whose};
pub use original::Original;
pub use places::{Place, System};

/// A client that we know the configuration of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Windsurf.
    Windsurf,
    /// Zed.
    Zed,
    /// Cline.
    Cline,
}

impl Client {
    /// Every client, in the order in which they are listed.
    pub const ALL: [Client; 7] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Cursor,
        Client::VsCode,
        Client::Windsurf,
        Client::Zed,
        Client::Cline,
    ];

    /// Its name on a command line.
    pub fn word(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "claude-desktop",
            Client::ClaudeCode => "claude-code",
            Client::Cursor => "cursor",
            Client::VsCode => "vscode",
            Client::Windsurf => "windsurf",
            Client::Zed => "zed",
            Client::Cline => "cline",
        }
    }

    /// The client of that name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.word() == word)
    }

    /// Its name in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "Claude Desktop",
            Client::ClaudeCode => "Claude Code",
            Client::Cursor => "Cursor",
            Client::VsCode => "VS Code",
            Client::Windsurf => "Windsurf",
            Client::Zed => "Zed",
            Client::Cline => "Cline",
        }
    }

    /// The key of its file that holds the servers.
    pub fn key(self) -> &'static str {
        match self {
            Client::VsCode => "servers",
            Client::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    /// The `type` that its entries must have.
    pub fn kind(self) -> Option<&'static str> {
        (self == Client::VsCode).then_some("stdio")
    }
}
