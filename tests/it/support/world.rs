//! An internet of a test's own, with a gateway in it: every address there is answers, and its names lead where the test
//! says. In namespaces, so that nothing else is disturbed. Knows no rule of what may be reached.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::dialling::DIAL;
use super::namespaces::{Names, hindrance};
use super::{Serving, Site, skipped};

/// What stands for the world, and in it the gateway's own network. All addresses are the world's but one, which swallows
/// what it gets, and those of the
/// gateway's host, one of which looks like anybody's. Process ids are those of outside, by which it is entered.
const HOLDER: &str = r#"
set -e
ip link set lo up
ip route add local default dev lo
# After all others: the way back to the gateway is not local.
ip -6 route add local default dev lo table 99 && ip -6 rule add pref 40000 lookup 99 || true
ip route add blackhole 93.184.216.200/32
exec 3< <(exec unshare --net sh -c 'read -r pid rest </proc/self/stat; echo "$pid"; exec sleep infinity')
read -r inner <&3
ip link add world type veth peer name out netns /proc/$inner/ns/net
ip address add 192.0.2.1/30 dev world
ip link set world up
ip -6 address add fd77::1/64 dev world nodad || true
nsenter --net=/proc/$inner/ns/net sh -ec '
    ip link set lo up
    ip address add 11.0.0.9/32 dev lo
    ip address add 192.0.2.2/30 dev out
    ip link set out up
    ip route add default via 192.0.2.1
    ip -6 address add fd77::2/64 dev out nodad && ip -6 route add default via fd77::1 || true
'
nsenter --net=/proc/$inner/ns/net python3 -c "$SERVICES" host </dev/null &
echo $inner
exec python3 -c "$SERVICES" world
"#;

/// The services: each says at which address it was reached and as which host; it sends away who asks for that, sends as
/// much as it is asked for, and never answers where it is asked not to. Those of the world know names: answers for the
/// first time that somebody asks, for the second, and from then on; `null` is no answer at all.
const SERVICES: &str = r#"
import json

def answer(stream, asked):
    first, *fields = asked.split("\r\n")
    target = first.split(" ")[1]
    if "/away?" in target:
        return page("", "302 Found", f"Location: {target.partition('?')[2]}\r\n")
    if target.startswith("/big?"):
        return page("x" * int(target.partition("?")[2]))
    if "/never" in target:
        stay(60)
    hosts = [field.partition(":")[2].strip() for field in fields if field.lower().startswith("host:")]
    address, port = stream.getsockname()[:2]
    return page(f"{sys.argv[1]} {authority(address, port)} as {' '.join(hosts)}")

for port in (80, 81, 443):
    serve(answer, "0.0.0.0", port)
    try:
        serve(answer, "::", port)
    except OSError:
        pass
if sys.argv[1] == "host":
    print("ready", flush=True)
    stay(900)

zone, seen = {}, {}

def resolve(asked):
    labels, at = [], 12
    while asked[at]:
        labels.append(asked[at + 1:at + 1 + asked[at]].decode("latin-1"))
        at += 1 + asked[at]
    question, kind = asked[12:at + 5], struct.unpack("!H", asked[at + 1:at + 3])[0]
    name = ".".join(labels).lower()
    before = seen.setdefault((name, kind), 0)
    seen[name, kind] += 1
    answers = zone.get(name)
    if name in zone and answers is None:
        return None
    now = answers[min(before, len(answers) - 1)] if answers else []
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    found = [socket.inet_pton(family, a) for a in now if family and (":" in a) == (kind == 28)]
    records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(a)) + a for a in found)
    return asked[:2] + struct.pack("!HHHHH", 0x8580 | (0 if answers else 3), 1, len(found), 0, 0) + question + records

answer_datagrams(resolve, "192.0.2.1")
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "seen":
        counts = {name: count for (name, kind), count in seen.items() if kind == 1}
        print(json.dumps(counts), flush=True)
    else:
        zone.update(json.loads(line))
        print("taken", flush=True)
"#;

/// The world. Gone with this value, or with the test.
pub struct World {
    holder: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
    inner: String,
    names: Names,
}

impl World {
    /// A world in which each name has these addresses: the first list for who asks first, and so on. `None`, and the
    /// reason noted, where it cannot be had.
    pub fn new(zone: &Value) -> Option<Self> {
        if let Some(why) = hindrance() {
            skipped(&format!("an internet of its own: {why}"));
            return None;
        }
        let mut holder = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--net", "bash", "-c", HOLDER])
            .env("SERVICES", format!("{DIAL}\n{SERVICES}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, says) = (holder.stdin.take().unwrap(), BufReader::new(holder.stdout.take().unwrap()));
        let files = [
            ("/etc/hosts", "127.0.0.1 localhost\n"),
            ("/etc/resolv.conf", "nameserver 192.0.2.1\noptions timeout:5 attempts:1\n"),
            ("/etc/nsswitch.conf", "hosts: files dns\n"),
        ];
        let mut world = World { holder, told, says, inner: String::new(), names: Names::new(&files) };
        // Who is ready comes in any order.
        let mut said: Vec<String> = (0..3).map(|_| world.line()).collect();
        said.retain(|line| line != "ready");
        world.inner = said.remove(0);
        writeln!(world.told, "{zone}").unwrap();
        assert_eq!(world.line(), "taken");
        Some(world)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.says.read_line(&mut line).unwrap() > 0, "the world has ended");
        line.trim_end().to_owned()
    }

    /// Starts the gateway of a site in it, and makes the handshake.
    pub fn open(&self, site: &Site) -> Serving {
        let network = format!("--net=/proc/{}/ns/net", self.inner);
        let mut serving = Serving::start(self.names.command_behind(site, &["nsenter", &network], &["serve"]));
        serving.initialize();
        serving
    }

    /// How often each name was looked up.
    pub fn seen(&mut self) -> BTreeMap<String, u64> {
        writeln!(self.told, "seen").unwrap();
        serde_json::from_str(&self.line()).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The namespaces go with their first process, which goes with this one.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
