//! A build's context as an archive in which nothing depends on the time or the machine. Pure.

use std::io;

/// The archive while it is made.
pub(in crate::compartment) struct Context(tar::Builder<Vec<u8>>);

impl Context {
    pub fn new() -> Self {
        Context(tar::Builder::new(Vec::new()))
    }

    pub fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.entry(path, tar::EntryType::Regular, 0o644, content)
    }

    pub fn program(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.entry(path, tar::EntryType::Regular, 0o755, content)
    }

    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, tar::EntryType::Directory, 0o755, &[])
    }

    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let mut header = header(tar::EntryType::Symlink, 0o777);
        header.set_size(0);
        self.0.append_link(&mut header, path, target)
    }

    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.0.into_inner()
    }

    fn entry(&mut self, path: &str, kind: tar::EntryType, mode: u32, content: &[u8]) -> io::Result<()> {
        let mut header = header(kind, mode);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content)
    }
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
