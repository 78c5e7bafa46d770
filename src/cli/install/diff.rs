//! What an edit would change, without what is secret in the file.

use similar::{ChangeTag, TextDiff};

use crate::app::shown;
use crate::clients::mask::masked;
use crate::error::{Exit, Fault};
use crate::wire::text::visible;

use super::super::print;
use super::Work;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Longest line: some clients write all into one.
const WIDEST: usize = 400;
/// Characters of a long line before what changes in it.
const BEFORE: usize = 60;

/// Shows the change from what was found to `text`.
pub(super) fn show(work: &Work<'_>, text: &str, colours: bool) -> Result<Exit, Fault> {
    let mask = |text: &str| masked(text, work.target()).map_err(|wrong| work.wrong(&wrong));
    let old = if work.original.text().is_some() { mask(work.text())? } else { String::new() };
    let verb = if work.original.text().is_some() { "change" } else { "make" };
    print::line(&format!("would {verb} {}", shown(work.path())));
    print::line("(values that are not ours are shown as …)");
    for line in lines(&old, &mask(text)?, colours) {
        print::line(&line);
    }
    Ok(Exit::Fine)
}

fn lines(old: &str, new: &str, colours: bool) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        lines.push(painted(&hunk.header().to_string(), "36", colours));
        let first = |tag| hunk.iter_changes().find(|change| change.tag() == tag).map_or("", |change| change.value());
        let (gone, come) = (first(ChangeTag::Delete), first(ChangeTag::Insert));
        for change in hunk.iter_changes() {
            let line = change.value();
            lines.push(match change.tag() {
                ChangeTag::Equal => format!(" {}", shortened(line, line.len())),
                ChangeTag::Delete => painted(&format!("-{}", shortened(line, common(line, come))), "31", colours),
                ChangeTag::Insert => painted(&format!("+{}", shortened(line, common(line, gone))), "32", colours),
            });
        }
    }
    lines
}

/// How many bytes two lines begin with alike.
fn common(one: &str, other: &str) -> usize {
    one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b).map_or(one.len(), |((at, _), _)| at)
}

/// A line as it is shown; of a long one what is around the byte where it begins to differ.
fn shortened(line: &str, differs: usize) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let begin = match line.get(..differs) {
        Some(head) if line.chars().count() > WIDEST => head.char_indices().rev().nth(BEFORE).map_or(0, |(at, _)| at),
        _ => 0,
    };
    let cut = if begin > 0 { "…" } else { "" };
    format!("{cut}{}", visible(&line[begin..].replace('\t', "    "), WIDEST))
}

fn painted(text: &str, colour: &str, colours: bool) -> String {
    if colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_colours_only_where_asked() {
        let (old, new) = ("{\n\t\"a\u{202e}\": 1\r\n}", "{\n\t\"a\u{202e}\": 1,\r\n\t\"b\": 2\r\n}");
        let plain =
            ["@@ -1,3 +1,4 @@", " {", "-    \"a\\u{202e}\": 1", "+    \"a\\u{202e}\": 1,", "+    \"b\": 2", " }"];
        assert_eq!(lines(old, new, false), plain);
        let painted = lines(old, new, true);
        assert_eq!(painted[2], format!("\u{1b}[31m{}\u{1b}[0m", plain[2]));
        assert_eq!(painted[1], plain[1]);
    }

    #[test]
    fn of_a_long_line_what_changes_is_shown() {
        let (head, tail) = ("é".repeat(5000), "z".repeat(5000));
        let lines = lines(&format!("{head}{tail}"), &format!("{head}NEW{tail}"), false);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("-…é") && lines[1].contains("ééz") && lines[1].ends_with("z…"), "{}", lines[1]);
        assert!(lines[2].starts_with("+…é") && lines[2].contains("éNEWz"), "{}", lines[2]);
        assert!(lines.iter().all(|line| line.chars().count() < 500));
    }
}
