//! Containers of gateways, seen at the engine and not by what a gateway says of itself.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::measure::output;

/// What is on every container of a gateway's: which process has it.
const PID: &str = "org.bulkhead.owner.pid";
/// And what it is there for.
const ROLE: &str = "org.bulkhead.role";

/// All that are there now, running or not: of that process, or of any.
pub fn containers(pid: Option<u32>) -> Vec<String> {
    let label = pid.map_or_else(|| ROLE.to_owned(), |pid| format!("{PID}={pid}"));
    let listed = output("docker", &["ps", "--all", "--quiet", "--filter", &format!("label={label}")]);
    listed.lines().map(str::to_owned).collect()
}

/// Hears of every container that is created while it lives.
pub struct Watch {
    child: Child,
    owners: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    pub fn start() -> Self {
        let owner = format!("{{{{index .Actor.Attributes \"{PID}\"}}}}");
        let mut command = Command::new("docker");
        command.args(["events", "--filter", "type=container", "--filter", "event=create", "--format", &owner]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let owners = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&owners);
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
        Watch { child, owners }
    }

    /// How many that process has had created.
    pub fn created(&self, pid: u32) -> usize {
        let pid = pid.to_string();
        self.owners.lock().unwrap().iter().filter(|owner| **owner == pid).count()
    }

    /// Waits for the first one of a process that surely has one; false if none is heard of.
    pub fn hears(&self, pid: u32) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while self.created(pid) == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.created(pid) > 0
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
