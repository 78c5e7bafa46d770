//! Whether a server is told of places on the loopback, which in its container is the container's own. Asks nobody.
//!
//! Only what reads as a host with a port counts; what is shown of it is that and where it stands, since the rest of such a
//! text is a secret more often than not.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::config::{Network, Run, Sensitive, Server};
use crate::egress::host::Host;

use super::Finding;

/// The ports that are meant where an address says none.
const USUAL: [(&str, u16); 14] = [
    ("http", 80),
    ("ws", 80),
    ("https", 443),
    ("wss", 443),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("redis", 6379),
    ("mongodb", 27017),
    ("amqp", 5672),
    ("nats", 4222),
    ("bolt", 7687),
    ("memcached", 11211),
];

/// A note, where the server has no such ports of the host's.
pub(super) fn look_at(server: &Server) -> Option<Finding> {
    let granted: &[u16] = match (&server.run, &server.network) {
        (Run::Unisolated { .. } | Run::Remote { .. }, _) => return None,
        (_, Network::None | Network::Bridge) => &[],
        (_, Network::Guarded { host_ports, .. }) => host_ports,
    };
    let mut told: Vec<(String, u16)> = named(server);
    told.retain(|(_, port)| !granted.contains(port));
    if told.is_empty() {
        return None;
    }
    let mut ports: Vec<u16> = granted.to_vec();
    for (_, port) in &told {
        if !ports.contains(port) {
            ports.push(*port);
        }
    }
    let places: Vec<String> = told.into_iter().map(|(at, port)| format!("{at} (port {port})")).collect();
    let says = format!("is told of the loopback, which is its container's own: {}", places.join(", "));
    let mend = format!("if a service of this host is meant, say so in servers.{}: host_ports = {ports:?}", server.name);
    Some(Finding::note(format!("server {}", server.name), says, Some(mend)))
}

/// Every place on the loopback that the server is told of, and where it stands.
fn named(server: &Server) -> Vec<(String, u16)> {
    let args = match &server.run {
        Run::Image { command, args, .. } => command.iter().flatten().chain(args).collect(),
        Run::Package(package) => package.args.iter().collect(),
        Run::Unisolated { .. } | Run::Remote { .. } => Vec::new(),
    };
    let value = |arg: &str| arg.split_once('=').filter(|_| arg.starts_with('-')).map(|(_, value)| value.to_owned());
    let args = args.into_iter().enumerate().filter_map(|(n, arg)| {
        let port = port_of(arg).or_else(|| port_of(&value(arg)?))?;
        Some((format!("argument {}", n + 1), port))
    });
    let env = server.env.iter().filter_map(|(name, value)| {
        let port = port_of(value.reveal()).or_else(|| beside(name, value, &server.env))?;
        Some((name.clone(), port))
    });
    args.chain(env).collect()
}

/// The port of a text that is an address on the loopback: a URL, the words of a database's driver, or a host with a port.
fn port_of(text: &str) -> Option<u16> {
    let text = text.trim();
    if let Some((scheme, rest)) = text.split_once("://") {
        let scheme = scheme.rsplit_once(':').map_or(scheme, |(_, inner)| inner).split('+').next()?.to_ascii_lowercase();
        let usual = USUAL.iter().find(|(name, _)| *name == scheme).map(|(_, port)| *port);
        let authority = rest.split(['/', '?', '#']).next()?;
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        return hosts.split(',').find_map(|host| on_loopback(host, usual));
    }
    if let Some(port) = on_loopback(text, None) {
        return Some(port);
    }
    // `host=127.0.0.1 port=5432 dbname=notes`, or the same with semicolons.
    let words = text.split(|c: char| c.is_whitespace() || c == ';').filter_map(|word| word.split_once('='));
    let words: BTreeMap<String, &str> = words.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let host = ["host", "server", "hostaddr"].iter().find_map(|name| words.get(*name))?;
    on_loopback(&format!("{host}:{}", words.get("port")?), None)
}

/// A variable that is a host, with the one beside it that is its port: `PGHOST` and `PGPORT`.
fn beside(name: &str, host: &Sensitive, env: &BTreeMap<String, Sensitive>) -> Option<u16> {
    let port = env.get(&name.replace("HOST", "PORT")).filter(|_| name.contains("HOST"))?;
    on_loopback(&format!("{}:{}", host.reveal().trim(), port.reveal().trim()), None)
}

/// The port of `host:port` where that host is the loopback.
fn on_loopback(text: &str, usual: Option<u16>) -> Option<u16> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (text, usual),
    };
    let here = match Host::told(host).ok()? {
        Host::Name(name) => &*name == "localhost" || name.ends_with(".localhost"),
        Host::Address(IpAddr::V4(address)) => address.is_loopback(),
        Host::Address(IpAddr::V6(address)) => address.is_loopback(),
    };
    port.filter(|port| here && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::env::Fixed;
    use crate::config::resolve::load;

    fn server(lines: &str) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulkhead.toml");
        std::fs::write(&path, format!("[servers.db]\n{lines}\n")).unwrap();
        load(&path, &Fixed::from([("URL", "postgres://me:hunter2@127.0.0.1/notes")])).unwrap().servers.remove(0)
    }

    #[test]
    fn addresses_on_the_loopback_are_read_as_hosts_and_not_as_text() {
        for (text, port) in [
            ("postgresql://me:p%40ss@127.0.0.1:5432/notes?sslmode=disable", Some(5432)),
            ("postgresql://me:x@localhost/notes", Some(5432)),
            ("jdbc:postgresql://localhost:5433/notes", Some(5433)),
            ("mongodb+srv://localhost", Some(27017)),
            ("mongodb://db.example:1,127.0.0.2:2/x", Some(2)),
            ("http://[::1]:8080", Some(8080)),
            ("http://[::1]", Some(80)),
            ("HTTP://LOCALHOST.", Some(80)),
            ("http://api.localhost:81/", Some(81)),
            ("localhost:6379", Some(6379)),
            (" 127.0.0.1:6379 ", Some(6379)),
            ("[::1]:1", Some(1)),
            ("host=127.0.0.1 port=5432 dbname=notes", Some(5432)),
            ("Server=localhost;Port=3306;Uid=me", Some(3306)),
            ("http://localhost.example.org/", None),
            ("http://example.org/?to=http://127.0.0.1:80", None),
            ("http://127.0.0.1:80@example.org/", None),
            ("http://example.org:127", None),
            ("ftp://localhost", None),
            ("localhost", None),
            ("127.0.0.1", None),
            ("127.0.0.1:http", None),
            ("listens on 127.0.0.1:80", None),
            ("not-localhost:80", None),
            ("1127.0.0.1:80", None),
            ("localhost:0", None),
            ("", None),
        ] {
            assert_eq!(port_of(text), port, "{text}");
        }
    }

    #[test]
    fn what_is_told_proposes_the_whole_line_and_shows_no_secret() {
        let lines = "image = \"i\"\nargs = [\"--db=localhost:3306\", \"http://127.0.0.1:8080/\"]\n\
                     secrets = { DATABASE_URL = \"env:URL\" }\nenv = { PGHOST = \"127.0.0.1\", PGPORT = \"5432\" }";
        let found = look_at(&server(&format!("{lines}\nhost_ports = [8080]"))).unwrap();
        assert_eq!(
            found.says,
            "is told of the loopback, which is its container's own: argument 1 (port 3306), DATABASE_URL (port 5432), \
             PGHOST (port 5432)"
        );
        let mend = "if a service of this host is meant, say so in servers.db: host_ports = [8080, 3306, 5432]";
        assert_eq!(found.mend.as_deref(), Some(mend));
        assert!(found.fine && !format!("{found:?}").contains("hunter2"));
        assert!(look_at(&server(&format!("{lines}\nhost_ports = [8080, 3306, 5432]"))).is_none());
        assert!(look_at(&server("image = \"i\"\nenv = { BIND_HOST = \"127.0.0.1\" }")).is_none());
        let host = "unisolated = \"w\"\ncommand = [\"x\", \"localhost:1\"]";
        assert!(look_at(&server(host)).is_none(), "on the host it is the host's");
    }
}
