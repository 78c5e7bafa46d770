//! Where people and programs keep credentials. Knows nothing of other sensitive places.

use std::path::{Component, Path, PathBuf};

/// What holds credentials or an engine's data in a home: refused itself, below, and as part of a directory that has it.
const CREDENTIALS: [&str; 15] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".docker",
    ".kube",
    ".azure",
    ".netrc",
    ".git-credentials",
    ".password-store",
    ".config/gcloud",
    ".config/gh",
    ".local/share/docker",
    ".local/share/containers",
    ".local/share/keyrings",
    "Library/Keychains",
];

/// Files that a login runs, or in which programs keep tokens: refused by themselves, wherever they are. A project's directory
/// may have one of them.
const FILES: [&str; 24] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_history",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".zsh_history",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".xprofile",
    ".xsession",
    ".xinitrc",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
];

/// What a home keeps its programs, their settings and their data in: refused whole, but not what lies deeper.
pub(super) const OF_HOMES: [&str; 4] = [".config", ".local", ".cargo", ".bin"];

/// Why a single file is not handed on, if so.
pub(super) fn file(real: &Path) -> Option<String> {
    let name = real.file_name()?.to_string_lossy().to_lowercase();
    let known = FILES.iter().find(|known| **known == name)?;
    Some(format!("a login may run it, or it may hold tokens ({known})"))
}

/// Whether a path is, is in, or directly holds a place of credentials.
pub(super) fn found(real: &Path) -> Option<String> {
    let parts: Vec<String> = real.components().filter_map(name).collect();
    for known in CREDENTIALS {
        let wanted: Vec<String> = known.split('/').map(str::to_lowercase).collect();
        if parts.windows(wanted.len()).any(|window| window == wanted) {
            return Some(format!("it is, or is in, a place of credentials ({known})"));
        }
        // `~` holds `.config/gcloud`, and `~/.config` holds `gcloud`.
        let holds = (0..wanted.len()).filter(|cut| parts.ends_with(&wanted[..*cut])).find_map(|cut| {
            let rest: PathBuf = known.split('/').skip(cut).collect();
            real.join(&rest).symlink_metadata().is_ok().then_some(rest)
        });
        if let Some(rest) = holds {
            return Some(format!("it holds credentials ({})", rest.display()));
        }
    }
    None
}

/// A part of a path as it is compared: some file systems take `.SSH` for `.ssh`.
fn name(part: Component<'_>) -> Option<String> {
    match part {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    }
}
