//! Reading the audit back: whether its chain is whole, and its last records. Blocking; reads as it goes, whatever the size.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::chain::{Broken, Head, Sealed};
use super::lines::{Found, read_line};
use super::{place, unavailable};
use crate::error::Fault;

/// How much is read at a time on the way back from the end.
const BLOCK: u64 = 64 * 1024;

/// What the file is found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Sound records, up to the first bad line.
    pub records: u64,
    /// The last of them. Compare it with one noted elsewhere: a file cut short at a line is sound in itself.
    pub head: Head,
    /// The number of the first line, from 1, that does not belong where it stands, and what is wrong with it.
    pub first_bad_line: Option<(usize, String)>,
    /// Calls without an outcome, oldest first: never answered, or still running.
    pub interrupted: Vec<String>,
    /// Connections of servers that were to be made and of which no end is known, oldest first.
    pub unended: Vec<String>,
}

/// Reads the whole file and follows its chain from the first record.
pub fn verify(path: &Path) -> Result<Verification, Fault> {
    follow(path).map_err(|e| unreadable(path, &e))
}

fn follow(path: &Path) -> io::Result<Verification> {
    let file = File::open(path)?;
    let len = place::settled_len(&file)?;
    let mut reader = BufReader::new(file.take(len));
    let mut walk = Walk::default();
    let mut line = Vec::new();
    loop {
        let next = match read_line(&mut reader, &mut line)? {
            Found::End => return Ok(walk.end(None)),
            Found::Torn => Err(Broken::Torn),
            Found::TooLong => Err(Broken::NoRecord("it is longer than any record".into())),
            Found::Whole => walk.head.follow(&line),
        };
        match next {
            Ok(sealed) => walk.step(sealed),
            Err(broken) => return Ok(walk.end(Some(broken))),
        }
    }
}

/// How far a verification has got.
struct Walk {
    records: u64,
    head: Head,
    /// The calls that have begun and not ended, with the record that says so.
    open: HashMap<String, u64>,
    /// The same for connections.
    connections: HashMap<String, u64>,
}

impl Default for Walk {
    fn default() -> Self {
        Walk { records: 0, head: Head::start(), open: HashMap::new(), connections: HashMap::new() }
    }
}

impl Walk {
    fn step(&mut self, sealed: Sealed<'_>) {
        match (&*sealed.kind, sealed.call) {
            ("intent", Some(call)) => drop(self.open.insert(call.into_owned(), sealed.head.seq)),
            ("outcome", Some(call)) => drop(self.open.remove(&*call)),
            _ => {}
        }
        if let ("egress", Some(connection)) = (&*sealed.kind, sealed.connection) {
            match sealed.ms {
                None => drop(self.connections.insert(connection.into_owned(), sealed.head.seq)),
                Some(_) => drop(self.connections.remove(&*connection)),
            }
        }
        self.records += 1;
        self.head = sealed.head;
    }

    fn end(self, broken: Option<Broken>) -> Verification {
        let in_order = |open: HashMap<String, u64>| {
            let mut open: Vec<_> = open.into_iter().collect();
            open.sort_unstable_by_key(|(_, seq)| *seq);
            open.into_iter().map(|(name, _)| name).collect()
        };
        let line = usize::try_from(self.records).unwrap_or(usize::MAX).saturating_add(1);
        Verification {
            records: self.records,
            head: self.head,
            first_bad_line: broken.map(|broken| (line, broken.to_string())),
            interrupted: in_order(self.open),
            unended: in_order(self.connections),
        }
    }
}

/// The last records of a file, oldest first, as they stand there.
#[derive(Debug)]
pub struct Tail {
    reader: BufReader<io::Take<File>>,
}

/// The last `n` lines of the file. They are not verified.
pub fn tail(path: &Path, n: usize) -> Result<Tail, Fault> {
    last_lines(path, n).map_err(|e| unreadable(path, &e))
}

fn last_lines(path: &Path, n: usize) -> io::Result<Tail> {
    let mut file = File::open(path)?;
    let len = place::settled_len(&file)?;
    let start = start_of_last(&file, len, n)?;
    file.seek(SeekFrom::Start(start))?;
    Ok(Tail { reader: BufReader::new(file.take(len - start)) })
}

/// Where the last `n` of the lines in the first `len` bytes begin.
fn start_of_last(file: &File, len: u64, n: usize) -> io::Result<u64> {
    // The line break at the very end closes the last line and opens none.
    let (mut end, mut left) = (len.saturating_sub(1), n);
    if n == 0 {
        return Ok(len);
    }
    while end > 0 {
        let from = end.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(end - from).unwrap_or_default()];
        file.read_exact_at(&mut block, from)?;
        for at in memchr::memrchr_iter(b'\n', &block) {
            left -= 1;
            if left == 0 {
                return Ok(from + at as u64 + 1);
            }
        }
        end = from;
    }
    Ok(0)
}

impl Iterator for Tail {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match read_line(&mut self.reader, &mut line) {
            Ok(Found::End) => None,
            Ok(_) => Some(Ok(String::from_utf8_lossy(&line).into_owned())),
            Err(e) => Some(Err(e)),
        }
    }
}

fn unreadable(path: &Path, e: &io::Error) -> Fault {
    unavailable(format!("audit file {path:?} cannot be read: {e}"))
}

#[cfg(test)]
mod tests;
