//! What the probe saw from inside, and how to read it. Pure; judges nothing.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Deserialize;

use crate::config::mounts::unescaped;

/// The one line that the probe writes before it becomes the server. A text is `None` where it could not be read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Report {
    /// Marks the line, and its version.
    pub bulkhead_probe: u32,
    /// What we gave it, so that no other line can stand for it.
    pub nonce: String,
    /// `/proc/self/status`.
    pub status: Option<String>,
    /// `/proc/self/mountinfo`.
    pub mountinfo: Option<String>,
    /// `/proc/net/dev`.
    pub net_dev: Option<String>,
    /// `/proc/net/route`.
    pub route: Option<String>,
    /// `/proc/net/ipv6_route`.
    pub ipv6_route: Option<String>,
    /// `/proc/self/limits`.
    pub limits: Option<String>,
    /// `/proc/self/cgroup`.
    pub cgroup: Option<String>,
    /// The limits of the control groups, by path.
    pub cgroup_files: BTreeMap<String, String>,
    /// Names in the environment.
    pub env: Vec<String>,
    /// The host name.
    pub hostname: Option<String>,
    /// `/proc/1/status`.
    pub init: Option<String>,
    /// The AppArmor profile this runs under, `None` where the kernel has no such thing.
    pub apparmor: Option<String>,
    /// Where the links in `/proc/self/ns` lead.
    #[serde(default)]
    pub namespaces: BTreeMap<String, Option<String>>,
    /// Which of the kernel's files that engines hide or protect are here at all.
    pub kernel_files: Option<Vec<String>>,
    /// Every device below `/dev`, as `c 1:3 /dev/null`; `? /dev/x` for what could not be looked into.
    pub devices: Option<Vec<String>>,
    /// What was tried, with the number of the error that it ended with: 0 for none, `None` where it could not be tried.
    #[serde(default)]
    pub attempts: Option<BTreeMap<String, Option<i32>>>,
}

/// A line of `/proc/net/route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLine {
    /// By which interface; `*` by none.
    pub interface: String,
    /// To where.
    pub to: Ipv4Addr,
    /// Which bits of that count.
    pub mask: Ipv4Addr,
    /// By which gateway.
    pub gateway: Ipv4Addr,
    /// What kind it is.
    pub flags: u16,
}

/// A line of mountinfo (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// Which file system, as `major:minor`.
    pub device: String,
    /// What of that file system is mounted: `/` for the whole.
    pub root: String,
    /// Where.
    pub at: String,
    /// `rw,nosuid,…` of this mount.
    pub options: Vec<String>,
    /// The kind of file system.
    pub kind: String,
    /// Options of the file system.
    pub inner: Vec<String>,
}

impl MountLine {
    /// Whether this mount can be written through.
    pub fn writable(&self) -> bool {
        let read_only = |all: &[String]| all.iter().any(|o| o == "ro");
        !read_only(&self.options) && !read_only(&self.inner)
    }

    /// Whether an option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().chain(&self.inner).any(|o| o == option)
    }
}

impl Report {
    /// A field of `/proc/self/status`.
    pub fn status(&self, field: &str) -> Option<&str> {
        find(self.status.as_deref()?, field)
    }

    /// A field of the status of the first process.
    pub fn init(&self, field: &str) -> Option<&str> {
        find(self.init.as_deref()?, field)
    }

    /// Every mount, or `None` where they could not be read to the last line.
    pub fn mounts(&self) -> Option<Vec<MountLine>> {
        let mounts: Option<Vec<MountLine>> = self.mountinfo.as_deref()?.lines().map(mount).collect();
        mounts.filter(|all| !all.is_empty())
    }

    /// Soft and hard limit of a resource.
    pub fn limit(&self, name: &str) -> Option<(&str, &str)> {
        let rest = self.limits.as_deref()?.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = rest.split_whitespace();
        Some((words.next()?, words.next()?))
    }

    /// The content of a control-group file, by its name.
    pub fn cgroup(&self, file: &str) -> Option<&str> {
        let found = self.cgroup_files.iter().find(|(path, _)| path.rsplit('/').next() == Some(file));
        found.map(|(_, text)| text.trim())
    }

    /// Names of the network interfaces.
    pub fn interfaces(&self) -> Option<Vec<&str>> {
        let named = self.net_dev.as_deref()?.lines().filter_map(|line| line.split_once(':'));
        Some(named.map(|(name, _)| name.trim()).collect())
    }

    /// Whether nothing has ever gone through an interface.
    pub fn is_idle(&self, interface: &str) -> bool {
        let mut named = self.net_dev.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(':'));
        let counters = named.find(|(name, _)| name.trim() == interface).map(|(_, counters)| counters);
        counters.is_some_and(|all| all.split_whitespace().all(|count| count == "0"))
    }

    /// Routes that lead anywhere but to `lo`, both families; `None` where the first family cannot be read. A kernel that
    /// lacks the second one has no list of its routes, and then the interfaces alone say that there is no way out.
    pub fn routes(&self) -> Option<Vec<&str>> {
        let mut four = self.route.as_deref()?.lines();
        four.next().filter(|heading| heading.starts_with("Iface"))?;
        let four = four.filter(|l| !l.trim().is_empty());
        Some(four.chain(self.routes_of_six()).collect())
    }

    /// Routes of IPv6 that lead anywhere but to `lo`; none where the kernel has no such thing.
    pub fn routes_of_six(&self) -> Vec<&str> {
        let six = self.ipv6_route.as_deref().unwrap_or_default().lines();
        six.filter(|line| line.split_whitespace().last().is_some_and(|name| name != "lo")).collect()
    }

    /// Every route of IPv4, or `None` where they could not be read to the last line.
    pub fn route_lines(&self) -> Option<Vec<RouteLine>> {
        let mut lines = self.route.as_deref()?.lines();
        lines.next().filter(|heading| heading.starts_with("Iface"))?;
        lines.filter(|line| !line.trim().is_empty()).map(route).collect()
    }
}

fn find<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

/// `eth0  00000000  010012AC  0003  0  0  0  00000000  0  0  0`: addresses as they lie in the memory of a machine that
/// has the lowest byte first, as all have that containers run on.
fn route(line: &str) -> Option<RouteLine> {
    let mut fields = line.split_whitespace();
    let address = |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_le_bytes()));
    let interface = fields.next()?.to_owned();
    let (to, gateway) = (address(fields.next()?)?, address(fields.next()?)?);
    let flags = u16::from_str_radix(fields.next()?, 16).ok()?;
    let mask = address(fields.nth(3)?)?;
    Some(RouteLine { interface, to, mask, gateway, flags })
}

fn mount(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (device, root, at, options) = (before.next()?, before.next()?, before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, _source, inner) = (after.next()?, after.next()?, after.next()?);
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    Some(MountLine {
        device: device.to_owned(),
        root: unescaped(root)?,
        at: unescaped(at)?,
        options: list(options),
        kind: kind.to_owned(),
        inner: list(inner),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Captured from a container under the default compartment, control groups v1.
    pub const CAPTURED: &str = include_str!("../../tests/fixtures/probe-v1.json");

    #[test]
    fn a_captured_line_is_read() {
        let report: Report = serde_json::from_str(CAPTURED).unwrap();
        assert_eq!(report.status("CapEff"), Some("0000000000000000"));
        assert_eq!(report.status("NoNewPrivs"), Some("1"));
        assert_eq!(report.interfaces().unwrap(), ["lo"]);
        assert_eq!(report.routes().unwrap(), Vec::<&str>::new());
        assert_eq!(report.limit("Max open files"), Some(("1024", "1024")));
        assert_eq!(report.cgroup("pids.max"), Some("64"));
        let mounts = report.mounts().unwrap();
        let root = mounts.iter().find(|m| m.at == "/").unwrap();
        assert!(!root.writable() && root.kind == "overlay");
        let tmp = mounts.iter().find(|m| m.at == "/tmp").unwrap();
        assert!(tmp.writable() && tmp.has("noexec") && tmp.has("size=65536k"));
    }

    #[test]
    fn what_cannot_be_read_is_none_and_never_empty() {
        let report = Report::default();
        assert_eq!(report.status("CapEff"), None);
        assert_eq!((report.mounts(), report.interfaces(), report.routes()), (None, None, None));
        let cut = Report { mountinfo: Some("garbage".into()), ..Report::default() };
        assert_eq!(cut.mounts(), None);
    }

    #[test]
    fn routes_are_read_to_the_last_line_or_not_at_all() {
        let of = |text: &str| Report { route: Some(text.to_owned()), ..Report::default() }.route_lines();
        let heading = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let out = "eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        let refused = "*\t000010AC\t00000000\t0201\t0\t0\t0\t0000F0FF\t0\t0\t0   \n";
        let read = of(&format!("{heading}{out}{refused}")).unwrap();
        assert_eq!(read[0].gateway.to_string(), "172.18.0.1");
        assert_eq!((read[1].to.to_string(), read[1].mask.to_string()), ("172.16.0.0".into(), "255.240.0.0".into()));
        assert_eq!((&*read[0].interface, read[0].flags, &*read[1].interface, read[1].flags), ("eth0", 3, "*", 0x201));
        assert_eq!(of(heading), Some(Vec::new()));
        assert_eq!((of(out), of(&format!("{heading}eth0 zz"))), (None, None));
    }

    #[test]
    fn paths_of_mounts_are_as_they_are_on_disk() {
        let line = r"9 8 0:47 /a\134b /c\040d\134040 ro,nosuid shared:1 master:2 - ext4 /dev/x\040y rw,size=1k";
        let read = mount(line).unwrap();
        assert_eq!((read.device.as_str(), read.root.as_str(), read.at.as_str()), ("0:47", "/a\\b", r"/c d\040"));
        assert_eq!((read.kind.as_str(), read.writable(), read.has("size=1k")), ("ext4", false, true));
        for bad in [r"9 8 0:1 / /a\04 rw - x y rw", r"9 8 0:1 / /a\09x rw - x y rw", "9 8 0:1 / /a rw - x"] {
            assert_eq!(mount(bad), None, "{bad}");
        }
    }
}
