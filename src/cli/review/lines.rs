//! Lines of a width, with or without colours. Knows nothing of reviews.

use unicode_width::UnicodeWidthChar as _;

/// Narrower terminals are written to as if they were this wide.
const NARROWEST: usize = 24;

/// What a text is, and so its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As everything.
    Plain,
    /// A heading.
    Strong,
    /// Of less weight.
    Faint,
    /// New.
    Added,
    /// Gone.
    Removed,
    /// To be looked at.
    Warning,
    /// Not to be overlooked.
    Alarm,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Added => "32",
            Tone::Removed => "31",
            Tone::Warning => "33",
            Tone::Alarm => "1;31",
        }
    }
}

/// Paragraphs that are wrapped at the width as they come; nothing is held but the line at hand.
pub(super) struct Lines {
    out: String,
    width: usize,
    colours: bool,
    indent: usize,
    /// Of the paragraph at hand.
    lines: usize,
    most: usize,
    dropped: usize,
    line: Vec<(char, Tone)>,
    columns: usize,
}

impl Lines {
    pub fn new(width: usize, colours: bool) -> Self {
        let width = width.max(NARROWEST);
        let (out, line) = (String::new(), Vec::new());
        Lines { out, width, colours, indent: 0, lines: 0, most: usize::MAX, dropped: 0, line, columns: 0 }
    }

    /// Whether tones are seen.
    pub fn has_colours(&self) -> bool {
        self.colours
    }

    /// Begins a paragraph.
    pub fn begin(&mut self, indent: usize) {
        self.indent = indent.min(self.width / 3);
        (self.lines, self.most, self.dropped) = (0, usize::MAX, 0);
    }

    /// No more lines than these of this paragraph; what is left out is counted.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether nothing more of this paragraph is shown.
    pub fn is_full(&self) -> bool {
        self.lines >= self.most
    }

    /// Counts characters that are not even brought here.
    pub fn skip(&mut self, characters: usize) {
        self.dropped += characters;
    }

    pub fn put(&mut self, tone: Tone, text: &str) {
        text.chars().for_each(|c| self.push(tone, c));
    }

    fn push(&mut self, tone: Tone, c: char) {
        if self.is_full() {
            self.dropped += 1;
            return;
        }
        if c == '\n' {
            return self.flush(self.line.len());
        }
        // Whatever came here unescaped does not leave so.
        if c.is_control() {
            return c.escape_unicode().for_each(|c| self.push(tone, c));
        }
        let columns = c.width().unwrap_or(0);
        if self.columns + columns > self.width - self.indent {
            let blank = self.line.iter().rposition(|(c, _)| *c == ' ');
            let at = if c == ' ' { self.line.len() } else { blank.map_or(self.line.len(), |at| at + 1) };
            self.flush(at);
            if c == ' ' && self.line.is_empty() {
                return;
            }
            return self.push(tone, c);
        }
        self.columns += columns;
        self.line.push((c, tone));
    }

    /// Ends the paragraph.
    pub fn end(&mut self) {
        if !self.line.is_empty() || self.lines == 0 {
            self.flush(self.line.len());
        }
        if self.dropped > 0 {
            let (dropped, indent) = (self.dropped, self.indent);
            self.begin(indent);
            self.put(Tone::Faint, &format!("… {dropped} more characters; --full shows all"));
            self.flush(self.line.len());
        }
    }

    /// Writes the line up to a character; the rest begins the next one.
    fn flush(&mut self, at: usize) {
        let rest = self.line.split_off(at);
        let mut tone = Tone::Plain;
        while self.line.last().is_some_and(|(c, _)| *c == ' ') {
            self.line.pop();
        }
        if !self.line.is_empty() {
            self.out.extend(std::iter::repeat_n(' ', self.indent));
        }
        for (c, now) in std::mem::take(&mut self.line) {
            if self.colours && now != tone {
                self.out.push_str(if tone == Tone::Plain { "" } else { "\x1b[0m" });
                if now != Tone::Plain {
                    self.out.push_str(&format!("\x1b[{}m", now.code()));
                }
            }
            tone = now;
            self.out.push(c);
        }
        if self.colours && tone != Tone::Plain {
            self.out.push_str("\x1b[0m");
        }
        self.out.push('\n');
        self.lines += 1;
        self.columns = rest.iter().map(|(c, _)| c.width().unwrap_or(0)).sum();
        self.line = rest;
        if self.is_full() {
            self.dropped += std::mem::take(&mut self.line).len();
            self.columns = 0;
        }
    }

    /// All lines.
    pub fn finish(self) -> String {
        self.out
    }
}
