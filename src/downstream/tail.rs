//! The last lines of a server's standard error, bounded, safe to show. Knows nothing of servers.

use std::collections::VecDeque;

use crate::wire::text::visible;

/// Lines kept.
const LINES: usize = 8;
/// Characters kept of each.
const WIDTH: usize = 200;

/// A short memory of what was written.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Tail {
    /// Takes in bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = (WIDTH * 4).saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.partial);
                self.keep(&line);
            }
        }
    }

    /// The lines so far on one line, if any.
    pub fn text(&self) -> Option<String> {
        let partial = shown(&self.partial);
        let all: Vec<&str> = self.lines.iter().map(String::as_str).chain(partial.as_deref()).collect();
        (!all.is_empty()).then(|| all.join(" | "))
    }

    fn keep(&mut self, line: &[u8]) {
        let Some(line) = shown(line) else { return };
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
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
    fn a_line_without_end_does_not_grow() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push(&[b'x'; 1000]);
        }
        assert!(tail.partial.len() <= WIDTH * 4 && tail.text().unwrap().len() < WIDTH + 10);
    }
}
