//! What a build says: lines out of chunks, the script's answer among them, the last useful ones for a failure. Pure.

use std::collections::VecDeque;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::executable::Program;
use super::hidden::Hidden;
use crate::text::visible;

/// Lines kept for the text of a failure.
const TAIL: usize = 12;
/// Longest line; the rest of it is dropped.
const LINE_MAX: usize = 64 * 1024;
/// Longest answer: that of a tree of some ten thousand packages.
const ANSWER_MAX: usize = 16 << 20;

/// What the script found when it was asked for a version.
#[derive(Debug, Deserialize)]
pub(super) struct Resolved {
    pub version: String,
    /// All packages that come with it, as the registry's own tools list them.
    pub tree: Vec<Map<String, Value>>,
}

/// What the script installed.
#[derive(Debug, Deserialize)]
pub(super) struct Installed {
    pub version: String,
    pub integrity: Option<String>,
    /// The package's own programs, and the one asked for where that is another's.
    pub programs: Vec<Program>,
    /// Packages of the tree that have an install script, which did not run.
    pub held: Vec<String>,
    /// SHA-256 over everything that was installed, lower-case hex.
    pub content: String,
}

/// Why the script gave up.
#[derive(Deserialize)]
struct Failed {
    failed: String,
    why: Option<Why>,
}

/// A reason that something can be done about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::compartment) enum Why {
    /// The registry does not know who asks.
    Login,
    /// Something is not what is locked.
    Bytes,
}

/// The output of one build.
pub(in crate::compartment) struct Output {
    marker: String,
    hidden: Hidden,
    pending: String,
    tail: VecDeque<String>,
    answer: Option<String>,
}

impl Output {
    /// The script's answer is the line that begins with `marker`, which no package can know.
    pub fn new(marker: &str) -> Self {
        Output::hiding(marker, Hidden::default())
    }

    /// The same, of which nobody sees what is hidden.
    pub fn hiding(marker: &str, hidden: Hidden) -> Self {
        Output { marker: format!("{marker} "), hidden, pending: String::new(), tail: VecDeque::new(), answer: None }
    }

    /// Takes a chunk, and hands every line worth showing to `show`.
    pub fn feed(&mut self, chunk: &str, show: &dyn Fn(&str)) {
        for piece in chunk.split_inclusive(['\n', '\r']) {
            let (text, ends) = match piece.strip_suffix(['\n', '\r']) {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let most = if self.pending.starts_with(&self.marker) { ANSWER_MAX } else { LINE_MAX };
            if self.pending.len() + text.len() <= most {
                self.pending.push_str(text);
            }
            if ends {
                let line = std::mem::take(&mut self.pending);
                self.line(&line, show);
            }
        }
    }

    /// The answer, if there is one of that shape.
    pub fn answer<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.answer.as_deref()?).ok()
    }

    /// Whether the script has answered.
    pub fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether a secret is in the answer: a registry has put it where it would be kept.
    pub fn tells_a_secret(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| self.hidden.is_in(answer))
    }

    /// Why it failed, in the script's words, or else in the last line of the build.
    pub fn reason(&self) -> Option<String> {
        let told = self.answer::<Failed>().map(|f| visible(&clean(&self.hidden.out_of(&f.failed)), LINE_MAX));
        told.or_else(|| self.tail.back().cloned())
    }

    /// What kind of reason the script gave, if it gave one.
    pub fn why(&self) -> Option<Why> {
        self.answer::<Failed>()?.why
    }

    /// The last useful lines.
    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    fn line(&mut self, line: &str, show: &dyn Fn(&str)) {
        let line = clean(line);
        if let Some(answer) = line.strip_prefix(&self.marker) {
            self.answer = Some(answer.to_owned());
            return;
        }
        if is_noise(&line) {
            return;
        }
        let line = visible(&self.hidden.out_of(&line), LINE_MAX);
        show(&line);
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }
}

/// The line without colours, controls and outer blanks: a registry's text ends up on the operator's terminal.
fn clean(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            let _ = chars.by_ref().skip_while(|c| *c == '[').find(|c| c.is_ascii_alphabetic());
        } else if c == '\t' || c == '\n' {
            out.push(' ');
        } else if !c.is_control() {
            out.push(c);
        }
    }
    out.trim().to_owned()
}

/// The builder's own lines, and those of npm that say nothing about this failure.
fn is_noise(line: &str) -> bool {
    const STARTS: [&str; 4] = ["Step ", "--->", "Removing intermediate container ", "Successfully "];
    line.is_empty()
        || STARTS.iter().any(|start| line.starts_with(start))
        || line.contains("A complete log of this run can be found in")
        || line.trim_end() == "npm error"
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn feed(chunks: &[&str]) -> (Output, Vec<String>) {
        let shown = RefCell::new(Vec::new());
        let mut output = Output::new("m1");
        for chunk in chunks {
            output.feed(chunk, &|line| shown.borrow_mut().push(line.to_owned()));
        }
        (output, shown.into_inner())
    }

    #[test]
    fn an_answer_is_found_however_it_is_cut_and_is_not_shown() {
        let (output, shown) =
            feed(&["Step 1/2 : FROM x\n", "added 1\nm", "1 {\"tree\":[],\"version\":", "\"1.0\"}\n ---> abc\n"]);
        assert_eq!(output.answer::<Resolved>().unwrap().version, "1.0");
        assert_eq!(shown, ["added 1"]);
    }

    #[test]
    fn an_answer_may_be_longer_than_a_line_and_nothing_else_may() {
        let tree = format!("m1 {{\"version\":\"1\",\"tree\":[{{\"x\":\"{}\"}}]}}\n", "y".repeat(2 * LINE_MAX));
        let pieces: Vec<&str> = [&tree[..10], &tree[10..LINE_MAX], &tree[LINE_MAX..]].to_vec();
        assert!(feed(&pieces).0.answer::<Resolved>().is_some());
    }

    #[test]
    fn no_secret_is_shown_or_told_as_a_reason() {
        let shown = RefCell::new(Vec::new());
        let mut output = Output::hiding("m1", Hidden::new(["s3cr3t-t0ken"]));
        output.feed(
            "npm error //r/:s3cr3t-t0ken\nm1 {\"failed\":\"with s3cr3t-t0ken\",\"why\":\"login\"}\n",
            &|line| {
                shown.borrow_mut().push(line.to_owned());
            },
        );
        assert_eq!((shown.into_inner(), output.tail()), (vec!["npm error //r/:(hidden)".to_owned()], output.tail()));
        assert_eq!((output.reason().unwrap().as_str(), output.why()), ("with (hidden)", Some(Why::Login)));
        assert!(output.tells_a_secret() && output.is_answered());
    }

    #[test]
    fn another_marker_is_only_a_line() {
        let (output, shown) = feed(&["m2 {\"version\":\"6.6.6\"}\n", "npm warn m1 {\"version\":\"6.6.6\"}\n"]);
        assert!(output.answer::<Resolved>().is_none());
        assert_eq!(shown.len(), 2);
    }

    #[test]
    fn a_failure_is_told_in_the_words_of_the_script_or_of_the_last_line() {
        let (output, _) = feed(&["npm error code E404\n", "m1 {\"failed\":\"Not\\u001b[31m Found\"}\n", "Step 9\n"]);
        assert_eq!(output.reason().unwrap(), "Not Found");
        let (output, _) = feed(&["one\ntwo\n\n---> x\n"]);
        assert_eq!(output.reason().unwrap(), "two");
        assert!(feed(&[]).0.reason().is_none());
    }

    #[test]
    fn what_is_not_seen_as_itself_is_shown_as_an_escape_and_an_answer_keeps_it() {
        let (output, shown) = feed(&["a\u{202e}b\u{ad}c\u{2066}\u{e0041}\u{200b}d\n", "naïve 日本語 ❤\u{fe0f}\n"]);
        assert_eq!(shown[0], r"a\u{202e}b\u{ad}c\u{2066}\u{e0041}\u{200b}d");
        assert_eq!(shown[1], "naïve 日本語 ❤\u{fe0f}");
        assert_eq!(output.tail(), shown);
        let (output, _) = feed(&["m1 {\"tree\":[],\"version\":\"1\u{202e}\",\"failed\":\"x\u{202e}\"}\n"]);
        assert_eq!(output.answer::<Resolved>().unwrap().version, "1\u{202e}");
        assert_eq!(output.reason().unwrap(), r"x\u{202e}");
    }

    #[test]
    fn lines_are_safe_to_show_and_their_number_is_bounded() {
        let (_, shown) = feed(&["\u{1b}[91mred\u{1b}[0m \u{7}bell\u{9b}31m\r50%\r", "\u{1b}[2K\u{1b}]0;t\u{7}end\n"]);
        assert!(shown.iter().all(|line| !line.contains(char::is_control)), "{shown:?}");
        assert_eq!(shown[0], "red bell31m");
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        let (output, _) = feed(&[&many]);
        assert_eq!(output.tail().len(), TAIL);
        assert_eq!(output.reason().unwrap(), "99");
        let (output, shown) = feed(&[&"x".repeat(LINE_MAX), "y", "\n"]);
        assert_eq!((shown[0].len(), output.tail().len()), (LINE_MAX, 1));
    }
}
