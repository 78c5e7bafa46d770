//! Writing into a lock that others write, too. Decides nothing of what is written.

use std::path::Path;

use super::{Lock, LockedServer};
use crate::config::file::alone;
use crate::error::{Class, Fault};

impl Lock {
    /// Puts servers into the lock at `path` as it is by then, where it still says of them what it said `before`, and takes
    /// out those that `keep` is against. Writers take turns in the folder `turns`.
    pub fn merge(
        path: &Path,
        turns: &Path,
        before: &Lock,
        accepted: impl IntoIterator<Item = (String, LockedServer)>,
        keep: impl Fn(&str) -> bool,
    ) -> Result<(), Fault> {
        let _turn = alone(turns).map_err(|error| {
            Fault::new(Class::Usage, format!("the lock cannot be written now: {}: {error}", turns.display()))
        })?;
        let mut lock = Lock::read(path)?.unwrap_or_default();
        lock.servers.retain(|name, _| keep(name));
        for (name, server) in accepted {
            if lock.servers.get(&name) != before.servers.get(&name) {
                let why = "was locked by somebody else meanwhile, so nothing was written; run it again";
                return Err(Fault::new(Class::Usage, format!("server {name} {why}")));
            }
            lock.servers.insert(name, server);
        }
        lock.write(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(servers: &[(&str, &str)]) -> Lock {
        let server = |revision: &str| LockedServer {
            kind: "unisolated".to_owned(),
            revision: revision.to_owned(),
            ..LockedServer::default()
        };
        Lock { servers: servers.iter().map(|(name, revision)| ((*name).to_owned(), server(revision))).collect() }
    }

    #[test]
    fn what_others_have_written_stays_and_what_they_have_approved_is_not_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulkhead.lock");
        let before = lock(&[("a", "1"), ("gone", "1")]);
        lock(&[("a", "1"), ("b", "1"), ("gone", "1")]).write(&path).unwrap();
        let put = |a: &str| Lock::merge(&path, dir.path(), &before, lock(&[("a", a)]).servers, |name| name != "gone");
        put("2").unwrap();
        assert_eq!(Lock::read(&path).unwrap().unwrap(), lock(&[("a", "2"), ("b", "1")]));
        // It is another one by now than the one that was looked at.
        assert!(put("3").unwrap_err().inward.contains("by somebody else"));
        assert_eq!(Lock::read(&path).unwrap().unwrap(), lock(&[("a", "2"), ("b", "1")]));
    }
}
