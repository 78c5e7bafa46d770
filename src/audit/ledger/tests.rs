//! Tests of the file: what is refused, what is mended, and that several writers keep one chain.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::audit::fixture::dir;
use crate::audit::query::{Verification, verify};

fn open(path: &Path) -> Ledger {
    Ledger::open(path, false, "gw").unwrap()
}

fn refusal(path: &Path) -> String {
    Ledger::open(path, false, "gw").unwrap_err().to_string()
}

fn bodies(n: usize) -> Vec<String> {
    (0..n).map(|n| format!(r#""kind":"server","server":"s{n}","reason":"{}""#, "x".repeat(n % 50))).collect()
}

/// A file of `n` records, and its bytes.
fn filled(path: &Path, n: usize) -> Vec<u8> {
    open(path).append(&bodies(n)).unwrap();
    fs::read(path).unwrap()
}

fn sound(path: &Path) -> Verification {
    let found = verify(path).unwrap();
    assert_eq!(found.first_bad_line, None);
    found
}

fn recoveries(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().matches(r#""event":"recovered""#).count()
}

#[test]
fn file_and_directory_are_made_for_us_alone() {
    let (dir, _) = dir();
    let path = dir.path().join("a/b/audit.jsonl");
    open(&path).append(&bodies(1)).unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap()), mode(&dir.path().join("a"))), (0o600, 0o700, 0o700));
}

#[test]
fn a_file_that_others_could_write_or_that_is_none_is_refused() {
    let (dir, path) = dir();
    let real = dir.path().join("real");
    filled(&real, 1);
    symlink(&real, &path).unwrap();
    assert!(refusal(&path).contains("symbolic link"));
    fs::remove_file(&path).unwrap();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&real, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refusal(&real).contains("open to other users"), "{mode:o}");
    }
    fs::create_dir(&path).unwrap();
    refusal(&path);
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert!(refusal(&path).contains("not a regular file"));
}

#[test]
fn a_file_of_another_user_is_refused() {
    let (_dir, path) = dir();
    filled(&path, 1);
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        let _ = writeln!(io::stderr(), "skipped: a file can be given to another user by root only");
        return;
    }
    assert!(refusal(&path).contains("belongs to uid 12345"));
}

#[test]
fn a_chain_goes_on_where_it_was_left() {
    let (_dir, path) = dir();
    filled(&path, 3);
    let mut again = open(&path);
    assert_eq!(again.head().seq, 3);
    again.append(&bodies(2)).unwrap();
    assert_eq!(sound(&path).head, *again.head());
    assert_eq!(again.head().seq, 5);
}

#[test]
fn two_writers_keep_one_chain() {
    let (_dir, path) = dir();
    let (mut a, mut b) = (open(&path), open(&path));
    for n in 0..5 {
        a.append(&bodies(n)).unwrap();
        b.append(&bodies(2)).unwrap();
        b.append(&bodies(1)).unwrap();
    }
    assert_eq!(sound(&path).records, 25);
}

#[test]
fn a_missing_or_replaced_file_is_not_written_to_and_its_return_heals() {
    let (dir, path) = dir();
    let mut ledger = open(&path);
    ledger.append(&bodies(2)).unwrap();
    let away = dir.path().join("away");
    fs::rename(&path, &away).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Gone)));
    assert!(!path.exists());
    fs::copy(&away, &path).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Replaced)));
    fs::rename(&away, &path).unwrap();
    ledger.append(&bodies(1)).unwrap();
    assert_eq!(sound(&path).records, 3);
    fs::remove_file(&path).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Gone)));
}

#[test]
fn a_file_that_is_opened_to_others_meanwhile_is_not_written_to() {
    let (_dir, path) = dir();
    filled(&path, 1);
    let mut ledger = open(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Open(0o666))));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    ledger.append(&bodies(1)).unwrap();
    sound(&path);
}

#[test]
fn a_file_that_was_cut_or_written_to_by_others_is_not_written_to() {
    let (_dir, path) = dir();
    let mut ledger = open(&path);
    ledger.append(&bodies(3)).unwrap();
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Cut(..))));
    fs::write(&path, [&good[..], b"{\"seq\":4}\n"].concat()).unwrap();
    assert!(matches!(ledger.append(&bodies(1)), Err(Trouble::Broken(3, _))));
    assert!(refusal(&path).contains("broken at its end"));
    fs::write(&path, &good).unwrap();
    ledger.append(&bodies(1)).unwrap();
    assert_eq!(sound(&path).records, 4);
}

#[test]
fn a_torn_end_is_set_aside_and_recorded_at_each_cut() {
    let (_keep, model) = dir();
    let good = filled(&model, 3);
    let last = good[..good.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for end in last + 1..good.len() - 1 {
        let (dir, path) = dir();
        fs::write(&path, &good[..end]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        open(&path).append(&bodies(1)).unwrap();
        assert_eq!((sound(&path).records, recoveries(&path)), (4, 1));
        assert!(fs::read(&path).unwrap().starts_with(&good[..last]));
        assert_eq!(fs::read(dir.path().join("audit.jsonl.torn-3")).unwrap(), good[last..end]);
    }
}

#[test]
fn a_record_that_lacks_only_its_line_break_is_kept() {
    let (_dir, path) = dir();
    let good = filled(&path, 3);
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    open(&path).append(&bodies(1)).unwrap();
    assert_eq!((sound(&path).records, recoveries(&path)), (4, 0));
    assert!(fs::read(&path).unwrap().starts_with(&good));
}

#[test]
fn a_file_that_is_nothing_but_torn_begins_anew() {
    let (_dir, path) = dir();
    let good = filled(&path, 1);
    fs::write(&path, &good[..20]).unwrap();
    open(&path).append(&[]).unwrap();
    assert_eq!((sound(&path).records, recoveries(&path)), (1, 1));
}

#[test]
fn what_another_gateway_left_torn_is_mended_while_we_run() {
    let (dir, path) = dir();
    let mut ledger = open(&path);
    ledger.append(&bodies(2)).unwrap();
    for _ in 0..3 {
        open(&path).append(&bodies(1)).unwrap();
        fs::write(&path, [&fs::read(&path).unwrap()[..], b"{\"v\":1,\"se"].concat()).unwrap();
        ledger.append(&bodies(1)).unwrap();
    }
    assert_eq!((sound(&path).records, recoveries(&path)), (2 + 3 * 3, 3));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn side_files_never_replace_one_another() {
    let (dir, path) = dir();
    filled(&path, 1);
    fs::write(dir.path().join("audit.jsonl.torn-2"), "older").unwrap();
    let torn = [&fs::read(&path).unwrap()[..], b"{\"v"].concat();
    fs::write(&path, torn).unwrap();
    open(&path);
    assert_eq!(fs::read(dir.path().join("audit.jsonl.torn-2")).unwrap(), b"older");
    assert_eq!(fs::read(dir.path().join("audit.jsonl.torn-2.2")).unwrap(), b"{\"v");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_takes_all_of_a_batch_or_nothing() {
    let Some(disk) = crate::audit::fixture::SmallDisk::new(256) else { return };
    let mut ledger = open(&disk.path());
    ledger.append(&bodies(5)).unwrap();
    disk.fill(4096);
    let before = fs::read(disk.path()).unwrap();
    let many = bodies(300);
    assert!(matches!(ledger.append(&many), Err(Trouble::Io("written", _))));
    assert_eq!(fs::read(disk.path()).unwrap(), before);
    disk.empty();
    ledger.append(&many).unwrap();
    assert_eq!(sound(&disk.path()).records, 305);
}
