//! What a server may reach, as its configuration says it, and what it asks for. Pure: knows no names' addresses.
//!
//! - `api.github.com:443`: that name, that port.
//! - `*.example.org:443`: every name below `example.org`, however deep, and not `example.org` itself; as in the content
//!   policies of browsers and in lists of what needs no proxy. Whoever has `example.org` decides all that is below it, so
//!   that depth would draw no line. The star is the whole first part, and two parts must follow it: `*.org` is no rule.
//! - `192.0.2.7:5432`, `[2001:db8::7]:5432`: that address, whether asked for by itself or by a name that is allowed and
//!   resolves to it. Nothing else opens an address that is not a public one.

use std::fmt;
use std::net::IpAddr;

use super::host::{BadHost, Host};

/// One `host:port` that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    hosts: Hosts,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Exactly(Host),
    Below(Box<str>),
}

/// All that one server may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Whom.
    pub host: Host,
    /// The TCP port; never 0.
    pub port: u16,
}

/// Why a text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// There is no port, or not from 1 to 65535.
    Port,
    /// The host is none.
    Host(BadHost),
}

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTarget::Port => f.write_str("a port from 1 to 65535 must follow the host"),
            BadTarget::Host(bad) => bad.fmt(f),
        }
    }
}

impl Rule {
    /// One line of a configuration; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |bad: BadTarget| bad.to_string();
        let (host, port) = split(text).map_err(wrong)?;
        let Some(suffix) = host.strip_prefix("*.") else {
            if host.contains('*') {
                return Err("a star stands for the whole first part of a name: \"*.example.org:443\"".to_owned());
            }
            let host = Host::written(host).map_err(|bad| wrong(BadTarget::Host(bad)))?;
            return Ok(Rule { hosts: Hosts::Exactly(host), port });
        };
        match Host::written(suffix).map_err(|bad| wrong(BadTarget::Host(bad)))? {
            Host::Name(name) if name.contains('.') => Ok(Rule { hosts: Hosts::Below(name), port }),
            Host::Name(name) => Err(format!("\"*.{name}\" is too much: two parts must follow the star")),
            Host::Address(_) => Err("an address has nothing below it".to_owned()),
        }
    }

    fn allows(&self, target: &Target) -> bool {
        self.port == target.port
            && match (&self.hosts, &target.host) {
                (Hosts::Exactly(host), asked) => host == asked,
                (Hosts::Below(suffix), Host::Name(name)) => {
                    name.strip_suffix(&**suffix).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
                }
                (Hosts::Below(_), Host::Address(_)) => false,
            }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Exactly(host) => write!(f, "{host}:{}", self.port),
            Hosts::Below(suffix) => write!(f, "*.{suffix}:{}", self.port),
        }
    }
}

impl Rules {
    /// All of these together.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Rules(rules.into_iter().collect())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them names what is asked for.
    pub fn allow(&self, target: &Target) -> bool {
        self.0.iter().any(|rule| rule.allows(target))
    }

    /// Whether one of them names that very address.
    pub fn name(&self, address: IpAddr, port: u16) -> bool {
        Host::address(address).is_ok_and(|host| self.allow(&Target { host, port }))
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let rules: Vec<_> = self.0.iter().map(Rule::to_string).collect();
        f.write_str(&rules.join(", "))
    }
}

impl Target {
    /// `host:port` as a request has it; without a port only where there is a usual one.
    pub fn parse(text: &str, usual: Option<u16>) -> Result<Self, BadTarget> {
        let (host, port) = match (usual, text.rfind(':')) {
            (Some(port), None) => (text, port),
            (Some(port), Some(colon)) if text[colon..].contains(']') => (text, port),
            _ => split(text)?,
        };
        Ok(Target { host: Host::told(host).map_err(BadTarget::Host)?, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn split(text: &str) -> Result<(&str, u16), BadTarget> {
    let (host, port) = text.rsplit_once(':').ok_or(BadTarget::Port)?;
    // The standard library would take "+443", too.
    let digits = !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0).ok_or(BadTarget::Port)?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| Rule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))))
    }

    fn allows(rule: &str, target: &str) -> bool {
        Target::parse(target, None).is_ok_and(|target| rules(&[rule]).allow(&target))
    }

    #[test]
    fn a_name_opens_itself_alone() {
        for target in ["api.github.com:443", "API.github.COM:443", "api.github.com.:443"] {
            assert!(allows("api.github.com:443", target) && allows("API.GitHub.com.:443", target), "{target}");
        }
        let others = [
            "api.github.com:80",
            "api.github.com",
            "api.github.com:",
            "api.github.com:0443x",
            "api.github.com:+443",
            "github.com:443",
            "x.api.github.com:443",
            "xapi.github.com:443",
            "api.github.com.evil.org:443",
            "api.github.com:443:443",
            "api.github.com:443@evil.org:443",
            "user@api.github.com:443",
            "evil.org#api.github.com:443",
            "evil.org\\api.github.com:443",
            "api.github.com\r\n:443",
            "api.github.com\0.evil.org:443",
            " api.github.com:443",
            "api.github.com :443",
            "api.github.com..:443",
            "[api.github.com]:443",
            "api%2egithub.com:443",
            "api.github.com:4430",
            "api.github.com:65979",
        ];
        for target in others {
            assert!(!allows("api.github.com:443", target), "{target:?}");
        }
    }

    #[test]
    fn a_star_opens_all_below_and_never_the_name_itself() {
        for target in ["a.example.org:443", "a.b.example.org:443", "A.EXAMPLE.ORG.:443"] {
            assert!(allows("*.example.org:443", target), "{target}");
        }
        for target in [
            "example.org:443",
            "aexample.org:443",
            ".example.org:443",
            "a.example.org.evil:443",
            "a.example.org:80",
            "1.2.3.4:443",
        ] {
            assert!(!allows("*.example.org:443", target), "{target}");
        }
        for text in [
            "*:443",
            "*.org:443",
            "*.*.example.org:443",
            "a*.example.org:443",
            "a.*.example.org:443",
            "*example.org:443",
            "*.1.2.3.4:443",
            "*.:443",
            "*..example.org:443",
            "*.[::1]:1",
        ] {
            assert!(Rule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_an_address_opens_an_address() {
        assert!(allows("127.0.0.1:5432", "127.0.0.1:5432") && allows("[::1]:5432", "[0:0:0:0:0:0:0:1]:5432"));
        for target in [
            "127.0.0.2:5432",
            "[::1]:5432",
            "[::ffff:127.0.0.1]:5432",
            "2130706433:5432",
            "0x7f.0.0.1:5432",
            "127.1:5432",
            "127.0.0.1.:5432",
            "localhost:5432",
        ] {
            assert!(!allows("127.0.0.1:5432", target), "{target}");
        }
        assert!(!allows("*.0.0.example:1", "127.0.0.1:1"));
        let rules = rules(&["10.0.0.7:5432", "db.example:5432"]);
        let is = |text: &str, port| rules.name(text.parse().unwrap(), port);
        assert!(is("10.0.0.7", 5432) && !is("10.0.0.7", 5433) && !is("10.0.0.8", 5432) && !is("::ffff:10.0.0.7", 5432));
    }

    #[test]
    fn a_rule_without_a_port_or_with_a_wrong_host_is_refused_with_a_reason() {
        for text in [
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:http",
            "example.org:*",
            "example.org:-1",
        ] {
            assert_eq!(Rule::parse(text), Err("a port from 1 to 65535 must follow the host".to_owned()), "{text}");
        }
        for (text, why) in [
            ("https://example.org:443", "brackets"),
            ("0x7f.1:80", "decimal"),
            ("2001:db8::1:443", "brackets"),
            ("[::ffff:10.0.0.1]:443", "as an IPv4 address"),
            (":443", "empty"),
            ("*:443", "star"),
            ("a b:443", "character"),
        ] {
            let told = Rule::parse(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn a_rule_says_itself_in_one_form() {
        let said = rules(&["API.example.ORG.:0443", "*.Bücher.example:80", "[2606::0:1]:1"]).to_string();
        assert_eq!(said, "api.example.org:443, *.xn--bcher-kva.example:80, [2606::1]:1");
        assert_eq!(Rules::default().to_string(), "nothing");
    }

    #[test]
    fn a_usual_port_is_for_who_says_none() {
        let port = |text: &str| Target::parse(text, Some(80)).map(|target| target.port);
        assert_eq!(
            [port("a"), port("a:81"), port("[2606::1]"), port("[2606::1]:81")],
            [Ok(80), Ok(81), Ok(80), Ok(81)]
        );
        assert_eq!(port("a:"), Err(BadTarget::Port));
        assert_eq!(Target::parse("a", None), Err(BadTarget::Port));
    }

    proptest! {
        #[test]
        fn what_a_rule_opens_ends_in_what_it_says(target in "[a-zA-Z0-9.:@%\\[\\]*-]{0,30}", n in 0usize..3) {
            let rule = ["*.example.org:443", "a.b:1", "1.2.3.4:5"][n];
            if let Ok(target) = Target::parse(&target, None) && rules(&[rule]).allow(&target) {
                let said = format!(".{target}");
                prop_assert!(said.ends_with(rule.trim_start_matches('*')), "{}", said);
            }
        }

        #[test]
        fn names_below_are_allowed_in_any_writing(front in "[a-zA-Z][a-zA-Z0-9-]{0,10}(\\.[a-z]{1,5}){0,3}", dot in "\\.?") {
            let target = format!("{front}.Example.ORG{dot}:443");
            prop_assert!(allows("*.example.org:443", &target));
            let beside = format!("{front}example.org{dot}:443");
            prop_assert!(!allows("*.example.org:443", &beside));
        }

        #[test]
        fn any_text_is_refused_or_read_the_same_again(text in "\\PC{0,40}") {
            if let Ok(target) = Target::parse(&text, Some(80)) {
                prop_assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
            }
            if let Ok(rule) = Rule::parse(&text) {
                prop_assert_eq!(Rule::parse(&rule.to_string()), Ok(rule));
            }
        }
    }
}
