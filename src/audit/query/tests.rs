//! Tests of reading back: every way to tamper is found at its line.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::audit::fixture;

const LINES: usize = 12;

/// A file of pairs of intent and outcome, and its lines with their line breaks.
fn sample() -> (tempfile::TempDir, PathBuf, Vec<Vec<u8>>) {
    let (dir, path) = fixture::dir();
    let mut head = Head::start();
    let mut lines = Vec::new();
    for n in 0..LINES {
        let kind = ["intent", "outcome"][n % 2];
        let (line, next) = head.seal(&format!(r#""kind":"{kind}","call":"c{}","tool":"t""#, n / 2));
        head = next;
        lines.push((line + "\n").into_bytes());
    }
    fs::write(&path, lines.concat()).unwrap();
    (dir, path, lines)
}

/// The first bad line after `tamper`.
fn bad(tamper: impl FnOnce(&mut Vec<Vec<u8>>)) -> (usize, String) {
    let (_dir, path, mut lines) = sample();
    tamper(&mut lines);
    fs::write(&path, lines.concat()).unwrap();
    let found = verify(&path).unwrap();
    let (line, why) = found.first_bad_line.expect("a bad line");
    assert_eq!(found.records as usize, line - 1);
    (line, why)
}

#[test]
fn an_untouched_file_is_whole() {
    let (_dir, path, _) = sample();
    let found = verify(&path).unwrap();
    assert_eq!((found.records, found.head.seq, found.first_bad_line), (12, 12, None));
    assert!(found.interrupted.is_empty());
}

#[test]
fn a_connection_without_an_end_is_told() {
    let (_dir, path) = fixture::dir();
    let mut head = Head::start();
    let mut text = String::new();
    // Two that begin, of which the first ends; and one that was never made.
    for (connection, ms) in [("a", "null"), ("b", "null"), ("a", "7"), ("c", "1")] {
        let (line, next) = head.seal(&format!(r#""kind":"egress","connection":"{connection}","ms":{ms}"#));
        head = next;
        text += &(line + "\n");
    }
    fs::write(&path, text).unwrap();
    let found = verify(&path).unwrap();
    assert_eq!((found.records, found.first_bad_line, found.unended), (4, None, vec!["b".to_owned()]));
}

#[test]
fn a_flipped_byte_is_found_wherever_it_is() {
    let (_dir, path, lines) = sample();
    let whole = lines.concat();
    let starts: Vec<usize> = lines.iter().scan(0, |at, l| Some(std::mem::replace(at, *at + l.len()))).collect();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        let line = starts.partition_point(|start| *start <= at);
        assert_eq!(verify(&path).unwrap().first_bad_line.map(|(line, _)| line), Some(line), "byte {at}");
    }
}

#[test]
fn deleted_inserted_swapped_and_doubled_lines_are_found_where_they_stand() {
    assert_eq!(bad(|l| drop(l.remove(4))), (5, "has seq 6 where 5 is due".into()));
    assert_eq!(bad(|l| l.swap(4, 5)).0, 5);
    assert_eq!(bad(|l| l.insert(5, l[4].clone())), (6, "has seq 5 where 6 is due".into()));
    assert_eq!(bad(|l| l.insert(5, b"\n".to_vec())).0, 6);
    assert_eq!(bad(|l| l.insert(5, b"{\"seq\":6}\n".to_vec())).0, 6);
    assert_eq!(bad(|l| drop(l.remove(0))).0, 1);
}

#[test]
fn a_line_resealed_by_someone_who_knows_how_does_not_fit_the_next() {
    let forged = |l: &mut Vec<Vec<u8>>| {
        let before = unseal_head(&l[3]);
        let (line, _) = before.seal(r#""kind":"intent","call":"c2","tool":"harmless""#);
        l[4] = (line + "\n").into_bytes();
    };
    assert_eq!(bad(forged), (6, "does not hold the hash of the record before it".into()));
}

fn unseal_head(line: &[u8]) -> Head {
    crate::audit::chain::unseal(line.trim_ascii_end()).unwrap().head
}

#[test]
fn a_torn_end_is_found_at_each_cut() {
    let (_dir, path, lines) = sample();
    let whole = lines.concat();
    for cut in 1..lines[LINES - 1].len() {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let (line, why) = verify(&path).unwrap().first_bad_line.unwrap();
        assert_eq!((line, why.starts_with("is torn")), (LINES, true));
    }
}

#[test]
fn a_cut_at_a_line_shows_only_in_the_head() {
    let (_dir, path, lines) = sample();
    let whole = verify(&path).unwrap().head;
    fs::write(&path, lines[..7].concat()).unwrap();
    let found = verify(&path).unwrap();
    assert_eq!((found.head.seq, found.first_bad_line), (7, None));
    assert_ne!(found.head, whole);
    assert_eq!(found.interrupted, ["c3"]);
}

#[test]
fn rubbish_without_end_is_no_burden() {
    let (_dir, path, mut lines) = sample();
    lines.push(vec![b'x'; 5 << 20]);
    fs::write(&path, lines.concat()).unwrap();
    let (line, why) = verify(&path).unwrap().first_bad_line.unwrap();
    assert_eq!(line, LINES + 1);
    assert!(why.contains("longer than any record"), "{why}");
    assert_eq!(tail(&path, 1).unwrap().next().unwrap().unwrap().len(), crate::audit::lines::MAX_LINE + 1);
}

#[test]
fn the_tail_is_the_last_records_in_order() {
    let (_dir, path, lines) = sample();
    let text: Vec<_> = lines.iter().map(|l| String::from_utf8_lossy(l.trim_ascii_end()).into_owned()).collect();
    for n in [0, 1, 2, LINES - 1, LINES, LINES + 5] {
        let found: Vec<_> = tail(&path, n).unwrap().map(Result::unwrap).collect();
        assert_eq!(found, text[LINES.saturating_sub(n)..], "{n}");
    }
}

#[test]
fn the_tail_of_a_large_file_is_found_across_blocks() {
    let (_dir, path) = fixture::dir();
    let lines: Vec<_> = (0..5_000).map(|n| format!("{n} {}", "x".repeat(n % 200))).collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let found: Vec<_> = tail(&path, 3_000).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, lines[2_000..]);
}

#[test]
fn an_empty_file_is_whole_and_a_missing_one_is_a_fault() {
    let (_dir, path) = fixture::dir();
    assert_eq!(verify(&path).unwrap_err().class, crate::error::Class::Audit);
    fs::write(&path, "").unwrap();
    assert_eq!(verify(&path).unwrap().head, Head::start());
    assert_eq!(tail(&path, 3).unwrap().count(), 0);
}
