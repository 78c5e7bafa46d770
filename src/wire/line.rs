//! Lines out of a byte stream, with a cap. Knows nothing of JSON.

use memchr::memchr;

/// One complete line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, without `\n` or `\r\n`, and without a byte order mark at the very beginning of the stream.
    Whole(Vec<u8>),
    /// It was longer than the cap: its first bytes (enough to find an id in), and its whole length.
    TooLong {
        /// At most [`HEAD`] bytes of it.
        head: Vec<u8>,
        /// Its last bytes, at most [`HEAD`]: some writers put the id there.
        tail: Vec<u8>,
        /// How long it was.
        length: usize,
    },
}

/// How much of an over-long line is kept at each end.
pub const HEAD: usize = 4096;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Collects bytes into lines. Blank lines vanish, since they carry nothing and several writers send them.
#[derive(Debug)]
pub struct Lines {
    cap: usize,
    held: Vec<u8>,
    /// Length of the line being skipped, once it is over the cap; `held` then has its head.
    skipping: Option<usize>,
    tail: Vec<u8>,
}

impl Lines {
    /// Lines of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Lines { cap, held: Vec::new(), skipping: None, tail: Vec::new() }
    }

    /// Takes in bytes and hands every line that is now complete to `each`.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(at) = memchr(b'\n', bytes) {
            self.hold(&bytes[..at]);
            bytes = &bytes[at + 1..];
            if let Some(line) = self.take() {
                each(line);
            }
        }
        self.hold(bytes);
    }

    /// The last line of a stream that ended without a line end.
    pub fn finish(&mut self) -> Option<Line> {
        self.take()
    }

    fn hold(&mut self, bytes: &[u8]) {
        if let Some(length) = &mut self.skipping {
            *length += bytes.len();
            self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(HEAD)..]);
            let surplus = self.tail.len().saturating_sub(HEAD);
            self.tail.drain(..surplus);
        } else if self.held.len() + bytes.len() > self.cap {
            self.skipping = Some(self.held.len());
            let rest = HEAD.saturating_sub(self.held.len()).min(bytes.len());
            self.held.extend_from_slice(&bytes[..rest]);
            self.held.truncate(HEAD);
            self.held.shrink_to_fit();
            self.hold(bytes);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn take(&mut self) -> Option<Line> {
        let mut bytes = std::mem::take(&mut self.held);
        if let Some(length) = self.skipping.take() {
            return Some(Line::TooLong { head: bytes, tail: std::mem::take(&mut self.tail), length });
        }
        if bytes.starts_with(BOM) {
            bytes.drain(..BOM.len());
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        // JSON allows a bare carriage return between its tokens, and many a reader takes it for the end of a line: what
        // stands behind it would be a message of its own to whoever reads next, past everything that was decided here.
        if memchr(b'\r', &bytes).is_some() {
            bytes.iter_mut().filter(|b| **b == b'\r').for_each(|b| *b = b' ');
        }
        (!bytes.trim_ascii().is_empty()).then_some(Line::Whole(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(cap: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let (mut lines, mut out) = (Lines::new(cap), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| out.push(line));
        }
        out.extend(lines.finish());
        out
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn ends_marks_and_blanks_are_no_part_of_a_line() {
        assert_eq!(
            lines(99, &[b"\xef\xbb\xbf{}\r\n\n  \r\n[1]\n{\"a\"", b":1}"]),
            [whole("{}"), whole("[1]"), whole("{\"a\":1}")]
        );
    }

    #[test]
    fn a_line_may_come_byte_by_byte() {
        let text = "{\"a\":\"é\"}\n".as_bytes();
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(99, &pieces), [whole("{\"a\":\"é\"}")]);
    }

    #[test]
    fn a_bare_carriage_return_ends_no_line_for_anybody() {
        assert_eq!(lines(99, &[b"{\"a\":\r{\"b\":1}\r}\r\n"]), [whole("{\"a\": {\"b\":1} }")]);
    }

    #[test]
    fn a_line_over_the_cap_keeps_its_ends_and_its_length_and_costs_no_more() {
        let long = vec![b'x'; 20_000];
        let got = lines(10_000, &[&long, b"end\n", b"next\n"]);
        let Line::TooLong { head, tail, length } = &got[0] else { panic!("{:?}", got[0]) };
        assert_eq!((head.len(), *length), (HEAD, 20_003));
        assert!(tail.len() <= HEAD && tail.ends_with(b"xend"));
        assert_eq!(got[1], whole("next"));
    }

    #[test]
    fn the_cap_itself_is_allowed() {
        assert_eq!(lines(4, &[b"1234\n"]), [whole("1234")]);
        assert!(matches!(lines(4, &[b"12345\n"])[0], Line::TooLong { length: 5, .. }));
    }
}
