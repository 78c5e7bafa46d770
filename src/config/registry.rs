//! Where packages come from when they are baked, and what is shown there: addresses, logins, certificates, proxies.
//! Knows no package and no engine.

use std::collections::BTreeMap;

use super::{Runner, Sensitive};

/// `[registry]`, with the usual variables of the environment where the table says nothing.
///
/// Only baking needs it, so what is lacking here is told by a bake and keeps no gateway from serving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Certificates to trust beside those of the runtime image, as PEM, and nothing but certificates.
    pub ca: Option<String>,
    /// Ways out of the network.
    pub proxy: Proxy,
    /// The registry of `npx:` packages.
    pub npm: Npm,
    /// The index of `uvx:` packages, the only one that is asked; none is PyPI.
    pub pypi: Option<Index>,
    /// What is missing or refused, in words, that concerns every bake.
    pub lacks: Vec<String>,
}

/// The proxies of a bake; they may hold a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// For `https://`.
    pub https: Option<Sensitive>,
    /// For `http://`.
    pub http: Option<Sensitive>,
    /// Hosts that are reached without them.
    pub except: Vec<String>,
}

/// `[registry.npm]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Npm {
    /// For every package that no scope claims; none is npm's own.
    pub index: Option<Index>,
    /// For the packages of a scope, `@acme`, and for those alone.
    pub scopes: BTreeMap<String, Index>,
}

/// One registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its address, without a login.
    pub url: String,
    /// Who asks.
    pub login: Option<Login>,
    /// What keeps it from being asked, in words: a variable that is not set, an address that is refused.
    pub lacks: Option<String>,
}

/// How a registry is shown who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// By a token.
    Token(Sensitive),
    /// By a name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: Sensitive,
    },
}

impl Registry {
    /// What keeps packages of that runner from being baked, in words.
    pub fn lacks(&self, runner: Runner) -> Option<&str> {
        let all = self.lacks.iter().map(String::as_str);
        all.chain(self.indexes(runner).filter_map(|index| index.lacks.as_deref())).next()
    }

    /// Every registry that packages of that runner may be asked of.
    pub fn indexes(&self, runner: Runner) -> impl Iterator<Item = &Index> {
        let (npm, pypi) = match runner {
            Runner::Npx => (Some(&self.npm), None),
            Runner::Uvx => (None, self.pypi.as_ref()),
        };
        npm.into_iter().flat_map(|npm| npm.index.iter().chain(npm.scopes.values())).chain(pypi)
    }
}
