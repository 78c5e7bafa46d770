//! Lines of a file that may be damaged: never more than a record's worth in memory. Knows nothing of what they say.

use std::io::{self, BufRead, Read as _};

/// No record is longer: its texts are cut.
pub(super) const MAX_LINE: usize = 256 * 1024;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line with its line break.
    Whole,
    /// The last line, without one.
    Torn,
    /// More than any record has, and no line break.
    TooLong,
    /// Nothing more.
    End,
}

/// Reads the next line, without its line break, into `line`.
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Found> {
    line.clear();
    reader.take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    Ok(match line.last() {
        None => Found::End,
        Some(b'\n') => {
            line.pop();
            Found::Whole
        }
        Some(_) if line.len() > MAX_LINE => Found::TooLong,
        Some(_) => Found::Torn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_from_a_torn_end_and_from_rubbish() {
        let mut reader = &b"a\n\nb"[..];
        let mut line = Vec::new();
        let mut next = || read_line(&mut reader, &mut line).map(|found| (found, line.clone())).unwrap();
        assert_eq!(next(), (Found::Whole, b"a".to_vec()));
        assert_eq!(next(), (Found::Whole, b"".to_vec()));
        assert_eq!(next(), (Found::Torn, b"b".to_vec()));
        assert_eq!(next(), (Found::End, b"".to_vec()));
        let endless = vec![b'x'; MAX_LINE * 3];
        assert_eq!(read_line(&mut &endless[..], &mut line).unwrap(), Found::TooLong);
        assert!(line.len() <= MAX_LINE + 1);
    }
}
