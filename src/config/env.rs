//! Stub.
#![allow(missing_docs)]
use std::path::*;
pub trait Environment: Sync {
    fn var(&self, name: &str) -> Option<String>;
}
pub struct ProcessEnvironment;
impl Environment for ProcessEnvironment {
    fn var(&self, n: &str) -> Option<String> {
        std::env::var(n).ok()
    }
}
pub fn config_path(_: Option<&Path>, _: &dyn Environment) -> PathBuf {
    PathBuf::new()
}
pub fn state_dir(_: Option<&Path>, _: &dyn Environment) -> PathBuf {
    PathBuf::new()
}
pub fn engine_candidates(_: &dyn Environment) -> Vec<String> {
    vec![]
}
