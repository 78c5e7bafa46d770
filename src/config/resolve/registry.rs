//! `[registry]`: where packages are baked from. Knows nothing of what is asked there.
//!
//! ```toml
//! [registry]
//! ca = "/etc/ssl/company.pem"             # trusted beside the certificates of the runtime image
//! proxy = "http://proxy.example.org:3128" # or "none"; with a login: proxy = "env:PROXY"
//! no_proxy = ["*.example.org"]
//!
//! [registry.npm]
//! url = "https://npm.example.org/"
//! token = "env:NPM_TOKEN"                 # env:NAME or file:/PATH; or username and password
//! scopes = { "@acme" = { url = "https://acme.example.org/npm/", token = "file:/run/secrets/acme" } }
//!
//! [registry.pypi]
//! url = "https://pypi.example.org/simple"
//! username = "ci"
//! password = "env:PYPI_PASSWORD"
//! ```
//!
//! Where a key is not given, the variables count that npm, uv and others read: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` in
//! both spellings, `NODE_EXTRA_CA_CERTS`, `SSL_CERT_FILE`, `npm_config_registry`, `UV_DEFAULT_INDEX`, `UV_INDEX_URL`,
//! `PIP_INDEX_URL`. A login in the address of one of these is taken for the secret that it is.
//!
//! **A name comes from one place.** A scope of npm's is asked for at its own registry alone, everything else at the one
//! registry; of indexes for PyPI there is one. With two, whoever publishes a company's private name on the public one
//! decides what is installed.
//!
//! **`http://` only where it is written here.** Whoever is on the way can then say what a package is until it is locked;
//! what is locked is held to its hashes whatever the way. It is noted.

use std::path::Path;

use crate::config::env::{Environment, Source};
use crate::config::file::read_trusted;
use crate::config::reader::{Field, Reader};
use crate::config::registry::{Index, Login, Npm, Proxy, Registry};
use crate::config::{Runner, Sensitive};

mod url;

use url::{Address, Trust};

/// Larger files hold no certificates that anybody needs.
const LARGEST: u64 = 4 << 20;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Variables that name certificates, a registry for npm, and an index for PyPI; the first that is set counts.
const CA_VARIABLES: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];
const NPM_VARIABLES: [&str; 2] = ["npm_config_registry", "NPM_CONFIG_REGISTRY"];
const PYPI_VARIABLES: [&str; 3] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"];

/// Reads the table and the environment.
pub(super) fn registry(table: Option<Reader<'_>>, env: &dyn Environment, notes: &mut Vec<String>) -> Registry {
    let mut found = Registry::default();
    let (mut ca, mut proxy, mut except, mut npm, mut pypi) = (None, None, None, None, None);
    if let Some(mut table) = table {
        ca = table.get("ca").and_then(|field| field.parse(absolute));
        proxy = table.get("proxy");
        except = table.get("no_proxy").map(|field| field.texts(host_pattern));
        npm = table.table("npm");
        pypi = table.table("pypi");
        table.finish();
    }
    found.ca = certificates(ca, env, &mut found.lacks);
    found.proxy = Proxy { except: except.unwrap_or_else(|| no_proxy(env)), ..proxies(proxy, env, &mut found.lacks) };
    found.npm = npm_table(npm, env, notes);
    found.pypi = pypi_table(pypi, env, notes);
    found
}

fn npm_table(table: Option<Reader<'_>>, env: &dyn Environment, notes: &mut Vec<String>) -> Npm {
    let mut found = Npm::default();
    if let Some(mut table) = table {
        if let Some(scopes) = table.table("scopes") {
            for (scope, field) in scopes.entries() {
                if !is_scope(scope) {
                    field.fault("is no scope; one begins with \"@\", as in \"@acme\"");
                }
                let Some(mut entry) = field.table() else { continue };
                let index = index(&mut entry, Runner::Npx, env, notes);
                if index.is_none() {
                    entry.fault("needs the \"url\" of its registry");
                }
                entry.finish();
                found.scopes.extend(index.map(|index| (scope.to_owned(), index)));
            }
        }
        found.index = index(&mut table, Runner::Npx, env, notes);
        table.finish();
    }
    found.index = found.index.or_else(|| from_environment(&NPM_VARIABLES, Runner::Npx, "registry.npm.url", env));
    found
}

fn pypi_table(table: Option<Reader<'_>>, env: &dyn Environment, notes: &mut Vec<String>) -> Option<Index> {
    let given = table.and_then(|mut table| {
        let why = "is not taken: with two indexes, whoever publishes a private name on the public one decides what is \
                   installed; let \"url\" be one index that stands for both";
        table.refuse(&["extra"], why);
        let index = index(&mut table, Runner::Uvx, env, notes);
        table.finish();
        index
    });
    given.or_else(|| from_environment(&PYPI_VARIABLES, Runner::Uvx, "registry.pypi.url", env))
}

/// `url` with what goes with it.
fn index(table: &mut Reader<'_>, runner: Runner, env: &dyn Environment, notes: &mut Vec<String>) -> Option<Index> {
    let url = table.get("url");
    let mut lacks = None;
    // npm alone knows tokens; an index takes them as a password.
    let token = if runner == Runner::Npx { table.get("token") } else { None };
    let token = token.and_then(|field| secret(&field, env, &mut lacks));
    let user = table.get("username").and_then(|field| field.parse(user_name));
    let password = table.get("password").and_then(|field| secret(&field, env, &mut lacks));
    if user.is_some() != password.is_some() || token.is_some() && user.is_some() {
        table.fault(match runner {
            Runner::Npx => "needs \"token\" alone, or \"username\" and \"password\" together",
            Runner::Uvx => "needs \"username\" and \"password\" together",
        });
    }
    let login = match (token, user, password) {
        (Some(token), _, _) => Some(Login::Token(token)),
        (_, Some(user), Some(password)) => Some(Login::Password { user, password }),
        _ => None,
    };
    let Some(url) = url else {
        if login.is_some() {
            table.fault("has a login and no \"url\" to show it to");
        }
        return None;
    };
    let address = url.parse(|text| Address::parse(text, runner, Trust::Written))?;
    if address.is_plain() {
        let login = if login.is_some() { ", and everybody there reads the login" } else { "" };
        notes.push(format!(
            "{} is http://: whoever is on the way can say what a package is until it is locked{login}",
            url.path
        ));
    }
    Some(Index { url: address.url, login, lacks })
}

/// A secret from its source. Where it is missing, an empty one stands in, which is never used.
fn secret(field: &Field<'_>, env: &dyn Environment, lacks: &mut Option<String>) -> Option<Sensitive> {
    let source = field.parse(Source::parse)?;
    let found = source.read(env).and_then(|secret| match is_showable(secret.reveal()) {
        true => Ok(secret),
        false => Err("comes from a place that holds more than one word of ASCII, which no registry takes".to_owned()),
    });
    Some(found.unwrap_or_else(|why| {
        lacks.get_or_insert(format!("{} {why}", field.path));
        Sensitive::new("")
    }))
}

/// The first of the variables that is set, as a registry; `key` is where it could be written instead.
fn from_environment(variables: &[&str], runner: Runner, key: &str, env: &dyn Environment) -> Option<Index> {
    let (name, value) = variable(variables, env)?;
    // uv lets one name an index before its address.
    let value = value.split_once('=').filter(|(name, _)| !name.contains([':', '/'])).map_or(&*value, |(_, url)| url);
    Some(match Address::parse(value, runner, Trust::Inherited) {
        Ok(address) => Index { url: address.url, login: address.login, lacks: None },
        Err(why) => {
            let lacks = Some(format!("the variable {name} {why}; correct it, or set {key}"));
            Index { url: String::new(), login: None, lacks }
        }
    })
}

fn proxies(field: Option<Field<'_>>, env: &dyn Environment, lacks: &mut Vec<String>) -> Proxy {
    if let Some(field) = field {
        let one = match field.string() {
            None | Some("none") => None,
            Some(text) if Source::parse(text).is_ok() => {
                let mut missing = None;
                let secret = secret(&field, env, &mut missing);
                lacks.extend(missing);
                secret.filter(|secret| !secret.reveal().is_empty()).and_then(|secret| {
                    let parsed = Address::proxy(secret.reveal(), Trust::Inherited);
                    parsed.map_err(|why| lacks.push(format!("what {} leads to {why}", field.path))).ok()
                })
            }
            Some(_) => field.parse(|text| Address::proxy(text, Trust::Written)),
        };
        let one = one.map(Sensitive::new);
        return Proxy { https: one.clone(), http: one, except: Vec::new() };
    }
    let mut of = |variables: [&str; 2]| {
        let (name, value) = variable(&variables, env)?;
        let parsed = Address::proxy(&value, Trust::Inherited).map(Sensitive::new);
        let told =
            |why| lacks.push(format!("the variable {name} {why}; set registry.proxy to another, or to \"none\""));
        parsed.map_err(told).ok()
    };
    let (https, http) = (of(["https_proxy", "HTTPS_PROXY"]), of(["http_proxy", "HTTP_PROXY"]));
    Proxy { https, http, except: Vec::new() }
}

fn no_proxy(env: &dyn Environment) -> Vec<String> {
    let value = variable(&["no_proxy", "NO_PROXY"], env).map(|(_, value)| value).unwrap_or_default();
    // What makes no sense to us, as a blank, makes none to npm and uv.
    value.split(',').filter_map(|host| host_pattern(host.trim()).ok()).collect()
}

fn certificates(written: Option<String>, env: &dyn Environment, lacks: &mut Vec<String>) -> Option<String> {
    let (whose, path) = match written {
        Some(path) => ("registry.ca".to_owned(), path),
        None => variable(&CA_VARIABLES, env).map(|(name, path)| (format!("the variable {name}"), path))?,
    };
    let read = read_trusted(Path::new(&path), LARGEST).and_then(|bytes| {
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
        let found = only_certificates(&text);
        if found.is_empty() { Err("holds no certificate in PEM form".to_owned()) } else { Ok(found) }
    });
    read.map_err(|why| lacks.push(format!("{whose} names the file {path:?}, which {why}"))).ok()
}

/// The certificates of a file and nothing else of it: a key beside them is nobody's business.
fn only_certificates(text: &str) -> String {
    let blocks = text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    blocks.map(|(body, _)| format!("{BEGIN}{body}{END}\n")).collect()
}

/// The first variable of these that is set and not empty.
fn variable<'n>(names: &[&'n str], env: &dyn Environment) -> Option<(&'n str, String)> {
    names.iter().find_map(|name| env.var(name).filter(|value| !value.trim().is_empty()).map(|value| (*name, value)))
}

fn absolute(text: &str) -> Result<String, String> {
    let good = Path::new(text).is_absolute() && !text.contains(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| "must be the absolute path of a file".to_owned())
}

/// A host, `.domain`, `*.domain`, an address or network, with or without a port; or `*`.
fn host_pattern(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_*:/[]".contains(c));
    good.then(|| text.to_owned()).ok_or_else(|| format!("must be a host, a domain or a network, not {text:?}"))
}

fn user_name(text: &str) -> Result<String, String> {
    let good = is_showable(text) && !text.contains(':');
    good.then(|| text.to_owned()).ok_or_else(|| "must be one word of ASCII without \":\"".to_owned())
}

/// Whether a text can stand in a line of a request.
fn is_showable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_scope(text: &str) -> bool {
    let word = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c));
    text.strip_prefix('@').is_some_and(word)
}

#[cfg(test)]
mod tests;
