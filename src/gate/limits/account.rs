//! What one principal has used of one set of limits. Knows nothing of whose it is.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use crate::config::RateLimits;

/// A larger burst is as good as none, and this one cannot overflow the arithmetic even at one call a minute.
const MAX_BURST: u32 = 1_000_000;

/// A rate and the calls in flight.
pub(super) struct Account<C: Clock> {
    limits: RateLimits,
    rate: Rate<C>,
    spent: Spent,
    running: Arc<AtomicU32>,
    /// When it was last asked for.
    seen: C::Instant,
}

type Rate<C> = RateLimiter<NotKeyed, Spent, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The state of a rate, which can go back by one step.
#[derive(Clone, Default)]
struct Spent(Arc<Mutex<Steps>>);

#[derive(Default)]
struct Steps {
    now: Option<Nanos>,
    before: Option<Nanos>,
}

impl<C: Clock + Clone> Account<C> {
    /// A full one.
    pub(super) fn new(limits: RateLimits, clock: C, now: C::Instant) -> Self {
        let spent = Spent::default();
        let rate = RateLimiter::new(quota(limits), spent.clone(), clock);
        Account { limits, rate, spent, running: Arc::default(), seen: now }
    }

    /// Notes that it is in use; under changed limits its rate begins anew, while its calls in flight go on counting.
    pub(super) fn touch(&mut self, limits: RateLimits, clock: &C, now: C::Instant) {
        if self.limits != limits {
            let running = Arc::clone(&self.running);
            *self = Account { running, ..Account::new(limits, clock.clone(), now) };
        }
        self.seen = now;
    }

    pub(super) fn limits(&self) -> RateLimits {
        self.limits
    }

    /// Whether it can be forgotten: nothing runs, and it is full again by now.
    pub(super) fn is_idle(&self, now: C::Instant) -> bool {
        let quota = quota(self.limits);
        let refill = quota.replenish_interval() * quota.burst_size().get();
        self.running.load(Ordering::Acquire) == 0 && Duration::from(now.duration_since(self.seen)) >= refill
    }

    /// Whether as many calls run as may.
    pub(super) fn is_full(&self) -> bool {
        self.running.load(Ordering::Acquire) >= self.limits.concurrent
    }

    /// Takes one call off the rate, or says how long to wait.
    pub(super) fn spend(&self) -> Result<(), Duration> {
        self.rate.check().map_err(|refused| refused.wait_time_from(self.rate.clock().now()))
    }

    /// Undoes the last [`Account::spend`], which must have been granted.
    pub(super) fn give_back(&self) {
        let mut steps = self.spent.steps();
        steps.now = steps.before;
    }

    /// One more call in flight, until the number behind the answer is lowered again.
    pub(super) fn sit(&self) -> Arc<AtomicU32> {
        self.running.fetch_add(1, Ordering::AcqRel);
        Arc::clone(&self.running)
    }
}

impl Spent {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for Spent {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut steps = self.steps();
        let (answer, next) = measure(steps.now)?;
        *steps = Steps { now: Some(next), before: steps.now };
        Ok(answer)
    }
}

/// The whole burst at once, then one call each minute divided by the rate.
fn quota(limits: RateLimits) -> Quota {
    // Zero cannot be configured; were it to come here all the same, the least there is must not become the most.
    let at_least_one = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    Quota::per_minute(at_least_one(limits.per_minute)).allow_burst(at_least_one(limits.burst.min(MAX_BURST)))
}
