//! Pages of a list: bounded in items and bytes, with cursors that cannot be made up. Pure.

use sha2::{Digest as _, Sha256};

/// A hash over a list, keyed: it tells lists apart, and binds cursors to the very list they were made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal([u8; 32]);

/// Most items on a page.
pub const ITEMS: usize = 250;
/// A page ends once it has this many bytes.
pub const BYTES: usize = 1 << 20;

/// One page.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The items, as JSON.
    pub items: Vec<&'a str>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// Cuts a page out of a list. `None` if the cursor is not one of ours for exactly this list: it was made up, it belongs
/// to another role, or the list has changed since.
pub fn page<'a>(items: &[&'a str], cursor: Option<&str>, seal: &Seal) -> Option<Page<'a>> {
    let start = match cursor {
        None => 0,
        Some(cursor) => open(cursor, seal).filter(|start| *start < items.len())?,
    };
    let (mut end, mut bytes) = (start, 0);
    while end < items.len() && end - start < ITEMS && (bytes < BYTES || end == start) {
        bytes += items[end].len();
        end += 1;
    }
    let next = (end < items.len()).then(|| format!("{end}.{}", tag(end, seal)));
    Some(Page { items: items[start..end].to_vec(), next })
}

impl Seal {
    /// Seals a list; nobody without the secret can make one.
    pub fn of(items: &[&str], secret: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(secret);
        for item in items {
            hash.update((item.len() as u64).to_le_bytes());
            hash.update(item.as_bytes());
        }
        Seal(hash.finalize().into())
    }
}

fn tag(place: usize, seal: &Seal) -> String {
    let mut hash = Sha256::new();
    hash.update(seal.0);
    hash.update((place as u64).to_le_bytes());
    crate::hex(&hash.finalize()[..16])
}

fn open(cursor: &str, seal: &Seal) -> Option<usize> {
    let (place, sealed) = cursor.split_once('.')?;
    let place: usize = place.parse().ok()?;
    (tag(place, seal) == sealed).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut<'a>(items: &[&'a str], cursor: Option<&str>, secret: &[u8]) -> Option<Page<'a>> {
        page(items, cursor, &Seal::of(items, secret))
    }

    #[test]
    fn pages_cover_the_list_once_and_cursors_cannot_be_made_up() {
        let texts: Vec<String> = (0..ITEMS * 2 + 3).map(|n| n.to_string()).collect();
        let items: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (mut got, mut cursor) = (Vec::new(), None);
        loop {
            let p = cut(&items, cursor.as_deref(), b"s").unwrap();
            got.extend(p.items);
            cursor = p.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(got, items);
        let first = cut(&items, None, b"s").unwrap().next.unwrap();
        for bad in ["bogus", "", "250", "0.00", first.replace("250", "251").as_str()] {
            assert_eq!(cut(&items, Some(bad), b"s"), None, "{bad}");
        }
        assert_eq!(cut(&items[1..], Some(&first), b"s"), None, "a cursor of another list");
        assert_eq!(cut(&items, Some(&first), b"t"), None, "a cursor of another gateway");
    }

    #[test]
    fn a_page_ends_when_it_is_heavy_and_always_moves_on() {
        let heavy = "x".repeat(BYTES + 1);
        let items = [heavy.as_str(), heavy.as_str()];
        let p = cut(&items, None, b"s").unwrap();
        assert_eq!((p.items.len(), p.next.is_some()), (1, true));
    }

    #[test]
    fn a_cursor_on_a_short_list_is_refused() {
        assert_eq!(cut(&["1"], Some("bogus"), b"s"), None);
    }
}
