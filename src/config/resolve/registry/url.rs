//! Addresses of registries and proxies: what of them is taken, and the login within. Pure.

use http::Uri;
use http::uri::Scheme;
use percent_encoding::percent_decode_str;

use super::is_showable;
use crate::config::registry::Login;
use crate::config::{Runner, Sensitive};

/// Where an address was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The operator wrote it into the configuration, which holds no secrets.
    Written,
    /// It comes from the environment, where a login may stand within, and where it is not one's own choice to do without TLS.
    Inherited,
}

/// The address of a registry.
#[derive(Debug)]
pub(super) struct Address {
    /// Without a login, and without what means nothing: capitals of the host, the usual port.
    pub url: String,
    pub login: Option<Login>,
}

impl Address {
    /// A registry's. The text is no part of an error, for it may hold a secret.
    pub fn parse(text: &str, runner: Runner, trust: Trust) -> Result<Self, String> {
        let (scheme, host, login, uri) = split(text, trust)?;
        if scheme == Scheme::HTTP && trust == Trust::Inherited {
            return Err("names an address with http://, which is taken from the configuration alone".to_owned());
        }
        if uri.query().is_some() {
            return Err("must be an address without \"?\"".to_owned());
        }
        let mut path = uri.path().to_owned();
        // npm shows a login to whatever lies below the last slash.
        if runner == Runner::Npx && !path.ends_with('/') {
            path.push('/');
        }
        Ok(Address { url: format!("{scheme}://{host}{path}"), login })
    }

    /// A proxy's, login included where it may hold one.
    pub fn proxy(text: &str, trust: Trust) -> Result<String, String> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let (scheme, host, _, uri) = split(&with_scheme, trust)?;
        if uri.query().is_some() || uri.path().len() > 1 {
            return Err("must be the address of a proxy, without a path".to_owned());
        }
        let login = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let login = login.map(|(login, _)| format!("{login}@")).unwrap_or_default();
        Ok(format!("{scheme}://{login}{host}"))
    }

    /// Whether everybody on the way can read and change what is said.
    pub fn is_plain(&self) -> bool {
        self.url.starts_with("http://")
    }
}

fn split(text: &str, trust: Trust) -> Result<(Scheme, String, Option<Login>, Uri), String> {
    let odd = || "must be an address as https://registry.example.org/".to_owned();
    // What a parser could read in two ways, and what a settings file gives a meaning of its own.
    if text.contains(|c: char| !c.is_ascii_graphic() || "\"'`\\${};<>^|,#".contains(c)) {
        return Err(odd());
    }
    let uri: Uri = text.parse().map_err(|_| odd())?;
    let scheme = uri.scheme().cloned().filter(|s| *s == Scheme::HTTPS || *s == Scheme::HTTP).ok_or_else(odd)?;
    let authority = uri.authority().ok_or_else(odd)?;
    let name = authority.host().to_ascii_lowercase();
    if name.is_empty() {
        return Err(odd());
    }
    if is_loopback(&name) {
        return Err("names this machine's own loopback, which no container reaches".to_owned());
    }
    let usual = if scheme == Scheme::HTTPS { 443 } else { 80 };
    let host = match authority.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    };
    let login = match authority.as_str().rsplit_once('@') {
        None => None,
        Some(_) if trust == Trust::Written => {
            return Err("must not hold a login, which is a secret: write it as env:NAME or file:/PATH".to_owned());
        }
        Some((login, _)) => Some(self::login(login)?),
    };
    Ok((scheme, host, login, uri))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let address =
        host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback() || address.is_unspecified());
    address || host == "localhost" || host.ends_with(".localhost")
}

/// `user:password`, each as it is written in an address.
fn login(text: &str) -> Result<Login, String> {
    let odd = || "holds a login that no registry takes".to_owned();
    let decoded = |part: &str| {
        let part = percent_decode_str(part).decode_utf8().map_err(|_| odd())?.into_owned();
        if is_showable(&part) { Ok(part) } else { Err(odd()) }
    };
    match text.split_once(':') {
        Some((user, password)) if !password.is_empty() => {
            Ok(Login::Password { user: decoded(user)?, password: Sensitive::new(decoded(password)?) })
        }
        _ => Err("holds a name without a password".to_owned()),
    }
}
