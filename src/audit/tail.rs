//! The end of the file: where the chain has got to, and what is torn after it. Only reads.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use super::chain::{Head, unseal};
use super::lines::{Found, MAX_LINE, read_line};
use super::place::Trouble;

/// How a file ends.
pub(super) struct Tail {
    /// The last whole record.
    pub head: Head,
    /// The bytes up to and with its line break.
    pub whole: u64,
    /// What comes after: a line that was never finished.
    pub torn: Vec<u8>,
}

/// The end of a file of `len` bytes that we know nothing of. Its last record must be sound by itself; the records before it
/// are for `audit verify`.
pub(super) fn of(file: &File, len: u64) -> Result<Tail, Trouble> {
    let from = len.saturating_sub(2 * MAX_LINE as u64);
    let mut bytes = vec![0; usize::try_from(len - from).unwrap_or_default()];
    file.read_exact_at(&mut bytes, from).map_err(|e| Trouble::Io("read", e))?;
    let Some(end) = memchr::memrchr(b'\n', &bytes) else {
        return if from == 0 {
            Ok(Tail { head: Head::start(), whole: 0, torn: bytes })
        } else {
            Err(Trouble::NoRecords)
        };
    };
    let last = &bytes[..end];
    let last = &last[memchr::memrchr(b'\n', last).map_or(0, |before| before + 1)..];
    let head = unseal(last).map_err(Trouble::BadEnd)?.head;
    Ok(Tail { head, whole: from + end as u64 + 1, torn: bytes.split_off(end + 1) })
}

/// The end of a file that had got to `head` with its first `whole` bytes: what was written since must follow on.
pub(super) fn since(file: &File, head: &Head, whole: u64) -> Result<Tail, Trouble> {
    let (mut head, mut whole) = (head.clone(), whole);
    let mut reader = BufReader::new(from(file, whole).map_err(|e| Trouble::Io("read", e))?);
    let mut line = Vec::new();
    loop {
        match read_line(&mut reader, &mut line).map_err(|e| Trouble::Io("read", e))? {
            Found::Whole => {
                head = head.follow(&line).map_err(|broken| Trouble::Broken(head.seq, broken))?.head;
                whole += line.len() as u64 + 1;
            }
            Found::Torn => return Ok(Tail { head, whole, torn: line }),
            Found::TooLong => return Err(Trouble::NoRecords),
            Found::End => return Ok(Tail { head, whole, torn: Vec::new() }),
        }
    }
}

/// Where the file is read makes no difference to appending.
fn from(mut file: &File, at: u64) -> io::Result<&File> {
    file.seek(SeekFrom::Start(at))?;
    Ok(file)
}
