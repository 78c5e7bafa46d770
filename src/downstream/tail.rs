//! The last lines of a server's standard error, bounded, safe to show. Knows nothing of servers.

use std::collections::VecDeque;

use memchr::memrchr;

use crate::wire::text::visible;

/// Lines kept.
const LINES: usize = 8;
/// Characters kept of each.
const WIDTH: usize = 200;
/// Bytes kept of each: enough for so many characters.
const HELD: usize = WIDTH * 4;

/// A short memory of what was written. A server may write much faster than anybody reads: what a piece holds besides its
/// last lines is passed over, and only what somebody looks at is made a text.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<Vec<u8>>,
    partial: Vec<u8>,
}

impl Tail {
    /// Takes in bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(end) = memrchr(b'\n', bytes) else { return self.hold(bytes) };
        let mut last = Vec::with_capacity(LINES);
        let mut before = &bytes[..end];
        while let Some(at) = memrchr(b'\n', before).filter(|_| last.len() < LINES) {
            last.extend(kept(&before[at + 1..]));
            before = &before[..at];
        }
        if last.len() < LINES {
            self.hold(before);
            last.extend(kept(&self.partial));
        }
        self.lines.extend(last.into_iter().rev());
        self.lines.drain(..self.lines.len().saturating_sub(LINES));
        self.partial.clear();
        self.hold(&bytes[end + 1..]);
    }

    /// The lines so far on one line, if any.
    pub fn text(&self) -> Option<String> {
        let all: Vec<String> = self.lines.iter().chain([&self.partial]).filter_map(|line| shown(line)).collect();
        (!all.is_empty()).then(|| all.join(" | "))
    }

    /// Takes in a piece of a line.
    fn hold(&mut self, piece: &[u8]) {
        let room = HELD.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// What is kept of a line; nothing of a blank one.
fn kept(line: &[u8]) -> Option<Vec<u8>> {
    let line = &line[..line.len().min(HELD)];
    (!line.trim_ascii().is_empty()).then(|| line.to_vec())
}

fn shown(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    (!text.is_empty()).then(|| visible(text, WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept_and_are_safe_to_show() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), None);
        for n in 0..100 {
            tail.push(format!("line {n}\r\n\n").as_bytes());
        }
        tail.push(b"\x1b[31mred");
        let text = tail.text().unwrap();
        assert!(text.starts_with("line 92 | ") && text.ends_with("line 99 | \\u{1b}[31mred"), "{text}");
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let written = "first\n\n  \nsecond\nthe third\r\n".repeat(3) + &"x\n".repeat(7) + "\n\n\nla" + "st";
        for size in 1..written.len() {
            let mut tail = Tail::default();
            for piece in written.as_bytes().chunks(size) {
                tail.push(piece);
            }
            assert_eq!(tail.text().unwrap(), format!("the third | {}last", "x | ".repeat(7)), "{size}");
        }
    }

    #[test]
    fn a_line_without_end_does_not_grow() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push(&[b'x'; 1000]);
        }
        assert!(tail.partial.len() <= HELD && tail.text().unwrap().len() < WIDTH + 10);
    }
}
