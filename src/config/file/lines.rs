//! From a byte of a text to its line and column. Knows nothing of what the text says.

use crate::config::fault::Place;

/// The beginnings of all lines of a text.
pub(super) struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Looks through the text once.
    pub(super) fn of(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines { text, begins: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    /// The place of a byte; one past the end is the place after the last character.
    pub(super) fn place(&self, byte: usize) -> Place {
        let byte = byte.min(self.text.len());
        let line = self.begins.partition_point(|begin| *begin <= byte);
        let begin = self.begins[line - 1];
        let column = self.text.get(begin..byte).map_or(byte - begin, |before| before.chars().count()) + 1;
        Place { line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let lines = Lines::of("aé\r\nb\n");
        let at = |byte| (lines.place(byte).line, lines.place(byte).column);
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(3), (1, 3), "after the two-byte character");
        assert_eq!(at(5), (2, 1));
        assert_eq!(at(7), (3, 1));
        assert_eq!(at(99), (3, 1));
        assert_eq!((Lines::of("").place(0).line, Lines::of("").place(0).column), (1, 1));
    }
}
