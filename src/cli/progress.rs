//! Progress of work that takes long. Knows no command.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::wire::text::visible;

/// Progress on standard error: bars on a terminal, plain lines elsewhere.
pub struct Bars(Option<MultiProgress>);

/// One of them.
pub struct Bar {
    name: String,
    bar: Option<ProgressBar>,
}

impl Bars {
    /// None yet.
    pub fn start() -> Self {
        Bars(std::io::stderr().is_terminal().then(MultiProgress::new))
    }

    /// Plain lines, wherever they go.
    pub fn none() -> Self {
        Bars(None)
    }

    /// One more, with a name in front.
    pub fn add(&self, name: &str) -> Bar {
        let style = ProgressStyle::with_template("{spinner} {prefix:20!} {wide_msg}").ok();
        let bar = self.0.as_ref().map(|all| all.add(ProgressBar::new_spinner().with_prefix(name.to_owned())));
        if let (Some(bar), Some(style)) = (&bar, style) {
            bar.set_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Bar { name: name.to_owned(), bar }
    }

    /// Takes them off the screen.
    pub fn clear(&self) {
        if let Some(all) = &self.0 {
            let _ = all.clear();
        }
    }
}

impl Bar {
    /// What is going on.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(visible(line, 200)),
            None => tracing::debug!("{}: {}", self.name, visible(line, 200)),
        }
    }

    /// How it ended.
    pub fn done(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.finish_with_message(text),
            None => tracing::info!("{}: {text}", self.name),
        }
    }
}
