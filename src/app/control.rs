//! How `bulkhead status` asks a running gateway: a socket in the state directory, which only its owner can open, that
//! says the status to whoever connects and takes nothing in. Changes nothing.

use std::path::PathBuf;

/// Where the sockets are, below the state directory.
const FOLDER: &str = "control";

/// The socket of one gateway, removed when dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
mod socket {
    use std::io;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::Value;
    use sha2::{Digest as _, Sha256};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{UnixListener, UnixStream};

    use super::{Control, FOLDER};
    use crate::app::App;
    use crate::config::file::private_folder;

    /// Longest path of a socket on the strictest of our systems, with its end.
    const LONGEST: usize = 100;

    /// Longest wait for a gateway's answer.
    const WAIT: Duration = Duration::from_secs(2);

    impl Control {
        /// Opens the socket of a gateway.
        pub fn open(app: &Arc<App>) -> io::Result<Control> {
            let folder = folder(&app.state);
            private_folder(&folder)?;
            let meta = std::fs::symlink_metadata(&folder)?;
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
                return Err(io::Error::other(format!("{} is not ours alone", folder.display())));
            }
            let path = folder.join(format!("{}.sock", &app.instance[app.instance.len() - 12..]));
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            let app = app.clone();
            let task = tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let text = app.status().to_string();
                    let _ = tokio::time::timeout(WAIT, async { stream.write_all(text.as_bytes()).await }).await;
                }
            });
            Ok(Control { path, task })
        }
    }

    /// Where the sockets are. The path of a socket has about a hundred characters: where the state directory leaves too
    /// little of them, the sockets lie in a directory of ours under /tmp that is named after it.
    fn folder(state: &Path) -> PathBuf {
        let usual = state.join(FOLDER);
        if usual.as_os_str().len() + "/0123456789ab.sock".len() < LONGEST {
            return usual;
        }
        let place = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        let key = crate::hex(&Sha256::digest(place.as_os_str().as_encoded_bytes())[..8]);
        PathBuf::from(format!("/tmp/bulkhead-{}-{key}", rustix::process::geteuid().as_raw()))
    }

    /// The status of every gateway that runs with this state directory; what is left of dead ones is removed.
    pub async fn ask_all(state: &Path) -> Vec<Value> {
        let mut found = Vec::new();
        let Ok(folder) = std::fs::read_dir(folder(state)) else { return found };
        for path in folder.flatten().map(|f| f.path()) {
            match UnixStream::connect(&path).await {
                Ok(stream) => found.extend(ask(stream).await),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => drop(std::fs::remove_file(&path)),
                Err(_) => {}
            }
        }
        found.sort_by_key(|status| status["instance"].to_string());
        found
    }

    async fn ask(mut stream: UnixStream) -> Option<Value> {
        let mut text = Vec::new();
        tokio::time::timeout(WAIT, stream.read_to_end(&mut text)).await.ok()?.ok()?;
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(unix)]
pub use socket::ask_all;

#[cfg(not(unix))]
impl Control {
    /// There are no such sockets on this system, and no gateway is asked for its status.
    pub fn open(_: &std::sync::Arc<super::App>) -> std::io::Result<Control> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// There are no such sockets on this system.
#[cfg(not(unix))]
pub async fn ask_all(_: &std::path::Path) -> Vec<serde_json::Value> {
    Vec::new()
}
