//! The same image as a gateway runs, started with `docker run` and limits like a gateway's: what a call costs without one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::calls::Call;
use super::talk::Talk;

const LIMITS: [&str; 22] = [
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--user=10001:10001",
    "--memory=512m",
    "--memory-swap=512m",
    "--cpus=1",
    "--pids-limit=256",
    "--ulimit=nofile=1024",
    "--ulimit=core=0",
    "--log-driver=none",
    "--ipc=private",
    "--init",
    "--tmpfs=/tmp:size=64m,mode=1777",
    "--tmpfs=/run:size=16m,mode=1777",
    "--tmpfs=/home/mcp:size=64m,uid=10001,gid=10001",
    "--env=HOME=/home/mcp",
    "--env=LANG=C.UTF-8",
    "--pull=never",
    "--interactive",
    "--rm",
];

/// From its start to the answer, ms.
pub fn first_call(image: &str, entry: &toml::Value, call: &Call, log: &Path) -> Result<f64, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-cold-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new("docker");
    command.arg("run").arg("--name").arg(&name).args(LIMITS);
    for (key, value) in entry.get("env").and_then(toml::Value::as_table).into_iter().flatten() {
        command.arg("--env").arg(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    command.arg(image);
    command.args(entry.get("args").and_then(toml::Value::as_array).into_iter().flatten().filter_map(|a| a.as_str()));
    let mut server = Talk::start(command, log);
    let outcome = talk(&mut server, call);
    server.end();
    // One that did not end with its input.
    let _ = Command::new("docker").args(["rm", "--force", &name]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    outcome.map_err(|why| format!("by docker run: {why}"))
}

fn talk(server: &mut Talk, call: &Call) -> Result<f64, String> {
    server.hello()?;
    server.tools()?;
    server.call(call.tool, &call.arguments())?;
    Ok(server.ms())
}
