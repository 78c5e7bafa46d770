//! The key under which arguments are hashed, so that a short argument cannot be guessed from its hash. Blocking.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::place::{self, ANY, Trouble};

const LEN: usize = 32;

/// A key of one state directory.
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// Reads the key, or makes one where there is none. Two processes must not do this at the same time.
    pub(super) fn load(path: &Path) -> Result<Self, Trouble> {
        let mut file = place::open_own(path, ANY)?;
        let mut bytes = Vec::new();
        (&file).take(LEN as u64 + 1).read_to_end(&mut bytes).map_err(|e| Trouble::Io("read", e))?;
        if bytes.is_empty() {
            bytes = vec![0; LEN];
            getrandom::fill(&mut bytes).map_err(|e| Trouble::Io("filled", io::Error::other(e)))?;
            file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(|e| Trouble::Io("written", e))?;
            place::sync_dir(path)?;
        }
        if bytes.len() == LEN { Key::new(&bytes) } else { Err(Trouble::NoKey) }
    }

    fn new(bytes: &[u8]) -> Result<Self, Trouble> {
        Hmac::new_from_slice(bytes).map(Key).map_err(|_| Trouble::NoKey)
    }

    /// HMAC-SHA256, lower-case hex.
    pub(super) fn hash(&self, bytes: &[u8]) -> String {
        crate::hex(&self.0.clone().chain_update(bytes).finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_kept_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        let first = Key::load(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(first.hash(b"{}"), Key::load(&path).unwrap().hash(b"{}"));
        let other = Key::load(&dir.path().join("other.key")).unwrap();
        assert_ne!(first.hash(b"{}"), other.hash(b"{}"));
    }

    #[test]
    fn the_hash_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let hash = Key::new(b"Jefe").unwrap().hash(b"what do ya want for nothing?");
        assert_eq!(hash, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_damaged_or_readable_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        Key::load(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Key::load(&path).err(), Some(Trouble::Open(0o640))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for bytes in [&[1; LEN - 1][..], &[1; LEN + 1]] {
            fs::write(&path, bytes).unwrap();
            assert!(matches!(Key::load(&path).err(), Some(Trouble::NoKey)));
        }
    }
}
