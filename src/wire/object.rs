//! A JSON object as its members in order, each value the bytes that came. Knows nothing of what they mean.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object that borrows from the text it was parsed from.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    text: &'a str,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Object<'a> {
    /// Parses a text that must be one object and nothing else.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let Members(members) = serde_json::from_str(text)?;
        Ok(Object { text, members })
    }

    /// The text it came from.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The members in their order.
    pub fn members(&self) -> &[(Cow<'a, str>, &'a RawValue)] {
        &self.members
    }

    /// The value of a member; the first one where the key occurs twice.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.members.iter().find(|(k, _)| k == key).map(|(_, v)| *v)
    }

    /// The value of a member that is a string, decoded.
    pub fn string(&self, key: &str) -> Option<String> {
        self.get(key).and_then(|v| serde_json::from_str(v.get()).ok())
    }

    /// The value of a member that is an object.
    pub fn object(&self, key: &str) -> Option<Object<'a>> {
        self.get(key).and_then(|v| Object::parse(v.get()).ok())
    }

    /// Whether that key occurs more than once: parsers differ on which of them counts.
    pub fn repeats(&self, key: &str) -> bool {
        self.members.iter().filter(|(k, _)| k == key).count() > 1
    }

    /// Where a value that was parsed out of this text lies in it.
    pub fn place(&self, value: &RawValue) -> Range<usize> {
        place(self.text, value.get())
    }
}

/// Where `part`, a slice of `whole`, lies in it.
pub(super) fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    debug_assert!(start + part.len() <= whole.len(), "the part is not of this text");
    start..start + part.len()
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            members.push((key, map.next_value()?));
        }
        Ok(Members(members))
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_order_spelling_and_place() {
        let text = r#" {"z":1E400, "\u0061":"\ud800" ,"a":[1, 2]} "#;
        let o = Object::parse(text).unwrap();
        let keys: Vec<&str> = o.members().iter().map(|(k, _)| k.as_ref()).collect();
        assert_eq!(keys, ["z", "a", "a"]);
        assert_eq!(o.get("z").unwrap().get(), "1E400");
        assert!(o.repeats("a") && !o.repeats("z"));
        let last = o.members()[2].1;
        assert_eq!(&text[o.place(last)], "[1, 2]");
    }

    #[test]
    fn what_is_no_single_object_is_refused() {
        for bad in ["", "[]", "1", "{}{}", "{\"a\":}", "{\"a\":1,}", "null"] {
            assert!(Object::parse(bad).is_err(), "{bad}");
        }
    }
}
