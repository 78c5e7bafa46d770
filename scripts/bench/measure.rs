//! What the benchmarks share: how to ask a command, what to make of samples, where it was measured.

use std::io::{IsTerminal as _, Write as _};
use std::process::Command;

use serde_json::{Value, json};

/// Says on standard error how far it is.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// The output of a command that has to succeed.
pub fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The value below which that share of the samples lies.
pub fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * share).round() as usize]
}

/// The value below which half of the samples lie.
pub fn median(mut samples: Vec<f64>) -> f64 {
    percentile(&mut samples, 0.5)
}

/// Where it was measured, and with what.
pub fn setting() -> Value {
    let engine = output("docker", &["version", "--format", "{{.Server.Version}}"]);
    let shown = "{{.OperatingSystem}}, kernel {{.KernelVersion}}, cgroup {{.CgroupVersion}}, {{.NCPU}} processors";
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).map(|m| m.trim_matches(['\t', ' ', ':']));
    json!({
        "bulkhead": env!("CARGO_PKG_VERSION"),
        "engine": engine,
        "machine": output("docker", &["info", "--format", shown]),
        "processor": model,
    })
}
