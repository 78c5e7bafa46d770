//! From a target to a connection: allowed, resolved, checked, connected, each to what the step before it said. Knows no
//! protocol.
//!
//! A name is looked up once, and what was checked is what is connected to: an answer that is another one a moment later
//! finds nobody who asks.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::address::class;
use super::host::Host;
use super::refusal::{Kind, Refusal};
use super::resolve::Resolve;
use super::rule::{Rules, Target};

/// How long one address is tried alone before the next one is tried beside it (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);
/// How many addresses of a name are tried.
const TRIED: usize = 8;

/// Makes connections.
#[derive(Clone)]
pub struct Dialer {
    resolver: Arc<dyn Resolve>,
}

impl Dialer {
    /// With a resolver.
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        Dialer { resolver }
    }

    /// A connection to what a rule allows, made within that time: its name's addresses and all of them together.
    pub async fn dial(&self, target: &Target, rules: &Rules, within: Duration) -> Result<TcpStream, Refusal> {
        let until = Instant::now() + within;
        let addresses = self.addresses(target, rules, until).await?;
        let named = |address: &SocketAddr| rules.name(address.ip(), address.port());
        let stream = connect(addresses, until).await.map_err(|error| unreachable(target, &error))?;
        // The system has the last word on whom it has connected us to.
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(own), Ok(peer)) if own.ip() != peer.ip() || named(&peer) => Ok(stream),
            (Ok(_), Ok(peer)) => Err(not_public(target, "this host", peer.ip())),
            (own, peer) => {
                Err(unreachable(target, &own.and(peer).err().unwrap_or_else(|| io::ErrorKind::Other.into())))
            }
        }
    }

    /// A connection to a port of the host's own loopback, whichever of the two the service is bound to.
    pub async fn host_port(&self, port: u16, within: Duration) -> Result<TcpStream, Refusal> {
        let target = Target { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port };
        let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = both.map(|address| SocketAddr::from((address, port))).to_vec();
        connect(addresses, Instant::now() + within).await.map_err(|error| unreachable(&target, &error))
    }

    /// The addresses that may be connected to: at least one.
    async fn addresses(&self, target: &Target, rules: &Rules, until: Instant) -> Result<Vec<SocketAddr>, Refusal> {
        allowed(target, rules)?;
        let name = match &target.host {
            // That it is allowed means that a rule names it.
            Host::Address(address) => return Ok(vec![SocketAddr::from((*address, target.port))]),
            Host::Name(name) => name,
        };
        let found = timeout_at(until, self.resolver.resolve(name)).await;
        let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            let late = error.kind() == io::ErrorKind::TimedOut;
            Refusal::new(
                if late { Kind::Late } else { Kind::Unreachable },
                format!("cannot reach {target}: its name cannot be resolved"),
            )
            .with_inward(format!("cannot reach {target}: its name cannot be resolved: {error}"))
        })?;
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found.iter().map(IpAddr::to_canonical) {
            match why_not(address, target.port) {
                Some(why) if !rules.name(address, target.port) => refused = refused.or(Some((why, address))),
                _ if allowed.contains(&SocketAddr::from((address, target.port))) => {}
                _ => allowed.push(SocketAddr::from((address, target.port))),
            }
        }
        allowed.truncate(TRIED);
        match refused {
            _ if !allowed.is_empty() => Ok(allowed),
            Some((why, address)) => Err(not_public(target, &why, address)),
            None => Err(Refusal::new(Kind::Unreachable, format!("cannot reach {target}: its name has no address"))),
        }
    }
}

/// Whether a rule names the target; nothing has been looked up or sent before that is asked.
pub(super) fn allowed(target: &Target, rules: &Rules) -> Result<(), Refusal> {
    let denied = || Refusal::new(Kind::Denied, format!("may not reach {target}; allowed: {rules}"));
    rules.allow(target).then_some(()).ok_or_else(denied)
}

/// Why no name may lead there.
fn why_not(address: IpAddr, port: u16) -> Option<String> {
    class(address)
        .map(|class| class.to_string())
        .or_else(|| is_this_host(address, port).then(|| "this host".to_owned()))
}

/// Whether the system would talk to itself: all that listens here, the gateway's own ports among it, is reached by an
/// address of one of its interfaces, too. Sends nothing: it only asks which address such a packet would come from.
fn is_this_host(address: IpAddr, port: u16) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, port))?;
        socket.local_addr()
    });
    own.is_ok_and(|own| own.ip() == address)
}

fn not_public(target: &Target, what: &str, address: IpAddr) -> Refusal {
    let text =
        format!("may not reach {target}: its name leads to {what}, which only a rule for the address itself allows");
    Refusal::new(Kind::Denied, &text).with_inward(format!("{text} ({address})"))
}

fn unreachable(target: &Target, error: &io::Error) -> Refusal {
    let (kind, text) = match error.kind() {
        io::ErrorKind::TimedOut => (Kind::Late, "nobody answered in time"),
        io::ErrorKind::ConnectionRefused => (Kind::Unreachable, "the connection was refused"),
        _ => (Kind::Unreachable, "the connection failed"),
    };
    let outward = format!("cannot reach {target}: {text}");
    Refusal::new(kind, &outward).with_inward(format!("{outward}: {error}"))
}

/// The first of the addresses that takes a connection.
async fn connect(addresses: Vec<SocketAddr>, until: Instant) -> io::Result<TcpStream> {
    let stream = timeout_at(until, race(addresses.into_iter().map(TcpStream::connect))).await;
    let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Each one begins when the one before it has failed, or has taken its time.
async fn race<T>(attempts: impl Iterator<Item = impl Future<Output = io::Result<T>>>) -> io::Result<T> {
    let mut waiting = attempts;
    let mut running = FuturesUnordered::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut more = true;
    loop {
        if more {
            match waiting.next() {
                Some(attempt) => running.push(attempt),
                None => more = false,
            }
        }
        tokio::select! {
            ended = running.next() => match ended {
                Some(Ok(won)) => return Ok(won),
                Some(Err(error)) => failure = error,
                None if more => {}
                None => return Err(failure),
            },
            () = sleep(STAGGER), if more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use tokio::net::TcpListener;

    use crate::egress::rule::Rule;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// Answers each question with the next of its answers, and the last one for ever.
    struct Answers(Mutex<Vec<Vec<IpAddr>>>);

    impl Resolve for Answers {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            let mut answers = self.0.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            async move { Ok(answer) }.boxed()
        }
    }

    fn dialer(answers: &[&[&str]]) -> Dialer {
        let parsed = answers.iter().map(|answer| answer.iter().map(|a| a.parse().unwrap()).collect());
        Dialer::new(Arc::new(Answers(Mutex::new(parsed.collect()))))
    }

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| Rule::parse(text).unwrap()))
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn target(text: &str) -> Target {
        Target::parse(text, None).unwrap()
    }

    #[tokio::test]
    async fn what_no_rule_names_is_neither_looked_up_nor_connected_to() {
        let dialer = dialer(&[&[]]);
        let refusal =
            dialer.dial(&target("evil.org:443"), &rules(&["a.org:443", "*.b.org:80"]), LONG).await.unwrap_err();
        assert_eq!(refusal.kind, Kind::Denied);
        assert_eq!(refusal.outward, "may not reach evil.org:443; allowed: a.org:443, *.b.org:80");
    }

    #[tokio::test]
    async fn an_allowed_name_leads_to_public_addresses_alone() {
        let forbidden =
            ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0"];
        for address in forbidden {
            let refusal =
                dialer(&[&[address]]).dial(&target("a.org:443"), &rules(&["a.org:443"]), LONG).await.unwrap_err();
            assert_eq!(refusal.kind, Kind::Denied, "{address}");
            let canonical = address.parse::<IpAddr>().unwrap().to_canonical().to_string();
            assert!(refusal.inward.contains(&canonical) && !refusal.outward.contains(&canonical), "{refusal}");
        }
    }

    #[tokio::test]
    async fn an_address_of_this_host_is_its_own_whatever_its_class() {
        // Which address that is depends on the machine; one with no network has only its loopback.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = socket.connect("8.8.8.8:53").and_then(|()| socket.local_addr());
        let own = own.map_or_else(|_| Ipv4Addr::LOCALHOST.into(), |own| own.ip());
        assert!(is_this_host(own, 80) && is_this_host(Ipv4Addr::LOCALHOST.into(), 80));
        assert!(!is_this_host("8.8.8.8".parse().unwrap(), 80));
    }

    #[tokio::test]
    async fn a_rule_for_the_address_opens_it_for_itself_and_for_names() {
        let (_listener, port) = listener().await;
        let (name, address) = (format!("db.example:{port}"), format!("127.0.0.1:{port}"));
        let dialer = dialer(&[&["10.1.1.1", "127.0.0.1"]]);
        for (rule, asked, opens) in [
            (vec![&*name, &*address], &*name, true),
            (vec![&*address], &*address, true),
            (vec![&*address], &*name, false),
            (vec![&*name], &*name, false),
            (vec![&*name], &*address, false),
        ] {
            let dialed = dialer.dial(&target(asked), &rules(&rule), LONG).await;
            assert_eq!(dialed.is_ok(), opens, "{rule:?} {asked}: {dialed:?}");
        }
    }

    #[tokio::test]
    async fn the_answer_that_was_checked_is_the_one_that_is_connected_to() {
        let (listener, port) = listener().await;
        // The first answer is fine and leads nowhere; the second one would be the host itself.
        let dialer = dialer(&[&["2606:4700::dead"], &["127.0.0.1"]]);
        let asked = target(&format!("a.org:{port}"));
        let allowed = rules(&[&format!("a.org:{port}")]);
        let addresses = dialer.addresses(&asked, &allowed, Instant::now() + LONG).await.unwrap();
        assert_eq!(addresses, ["[2606:4700::dead]:".to_owned() + &port.to_string()].map(|a| a.parse().unwrap()));
        assert_eq!(dialer.addresses(&asked, &allowed, Instant::now() + LONG).await.unwrap_err().kind, Kind::Denied);
        assert!(listener.accept().now_or_never().is_none(), "somebody connected");
    }

    #[tokio::test]
    async fn a_hosts_port_is_reached_wherever_it_is_bound_and_says_so_where_nobody_is() {
        let (listener, port) = listener().await;
        assert!(dialer(&[&[]]).host_port(port, LONG).await.is_ok());
        drop(listener);
        let refusal = dialer(&[&[]]).host_port(port, LONG).await.unwrap_err();
        assert_eq!(refusal.outward, format!("cannot reach 127.0.0.1:{port}: the connection was refused"));
        if let Ok(six) = TcpListener::bind("[::1]:0").await {
            assert!(dialer(&[&[]]).host_port(six.local_addr().unwrap().port(), LONG).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_slow_address_does_not_hold_up_the_next_one() {
        let after = |ms: u64, result: io::Result<u64>| async move {
            sleep(Duration::from_millis(ms)).await;
            result
        };
        let failed = || Err(io::ErrorKind::ConnectionRefused.into());
        let raced = |attempts: Vec<(u64, io::Result<u64>)>| race(attempts.into_iter().map(move |(ms, r)| after(ms, r)));
        assert_eq!(raced(vec![(600_000, Ok(1)), (10, Ok(2))]).await.unwrap(), 2);
        assert_eq!(raced(vec![(100, Ok(1)), (0, Ok(2))]).await.unwrap(), 1);
        assert_eq!(raced(vec![(0, failed()), (0, failed()), (5, Ok(3))]).await.unwrap(), 3);
        assert_eq!(
            raced(vec![(300, failed()), (0, failed())]).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(raced(vec![]).await.is_err());
    }
}
