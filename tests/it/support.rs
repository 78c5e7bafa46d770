//! What the tests share: a site (a configuration with its state), the gateway that serves it, and the engine seen from
//! beside it. Knows no behaviour.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub mod dialling;
pub mod engine;
pub mod namespaces;
pub mod registry;
pub mod second_engine;
pub mod serving;
pub mod site;
pub mod world;

pub use second_engine::SecondEngine;
pub use serving::Serving;
pub use site::{Site, contained, on_host};

/// How long anything may take that is not itself measured: generous, since a machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Room for tests that make more calls than a person would.
pub const NO_LIMITS: &str = "[limits]\nrate = \"60000/min\"\nburst = 1000\nconcurrent = 1000\n";

/// Waits until `look` has something to show.
pub fn wait_for<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until `look` says yes.
pub fn wait_until(what: &str, within: Duration, mut look: impl FnMut() -> bool) {
    wait_for(what, within, || look().then_some(()));
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A place among the tests: with the others, or alone. Every gateway clears away what dead gateways left behind, so a
/// test that watches leftovers must be the only one; each test of `cargo nextest` is a process of its own.
#[derive(Clone)]
pub struct Turn(#[expect(dead_code, reason = "held for its lock")] Arc<File>);

impl Turn {
    /// Beside others.
    pub fn shared() -> Self {
        Self::take(File::lock_shared)
    }

    /// With no other test at the engine.
    pub fn alone() -> Self {
        Self::take(File::lock)
    }

    fn take(lock: impl Fn(&File) -> std::io::Result<()>) -> Self {
        let file = lock_file("turn");
        lock(&file).unwrap();
        Turn(Arc::new(file))
    }
}

/// A file that processes of this suite lock against each other.
fn lock_file(name: &str) -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lock"));
    File::options().create(true).truncate(false).write(true).read(true).open(path).unwrap()
}

/// Notes that a test could not be made, and what it needs; where nothing may be left out, it fails.
pub fn skipped(needs: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let note = format!("skipped: {test} needs {needs}");
    assert!(std::env::var_os("BULKHEAD_NO_SKIPS").is_none(), "{note}");
    let _ = writeln!(std::io::stderr(), "{note}");
    // What a test that passes says is not shown: so it is collected, too.
    if let Some(path) = std::env::var_os("BULKHEAD_SKIPS") {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{note}").unwrap();
    }
}
