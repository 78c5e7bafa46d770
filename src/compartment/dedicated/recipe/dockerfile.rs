//! Which images a Dockerfile takes from, as the engine will read it; what could be read in more than one way is refused,
//! for an image that is not seen here would be pulled from a registry. Pure.

use std::collections::BTreeMap;

/// The images that a Dockerfile takes from, by `FROM` and `COPY --from`, without its own stages; or the line that is not
/// understood, and why. The last one is what the image itself stands on, unless that is a stage or nothing.
pub(super) fn bases(text: &str) -> Result<Vec<String>, String> {
    let mut reader = Reader::default();
    for (number, line) in instructions(text)? {
        reader.instruction(&line).map_err(|why| format!("line {number}: {why}"))?;
    }
    reader.found.dedup();
    Ok(reader.found)
}

/// Whole instructions with the numbers of their first lines: a backslash at the end, blanks after it or not, goes on with
/// the next line that is neither empty nor a comment.
fn instructions(text: &str) -> Result<Vec<(usize, String)>, String> {
    let (mut whole, mut open): (Vec<(usize, String)>, _) = (Vec::new(), false);
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate().map(|(n, line)| (n + 1, line)) {
        let start = line.trim_start();
        if let Some(comment) = start.strip_prefix('#') {
            unescaped(comment).map_err(|why| format!("line {number}: {why}"))?;
            continue;
        }
        if start.is_empty() {
            continue;
        }
        let body = line.trim_end_matches([' ', '\t', '\r']);
        let (body, goes_on) = match body.strip_suffix('\\') {
            Some(body) if body.ends_with('\\') => {
                return Err(format!("line {number}: not every engine takes two backslashes at the end for the same"));
            }
            Some(body) => (body, true),
            None => (line, false),
        };
        match whole.last_mut().filter(|_| open) {
            Some((_, before)) => before.push_str(body),
            None => whole.push((number, body.trim_start().to_owned())),
        }
        open = goes_on;
    }
    Ok(whole)
}

/// Refuses the directive by which another character than the backslash joins lines.
fn unescaped(comment: &str) -> Result<(), String> {
    match comment.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("escape") && value.trim() != "\\" => {
            Err("another escape character than the backslash is not supported".to_owned())
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Reader {
    /// What was declared before the first `FROM`.
    arguments: BTreeMap<String, String>,
    /// The names of stages; empty for one without.
    stages: Vec<String>,
    found: Vec<String>,
}

impl Reader {
    fn instruction(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let instruction = words.next().unwrap_or_default().to_ascii_uppercase();
        let words: Vec<&str> = words.collect();
        match instruction.as_str() {
            // Those before the first FROM are the only ones that count in a FROM.
            "ARG" if self.stages.is_empty() => self.declare(&words),
            "FROM" => self.from(&words),
            "RUN" | "COPY" | "ADD" => self.take(&instruction, &words),
            _ => Ok(()),
        }
    }

    fn declare(&mut self, words: &[&str]) -> Result<(), String> {
        for word in words {
            match word.split_once('=') {
                Some((name, value)) => {
                    let value = self.expanded(value)?;
                    self.arguments.insert(name.to_owned(), value);
                }
                None => drop(self.arguments.remove(*word)),
            }
        }
        Ok(())
    }

    fn from(&mut self, words: &[&str]) -> Result<(), String> {
        let words: Vec<&&str> = words.iter().skip_while(|word| word.starts_with("--")).collect();
        let (word, stage) = match words[..] {
            [word] => (word, ""),
            [word, says, stage] if says.eq_ignore_ascii_case("as") => (word, *stage),
            _ => return Err("FROM is not followed by IMAGE or IMAGE AS NAME".to_owned()),
        };
        let image = self.expanded(word)?;
        if image.is_empty() {
            return Err(format!("{word:?} is no image: nothing is left when its variables are replaced"));
        }
        if image != "scratch" && !self.is_stage(&image) {
            self.found.push(image);
        }
        self.stages.push(stage.to_owned());
        Ok(())
    }

    /// Quotes and backslashes anywhere in a flag mean nothing to the engine.
    fn take(&mut self, instruction: &str, words: &[&str]) -> Result<(), String> {
        if let Some(word) = words.iter().find(|word| is_heredoc(word)) {
            return Err(format!("{word:?} may begin a here-document, which is not supported"));
        }
        for word in words.iter().filter(|word| word.starts_with("--")) {
            let flag = word.replace(['"', '\'', '\\'], "");
            if instruction == "RUN" {
                if flag.starts_with("--mount") && flag.contains("from=") {
                    return Err("RUN --mount from another image is not supported: use COPY --from".to_owned());
                }
                continue;
            }
            let Some(image) = flag.strip_prefix("--from=") else { continue };
            if image.is_empty() || image.contains('$') {
                return Err(format!("{word:?} does not say from which image: variables mean nothing there"));
            }
            let numbered = image.chars().all(|c| c.is_ascii_digit());
            if image != "scratch" && !numbered && !self.is_stage(image) {
                self.found.insert(0, image.to_owned());
            }
        }
        Ok(())
    }

    fn is_stage(&self, name: &str) -> bool {
        self.stages.iter().any(|stage| stage.eq_ignore_ascii_case(name))
    }

    /// A word with `$NAME`, `${NAME}` and `${NAME:-other}` replaced, in quotes or not.
    fn expanded(&self, word: &str) -> Result<String, String> {
        let unclear = |why: &str| format!("{word:?} is not understood: {why}");
        let quoted = |quote: char| word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        let plain = quoted('"').or_else(|| quoted('\'').filter(|inner| !inner.contains('$'))).unwrap_or(word);
        if plain.contains(['"', '\'', '\\']) {
            return Err(unclear("quotes may only be around a whole word, and nothing may be escaped"));
        }
        let mut parts = plain.split('$');
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (variable, rest) = match part.strip_prefix('{') {
                Some(inner) => inner.split_once('}').ok_or_else(|| unclear("a variable does not end"))?,
                None => part.split_at(part.find(|c: char| !is_in_name(c)).unwrap_or(part.len())),
            };
            let (name, other) = match variable.split_once(":-") {
                Some((name, other)) => (name, Some(other)),
                None => (variable, None),
            };
            if name.is_empty() || !name.chars().all(is_in_name) || other.is_some_and(|other| other.contains('{')) {
                return Err(unclear("of variables only $NAME, ${NAME} and ${NAME:-OTHER} are"));
            }
            let declared = self.arguments.get(name).map(String::as_str).filter(|v| other.is_none() || !v.is_empty());
            let value = declared.or(other);
            whole.push_str(value.ok_or_else(|| unclear(&format!("no ARG before the first FROM says what {name} is")))?);
            whole.push_str(rest);
        }
        Ok(whole)
    }
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `<<EOF`, `3<<-"EOF"`: what follows would be text, and not instructions.
fn is_heredoc(word: &str) -> bool {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '"' || c == '\'').strip_prefix("<<");
    let name = rest.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    name.is_some_and(|name| !name.is_empty() && !name.contains('<'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_that_a_dockerfile_builds_upon() {
        for (text, expected) in [
            ("FROM debian", vec!["debian"]),
            ("# FROM x\nARG BASE=bulkhead/base\nfrom ${BASE}\n", vec!["bulkhead/base"]),
            (
                "ARG A=\"a\" B='b'\nFROM $A AS one\nFROM --platform=linux/amd64 \\\n ${B} as two\nFROM one\n",
                vec!["a", "b"],
            ),
            (
                "FROM ${A:-bulkhead/base}\nARG A=x\nCOPY --chown=0 --from=bulkhead/y /a /b\n",
                vec!["bulkhead/y", "bulkhead/base"],
            ),
            ("ARG NS=bulkhead\nFROM ${NS}/base\nFROM $NS/probe:1\n", vec!["bulkhead/base", "bulkhead/probe:1"]),
            ("ARG NS=bulkhead\nARG B=$NS/b\nARG E=\nFROM $B\nFROM ${E}x\nFROM ${E:-y}", vec!["bulkhead/b", "x", "y"]),
            ("FROM scratch\nCOPY --from=0 /a /b\n", vec![]),
            ("FROM a AS b\nFROM B\nCOPY --from=b / /\n", vec!["a"]),
            ("", vec![]),
        ] {
            assert_eq!(bases(text), Ok(expected.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn an_image_is_found_however_the_engine_lets_it_be_written() {
        for text in [
            "FROM \\ \n bulkhead/x",
            "FROM \\\t \r\n\tbulkhead/x\r\n",
            "FROM \\\n# a comment \\\n\n  # another\nbulkhead/x",
            "FR\\\nOM bulkhead\\\n/x",
            "\tfRoM\tbulkhead/x\tas\ty",
            "\u{feff}FROM bulkhead/x",
            "# escape=\\\nFROM bulkhead/x",
            "FROM\u{b}--platform=$TARGETPLATFORM \"bulkhead/x\"",
            "FROM scratch\nCOPY --from=\"bulkhead/x\" / /",
            "FROM scratch\ncopy --chown=\"a b\" --from='bulkhead/x' / /",
            "FROM scratch\nCOPY --fr\"om\"=bulkhead\\/x / /",
            "FROM scratch\nCOPY --chown=1 \\ \n --from=bulkhead/x / /",
            "FROM scratch\nRUN true \\\n# a comment \\\n\n && true\nADD --from=bulkhead/x / /",
            "FROM scratch\nCOPY --from=bulkhead/x / /\nFROM scratch AS later",
        ] {
            assert_eq!(bases(text), Ok(vec!["bulkhead/x".to_owned()]), "{text}");
        }
        assert_eq!(bases("FROM scratch\nRUN echo $((1 << 2)) <<<y\n"), Ok(vec![]));
    }

    #[test]
    fn what_may_be_read_in_more_than_one_way_is_refused_with_its_line() {
        for (text, why) in [
            ("# escape=`\nFROM `\nbulkhead/x", "line 1: another escape character"),
            ("#\tEscape = ` \nFROM x", "line 1: another escape character"),
            ("FROM scratch\nRUN <<EOF\nFROM x\nEOF", "line 2: \"<<EOF\" may begin"),
            ("FROM scratch\nCOPY 3<<-\"E\" /x\nE", "may begin a here-document"),
            ("FROM scratch\nRUN x \\\\\nFROM bulkhead/x", "line 2: not every engine"),
            ("FROM scratch\nRUN --mount=type=bind,from=bulkhead/x true", "RUN --mount"),
            ("FROM a b", "line 1: FROM is not followed by"),
            ("\nFROM", "line 2: FROM is not followed by"),
            ("FROM ${B:+bulkhead}/x", "of variables only"),
            ("FROM ${A:-${B}}", "is not understood"),
            ("FROM ${A", "a variable does not end"),
            ("FROM $", "of variables only"),
            ("FROM ${B}x", "no ARG before the first FROM says what B is"),
            ("ARG B=x\nARG B\nFROM $B", "no ARG before the first FROM says what B is"),
            ("ARG B=\nFROM $B", "line 2: \"$B\" is no image: nothing is left"),
            ("FROM bulk\"head\"/x", "quotes may only be around"),
            ("ARG A=\"a B=b\"\nFROM $B", "quotes may only be around"),
            ("FROM bulkhead\\/x", "nothing may be escaped"),
            ("FROM scratch\nCOPY --from=$X / /", "line 2: \"--from=$X\" does not say"),
        ] {
            let said = bases(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
