//! The head of a request to the proxy, and of an answer to it. Pure: bytes in, and bytes that are written anew, so that
//! what the other side reads is what was read here.

use httparse::{EMPTY_HEADER, Header, Status};

use crate::egress::rule::Target;

/// The longest head.
const LONGEST: usize = 64 << 10;
/// The most fields in it.
const FIELDS: usize = 128;
/// Fields that are for one connection alone (RFC 9110, 7.6.1), ours or the other.
const HOP: [&str; 8] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "te",
    "upgrade",
    "proxy-authorization",
    "proxy-authenticate",
    "http2-settings",
];

/// Where a request is to go, and as what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) form: Form,
}

/// What is to be done there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes both ways.
    Tunnel,
    /// One request: its head as it is sent on, and how long its body is.
    Plain { head: Vec<u8>, body: Body },
}

/// How a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// Why there is no head yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incomplete {
    /// It is not whole.
    More,
    /// It never will be one.
    Wrong(String),
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Incomplete> {
    Err(Incomplete::Wrong(why.into()))
}

/// A request's head, and how many bytes it was.
pub(super) fn request(bytes: &[u8]) -> Result<(Request, usize), Incomplete> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = whole(bytes, parsed.parse(bytes), "a request")?;
    let (Some(method), Some(asked)) = (parsed.method, parsed.path) else { return wrong("sent no request") };
    if method == "CONNECT" {
        let target = target(asked, None)?;
        return Ok((Request { target, form: Form::Tunnel }, length));
    }
    let Some((authority, path)) = absolute(asked) else {
        return wrong("sent a request for a server, not for a proxy: CONNECT host:port, or http://host/…");
    };
    let target = target(authority, Some(80))?;
    let body = body(parsed.headers)?;
    let host = if target.port == 80 { target.host.to_string() } else { target.to_string() };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    write(&mut head, parsed.headers, |name| name.eq_ignore_ascii_case("host"));
    Ok((Request { target, form: Form::Plain { head, body } }, length))
}

/// An answer's head as it is passed on, its status, and how many bytes it was.
pub(super) fn answer(bytes: &[u8]) -> Result<((Vec<u8>, u16), usize), Incomplete> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let length = whole(bytes, parsed.parse(bytes), "an answer")?;
    let (Some(status), reason) = (parsed.code, parsed.reason.unwrap_or_default()) else { return wrong("no status") };
    let mut head = format!("HTTP/1.1 {status:03} {reason}\r\n").into_bytes();
    // What comes before the answer says nothing of the connection.
    if status < 200 {
        write_fields(&mut head, parsed.headers, |_| false);
    } else {
        write(&mut head, parsed.headers, |_| false);
    }
    Ok(((head, status), length))
}

fn whole(bytes: &[u8], parsed: httparse::Result<usize>, what: &str) -> Result<usize, Incomplete> {
    match parsed {
        Ok(Status::Complete(length)) if length <= LONGEST => Ok(length),
        Ok(Status::Partial) if bytes.len() < LONGEST => Err(Incomplete::More),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => wrong(format!("sent {what} whose head is too long")),
        Err(error) => wrong(format!("sent {what} that is no HTTP: {error}")),
    }
}

fn target(text: &str, usual: Option<u16>) -> Result<Target, Incomplete> {
    Target::parse(text, usual).or_else(|bad| wrong(format!("sent a request for no host and port: {bad}")))
}

/// The authority of an absolute URL, and its path.
fn absolute(asked: &str) -> Option<(&str, String)> {
    let scheme = asked.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"))?;
    let rest = &asked[scheme.len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some((authority, format!("{slash}{path}")))
}

/// How the body ends; whatever could be read in two ways is refused (RFC 9112, 6.3).
fn body(fields: &[Header<'_>]) -> Result<Body, Incomplete> {
    let mut lengths = named(fields, "content-length");
    match (named(fields, "transfer-encoding").collect::<Vec<_>>().as_slice(), lengths.next()) {
        ([], None) => Ok(Body::Length(0)),
        ([], Some(value)) => {
            let digits = value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|_| digits);
            match length {
                Some(length) if lengths.next().is_none() => Ok(Body::Length(length)),
                _ => wrong("sent a request with a length that is none"),
            }
        }
        ([value], None) if value.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
        _ => wrong("sent a request whose end can be read in two ways"),
    }
}

/// The values of each field of a name.
fn named<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// The fields but those for one connection, and that this one is for nothing more.
fn write(head: &mut Vec<u8>, fields: &[Header<'_>], without: impl Fn(&str) -> bool) {
    let own: Vec<&[u8]> = named(fields, "connection").collect();
    let own = String::from_utf8_lossy(&own.join(&b","[..])).to_ascii_lowercase();
    let own: Vec<&str> = own.split(',').map(str::trim).collect();
    let hop = |name: &str| {
        let name = name.to_ascii_lowercase();
        // How long the body is, nobody may have taken away.
        let kept = ["content-length", "transfer-encoding"].contains(&name.as_str());
        HOP.contains(&name.as_str()) || !kept && own.contains(&name.as_str())
    };
    head.extend_from_slice(b"Connection: close\r\n");
    write_fields(head, fields, |name| hop(name) || without(name));
}

fn write_fields(head: &mut Vec<u8>, fields: &[Header<'_>], without: impl Fn(&str) -> bool) {
    for field in fields.iter().filter(|field| !without(field.name)) {
        head.extend_from_slice(format!("{}: ", field.name).as_bytes());
        head.extend_from_slice(field.value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Request, Incomplete> {
        request(text.as_bytes()).map(|(request, length)| {
            assert_eq!(length, text.len());
            request
        })
    }

    fn plain(text: &str) -> (String, String, Body) {
        match parse(text) {
            Ok(Request { target, form: Form::Plain { head, body } }) => {
                (target.to_string(), String::from_utf8(head).unwrap(), body)
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn refused(text: &str) -> String {
        match parse(text) {
            Err(Incomplete::Wrong(why)) => why,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn connect_has_its_target_from_its_first_line_alone() {
        let request = parse("CONNECT API.example.org.:443 HTTP/1.1\r\nHost: evil.org:443\r\n\r\n").unwrap();
        assert_eq!((request.target.to_string().as_str(), request.form), ("api.example.org:443", Form::Tunnel));
        for asked in [
            "a.org",
            "a.org:0",
            "a.org:99999",
            "http://a.org:443",
            "u:p@a.org:443",
            "a.org:443/",
            "/",
            "*",
            "a.org:443#",
            "[::ffff:127.0.0.1]:443",
            "0x7f.1:443",
            "127.1:443",
            "[fe80::1%25eth0]:443",
            "a..org:443",
            "a.org:+443",
            "a.org:443,b.org:443",
            ":443",
        ] {
            refused(&format!("CONNECT {asked} HTTP/1.1\r\n\r\n"));
        }
    }

    #[test]
    fn nothing_is_smuggled_into_a_head() {
        for text in [
            "CONNECT a.org:443\r\nX: y HTTP/1.1\r\n\r\n",
            "CONNECT a.org\0:443 HTTP/1.1\r\n\r\n",
            "CONNECT a.org:443 evil HTTP/1.1\r\n\r\n",
            "CONNECT a.org:443 HTTP/2.0\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.1\r\nX : y\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.1\r\nX: a\0b\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.1\r\nX: a\rb\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.1\r\n folded\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
            "GET http://a.org/ b HTTP/1.1\r\n\r\n",
        ] {
            refused(text);
        }
    }

    #[test]
    fn a_plain_request_is_written_anew_for_its_target() {
        let (target, head, body) = plain(
            "GET HTTP://A.org:8080?q=1#top HTTP/1.1\r\nHost: evil.org\r\nProxy-Authorization: Basic eA==\r\n\
             Connection: keep-alive, X-Own, Content-Length\r\nX-Own: 1\r\nUpgrade: websocket\r\nKeep-Alive: 5\r\n\
             Accept: */*\r\nContent-Length: 3\r\n\r\n",
        );
        assert_eq!((target.as_str(), body), ("a.org:8080", Body::Length(3)));
        let wanted =
            "GET /?q=1 HTTP/1.1\r\nHost: a.org:8080\r\nConnection: close\r\nAccept: */*\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(head, wanted);
        let (target, head, _) = plain("POST http://a.org HTTP/1.0\r\n\r\n");
        assert_eq!(
            (target.as_str(), head.as_str()),
            ("a.org:80", "POST / HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n")
        );
    }

    #[test]
    fn a_plain_request_goes_to_the_authority_of_its_url_and_nowhere_else() {
        for asked in [
            "http://a.org@evil.org/",
            "http://a.org:80@evil.org/",
            "http://a.org\\@evil.org/",
            "http://a.org%40evil.org/",
            "http:///a.org/",
            "http://:80/",
            "http://a.org:/",
            "http://[::1/",
            "http://a b/",
            "http://127.1/",
            "http://2130706433/",
            "http://[::ffff:7f00:1]/",
            "https://a.org/",
            "ftp://a.org/",
            "/path",
            "a.org/",
            "//a.org/",
        ] {
            refused(&format!("GET {asked} HTTP/1.1\r\nHost: a.org\r\n\r\n"));
        }
        assert_eq!(plain("GET http://evil.org/?@a.org HTTP/1.1\r\n\r\n").0, "evil.org:80");
        assert_eq!(plain("GET http://evil.org#a.org HTTP/1.1\r\n\r\n").0, "evil.org:80");
    }

    #[test]
    fn a_body_that_could_end_in_two_places_is_refused() {
        let with = |fields: &str| format!("POST http://a.org/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(plain(&with("Transfer-Encoding: Chunked\r\n")).2, Body::Chunked);
        for fields in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            refused(&with(fields));
        }
    }

    #[test]
    fn a_head_has_an_end() {
        assert_eq!(request(b"CONNECT a.org:443 HT").unwrap_err(), Incomplete::More);
        assert_eq!(request(b"").unwrap_err(), Incomplete::More);
        assert!(refused(&format!("GET http://a.org/{} HTTP/1.1\r\n", "x".repeat(LONGEST))).ends_with("too long"));
        assert!(
            refused(&format!("GET http://a.org/ HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS + 1)))
                .ends_with("too long")
        );
    }

    #[test]
    fn an_answer_says_that_the_connection_ends() {
        let text = "HTTP/1.0 200 Fine\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\n";
        let ((head, status), length) = answer(text.as_bytes()).unwrap();
        let wanted = "HTTP/1.1 200 Fine\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";
        assert_eq!((String::from_utf8(head).unwrap().as_str(), status, length), (wanted, 200, text.len()));
        let ((head, _), _) = answer(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        assert_eq!(head, b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let _ = request(&bytes);
            let _ = answer(&bytes);
        }

        #[test]
        fn what_goes_on_is_one_head_for_the_target(path in "[!-~]{0,40}", name in "[A-Za-z-]{1,12}", value in "[ -~]{0,20}") {
            let text = format!("GET http://a.org/{path} HTTP/1.1\r\n{name}: {value}\r\n\r\n");
            if let Ok((Request { target, form: Form::Plain { head, .. } }, _)) = request(text.as_bytes()) {
                prop_assert_eq!(target.to_string(), "a.org:80");
                let mut fields = [EMPTY_HEADER; FIELDS];
                let mut again = httparse::Request::new(&mut fields);
                prop_assert_eq!(again.parse(&head), Ok(Status::Complete(head.len())));
                let hosts: Vec<_> = again.headers.iter().filter(|f| f.name.eq_ignore_ascii_case("host")).map(|f| f.value).collect();
                prop_assert_eq!(hosts, [b"a.org"]);
                prop_assert!(again.path.is_some_and(|path| path.starts_with('/')));
            }
        }
    }
}
