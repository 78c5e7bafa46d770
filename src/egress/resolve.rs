//! Names to addresses, by the gateway and once a connection. Knows no rules: what an answer is worth is judged after it.

use std::io;
use std::net::IpAddr;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Whoever knows the addresses of names. The real one is [`System`]; tests answer as they like.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, the preferred one first.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the host that the gateway runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) }.boxed()
    }
}
