//! Whether a principal may call now: rates and calls at the same time, on a monotonic clock. Knows nothing of roles'
//! rights and of what is called.
//!
//! A call is charged to up to two accounts: the principal's own, by its role, and the principal's with that server where
//! the server has limits. Both are asked before either is charged, calls in flight first: a refused call costs nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, MonotonicClock};

use self::account::Account;
use crate::config::{Config, Limits, RateLimits, Server};
use crate::error::{Class, Fault};
use crate::name::{Principal, ServerName};

mod account;

/// Accounts kept at most. Idle ones are forgotten when room is needed; while all are in use, newcomers are refused.
const MAX_ACCOUNTS: usize = 16_384;

/// When to try again after a refusal that no clock ends.
const SOON: Duration = Duration::from_secs(1);

/// The accounts of all principals.
pub struct Limiter<C: Clock = MonotonicClock> {
    clock: C,
    books: Mutex<Books<C>>,
}

struct Books<C: Clock> {
    limits: Limits,
    accounts: HashMap<Owner, Account<C>>,
}

/// Whose account it is.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Owner {
    principal: Principal,
    /// `None` for the principal's own over all servers.
    server: Option<ServerName>,
}

/// An admitted call; dropping it ends the call for the limits on calls at the same time.
#[derive(Debug)]
#[must_use = "a call counts as running only for as long as its permit lives"]
pub struct Permit {
    seats: Vec<Arc<AtomicU32>>,
}

/// A call that was not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Who asked.
    pub principal: String,
    /// The server whose own limit it was; `None` for the principal's general one.
    pub server: Option<ServerName>,
    /// Which limit it was.
    pub which: Which,
    /// When it may be tried again: exact for a rate, a guess for the others.
    pub retry_after: Duration,
}

/// Which limit refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The rate: this many calls a minute.
    Rate(u32),
    /// This many calls are running.
    Concurrent(u32),
    /// The gateway keeps no more accounts.
    Accounts,
}

impl Limiter {
    /// Empty accounts under the limits of the configuration.
    pub fn new(config: &Config) -> Self {
        Limiter::with_clock(config.limits, MonotonicClock)
    }
}

impl<C: Clock + Clone> Limiter<C> {
    /// The same on another clock.
    pub fn with_clock(limits: Limits, clock: C) -> Self {
        Limiter { clock, books: Mutex::new(Books { limits, accounts: HashMap::new() }) }
    }

    /// Takes on other limits. Calls in flight go on counting; a rate starts anew only where it was changed.
    pub fn reload(&self, limits: Limits) {
        self.books().limits = limits;
    }

    /// Admits one call of `principal` to `server` now, or says which limit stands against it.
    pub fn admit(&self, principal: &Principal, server: &Server) -> Result<Permit, Limited> {
        let mut books = self.books();
        let own = Owner { principal: principal.clone(), server: None };
        let mut claims = vec![(own, books.limits.of(principal.role))];
        if let Some(limits) = server.limits {
            claims.push((Owner { principal: principal.clone(), server: Some(server.name.clone()) }, limits));
        }
        for (owner, limits) in &claims {
            books.ensure(owner, *limits, &self.clock)?;
        }
        let accounts: Vec<_> = claims.iter().map(|(owner, _)| (owner, &books.accounts[owner])).collect();
        charge(&accounts)
    }

    fn books(&self) -> MutexGuard<'_, Books<C>> {
        // A panic elsewhere leaves the books as they were: to go on counting is right, to stop would open or shut all.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock + Clone> Books<C> {
    /// Makes sure that `owner` has an account under `limits`.
    fn ensure(&mut self, owner: &Owner, limits: RateLimits, clock: &C) -> Result<(), Limited> {
        let now = clock.now();
        if let Some(account) = self.accounts.get_mut(owner) {
            account.touch(limits, clock, now);
            return Ok(());
        }
        if self.accounts.len() >= MAX_ACCOUNTS {
            self.accounts.retain(|_, account| !account.is_idle(now));
        }
        if self.accounts.len() >= MAX_ACCOUNTS {
            return Err(owner.limited(Which::Accounts, SOON));
        }
        self.accounts.insert(owner.clone(), Account::new(limits, clock.clone(), now));
        Ok(())
    }
}

/// Charges all of `accounts` or none: first the calls in flight, which cost nothing to ask, then the rates in order,
/// giving back what was taken when a later one refuses.
fn charge<C: Clock + Clone>(accounts: &[(&Owner, &Account<C>)]) -> Result<Permit, Limited> {
    for (owner, account) in accounts {
        if account.is_full() {
            return Err(owner.limited(Which::Concurrent(account.limits().concurrent), SOON));
        }
    }
    for (taken, (owner, account)) in accounts.iter().enumerate() {
        if let Err(wait) = account.spend() {
            accounts[..taken].iter().for_each(|(_, earlier)| earlier.give_back());
            return Err(owner.limited(Which::Rate(account.limits().per_minute), wait));
        }
    }
    Ok(Permit { seats: accounts.iter().map(|(_, account)| account.sit()).collect() })
}

impl Owner {
    fn limited(&self, which: Which, retry_after: Duration) -> Limited {
        let principal = self.principal.key().to_owned();
        Limited { principal, server: self.server.clone(), which, retry_after }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for seat in &self.seats {
            seat.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = &self.principal;
        let whose = match &self.server {
            Some(server) => format!("{who:?} on server \"{server}\""),
            None => format!("{who:?}"),
        };
        match self.which {
            Which::Rate(rate) => write!(f, "rate limit of {whose}: at most {rate}/min")?,
            Which::Concurrent(most) => write!(f, "limit of {whose}: at most {most} calls at the same time")?,
            Which::Accounts => write!(f, "too many callers at the same time to serve {whose}")?,
        }
        // Rounded up: who comes back when told to must not be refused again.
        write!(f, "; try again in {} s", self.retry_after.as_millis().div_ceil(1000).max(1))
    }
}

impl From<Limited> for Fault {
    fn from(limited: Limited) -> Fault {
        Fault::new(Class::RateLimited, limited.to_string())
    }
}

#[cfg(test)]
mod tests;
