//! The client is gone: the gateway ends by itself, and nobody has to clear up after it.

use std::path::Path;

use crate::support::site::BULKHEAD;
use crate::support::{PATIENCE, Serving, Site, wait_for, wait_until};

use super::{Client, DEAF, Moment, containers, interrupted, rounds, three};

const MOMENTS: [Moment; 4] = [Moment::Begun, Moment::Greeted, Moment::Called, Moment::InFlight];

#[test]
fn fifteen_clients_close_their_end() {
    let servers = three(&DEAF);
    rounds(15, 4, |engine, random| {
        let moment = random.one_of(&MOMENTS);
        let site = Site::at(engine, &servers);
        let mut client = Client::new(site.serve());
        let gateway = client.serving.pid();
        client.reach(moment, random);
        let Client { serving, asked } = client;
        let ended = serving.close();
        assert!(ended.status.success(), "{moment:?}: {ended:?}");
        // At once: there are gateways beside it that look for what others leave.
        assert_eq!(containers(engine, gateway), [""; 0], "{moment:?}: {}", ended.stderr);
        let unanswered = Client::unanswered(asked, &ended.lines);
        assert!(unanswered.is_empty(), "{moment:?}: no answer to {unanswered:?}: {}", ended.stderr);
        assert_eq!(interrupted(&site), 0);
    });
}

#[test]
fn fifteen_clients_are_killed() {
    let servers = three(&DEAF);
    rounds(15, 4, |engine, random| {
        let moment = random.one_of(&MOMENTS);
        let site = Site::at(engine, &servers);
        let mut client = Client::new(mortal(&site));
        let gateway: u32 = wait_for("the gateway's process id", PATIENCE, || {
            std::fs::read_to_string(site.path("gateway")).ok()?.parse().ok()
        });
        client.reach(moment, random);
        client.serving.kill();
        wait_until(&format!("the end of the gateway, {moment:?}"), PATIENCE, || !lives(gateway));
        assert_eq!(containers(engine, gateway), [""; 0], "{moment:?}");
        assert_eq!(interrupted(&site), 0);
    });
}

/// A client in a process of its own, whose child the gateway is: with it go the readers of both the gateway's outputs.
const CLIENT: &str = r#"
import os, subprocess, sys, threading
pipe = subprocess.PIPE
gateway = subprocess.Popen(sys.argv[2:], stdin=pipe, stdout=pipe, stderr=pipe)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(gateway.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
def carry(lines, to):
    for line in lines:
        os.write(to, line)
for lines, to in (gateway.stdout, 1), (gateway.stderr, 2):
    threading.Thread(target=carry, args=(lines, to), daemon=True).start()
for line in sys.stdin.buffer:
    gateway.stdin.write(line)
    gateway.stdin.flush()
"#;

/// Such a client; it writes the gateway's process id to the site's file `gateway`.
fn mortal(site: &Site) -> Serving {
    let mut command = site.with_environment("python3");
    command.args(["-c", CLIENT]).arg(site.path("gateway")).arg(BULKHEAD).args(site.line(&["serve"]));
    Serving::start(command)
}

/// Whether a process runs. One that has ended and whom nobody has asked how does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
