//! Edits of a JSON object that leave every byte outside the edited values as it came. Knows nothing of what they mean.

use std::ops::Range;

use serde_json::value::RawValue;

use super::object::{Object, place};

/// Edits to one object's text, applied all at once. Each member may be edited once.
#[derive(Debug)]
pub struct Edit<'a, 'o> {
    object: &'o Object<'a>,
    splices: Vec<(Range<usize>, String)>,
    added: Vec<String>,
    removed: Vec<usize>,
}

impl<'a, 'o> Edit<'a, 'o> {
    /// No edits yet.
    pub fn new(object: &'o Object<'a>) -> Self {
        Edit { object, splices: Vec::new(), added: Vec::new(), removed: Vec::new() }
    }

    /// Replaces a value parsed out of this object's text, at any depth.
    pub fn replace(&mut self, value: &RawValue, with: impl Into<String>) -> &mut Self {
        self.splices.push((place(self.object.text(), value.get()), with.into()));
        self
    }

    /// Sets a member to a JSON text: its value is replaced where it is, else the member is added in front.
    pub fn set(&mut self, key: &str, json: impl Into<String>) -> &mut Self {
        match self.object.get(key) {
            Some(value) => self.replace(value, json),
            None => {
                self.added.push(format!("{}:{}", quoted(key), json.into()));
                self
            }
        }
    }

    /// Takes a member out, with its comma.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        self.removed.extend(self.object.members().iter().position(|(k, _)| k == key));
        self
    }

    /// What has to go for the removed members: each takes the comma before it, but those in front of the first member
    /// that stays take the comma behind them.
    fn removals(&self) -> Vec<Range<usize>> {
        let text = self.object.text();
        let count = self.object.members().len();
        let end = |i: usize| place(text, self.object.members()[i].1.get()).end;
        let gone = |i: usize| self.removed.contains(&i);
        let leading = (0..count).take_while(|i| gone(*i)).count();
        let mut ranges: Vec<_> = (leading + 1..count).filter(|i| gone(*i)).map(|i| end(i - 1)..end(i)).collect();
        if leading > 0 {
            let last = end(leading - 1);
            let comma = text[last..].find(',').filter(|_| leading < count).map_or(last, |n| last + n + 1);
            ranges.push(brace(text)..comma);
        }
        ranges
    }

    /// The edited text.
    pub fn apply(mut self) -> String {
        let text = self.object.text();
        let removals = self.removals();
        self.splices.extend(removals.into_iter().map(|range| (range, String::new())));
        if !self.added.is_empty() {
            let mut front = self.added.join(",");
            if self.object.members().len() > self.removed.len() {
                front.push(',');
            }
            let at = brace(text);
            self.splices.push((at..at, front));
        }
        // An insertion at the place where a removal begins comes first.
        self.splices.sort_by_key(|(range, _)| (range.start, range.end));
        let extra: usize = self.splices.iter().map(|(_, s)| s.len()).sum();
        let (mut out, mut done) = (String::with_capacity(text.len() + extra), 0);
        for (range, with) in &self.splices {
            out.push_str(&text[done..range.start]);
            out.push_str(with);
            done = range.end;
        }
        out.push_str(&text[done..]);
        out
    }
}

/// The place behind the opening brace.
fn brace(text: &str) -> usize {
    text.find('{').map_or(0, |n| n + 1)
}

/// A string as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, with: impl FnOnce(&mut Edit<'_, '_>)) -> String {
        let object = Object::parse(text).unwrap();
        let mut edit = Edit::new(&object);
        with(&mut edit);
        edit.apply()
    }

    #[test]
    fn only_the_edited_value_changes() {
        let text = r#"{ "id" : 1 , "x":1e400, "id2":[1 ,2] }"#;
        assert_eq!(edit(text, |e| _ = e.set("id", "\"a\"")), r#"{ "id" : "a" , "x":1e400, "id2":[1 ,2] }"#);
        assert_eq!(edit(text, |_| ()), text);
    }

    #[test]
    fn members_are_added_in_front_and_removed_with_their_comma() {
        assert_eq!(edit("{}", |e| _ = e.set("a", "1")), r#"{"a":1}"#);
        assert_eq!(edit(r#"{"b":2}"#, |e| _ = e.set("a", "1").set("c", "3")), r#"{"a":1,"c":3,"b":2}"#);
        assert_eq!(edit(r#"{"a":1}"#, |e| _ = e.remove("a")), "{}");
        assert_eq!(edit(r#"{"a":1 , "b":2}"#, |e| _ = e.remove("a")), r#"{ "b":2}"#);
        assert_eq!(edit(r#"{"a":1, "b":2, "c":3}"#, |e| _ = e.remove("b")), r#"{"a":1, "c":3}"#);
        assert_eq!(edit(r#"{"a":1}"#, |e| _ = e.remove("a").set("b", "2")), r#"{"b":2}"#);
        assert_eq!(edit(r#"{"a":1,"c":3}"#, |e| _ = e.remove("a").set("b", "2")), r#"{"b":2,"c":3}"#);
        let abc = r#"{ "a":1 , "b":2, "c":3 }"#;
        assert_eq!(edit(abc, |e| _ = e.remove("a").remove("b")), r#"{ "c":3 }"#);
        assert_eq!(edit(abc, |e| _ = e.remove("b").remove("c")), r#"{ "a":1 }"#);
        assert_eq!(edit(abc, |e| _ = e.remove("c").remove("a")), r#"{ "b":2 }"#);
        assert_eq!(edit(abc, |e| _ = e.remove("a").remove("b").remove("c").set("d", "4")), r#"{"d":4 }"#);
        assert_eq!(edit(r#"{"a":1}"#, |e| _ = e.remove("nope")), r#"{"a":1}"#);
    }

    #[test]
    fn a_value_deep_inside_can_be_replaced() {
        let text = r#"{"p":{"_meta":{"t":"x"}}}"#;
        let object = Object::parse(text).unwrap();
        let meta = object.object("p").unwrap().object("_meta").unwrap();
        let mut edit = Edit::new(&object);
        edit.replace(meta.get("t").unwrap(), "7");
        assert_eq!(edit.apply(), r#"{"p":{"_meta":{"t":7}}}"#);
    }
}
