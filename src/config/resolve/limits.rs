//! `[limits]`: rates by role, and totals over all instances. Knows nothing of how they are enforced.

use crate::config::quantity;
use crate::config::reader::{Field, Reader};
use crate::config::{Limits, RateLimits, Total};
use crate::name::Role;

use super::gateway::{role, set};

/// For everyone, unless the file says otherwise.
const BASE: RateLimits = RateLimits { per_minute: 120, burst: 20, concurrent: 16 };

/// For guests, unless the file says otherwise; never more than everyone has.
const GUEST: RateLimits = RateLimits { per_minute: 10, burst: 5, concurrent: 2 };

/// Room for sixteen servers with the default of one processor; memory and instances in proportion.
const TOTAL: Total = Total { memory: 16 << 30, cpus: 16.0, instances: 64 };

/// The least memory in which a container can live at all.
pub(super) const LEAST_MEMORY: u64 = 6 << 20;

/// The least share of a processor that engines accept.
pub(super) const LEAST_CPUS: f64 = 0.01;

/// `[limits]` with everything derived from it.
pub(super) struct LimitsTable {
    /// What servers and roles take where they say nothing.
    pub(super) base: RateLimits,
    pub(super) roles: Limits,
    pub(super) total: Total,
}

/// `[limits]`.
pub(super) fn limits(table: Option<Reader<'_>>) -> LimitsTable {
    let Some(mut table) = table else { return derived(BASE, [None; 3], TOTAL) };
    let base = rates(&mut table, BASE);
    let mut roles = [None; 3];
    if let Some(given) = table.table("role") {
        for (name, field) in given.entries() {
            match role(name) {
                Ok(role) => roles[role as usize] = rate_table(&field, default_of(role, base)),
                Err(why) => field.fault(why),
            }
        }
    }
    let total = table.table("total").map_or(TOTAL, total);
    table.finish();
    derived(base, roles, total)
}

/// A table of rates, where what is missing comes from elsewhere.
pub(super) fn rate_table(field: &Field<'_>, default: RateLimits) -> Option<RateLimits> {
    let mut table = field.table()?;
    let rates = rates(&mut table, default);
    table.finish();
    Some(rates)
}

fn rates(table: &mut Reader<'_>, mut rates: RateLimits) -> RateLimits {
    const MOST: i64 = 1_000_000;
    set(&mut rates.per_minute, table.get("rate").and_then(|f| f.parse(quantity::rate)));
    set(&mut rates.burst, table.get("burst").and_then(|f| f.integer(1, MOST)));
    set(&mut rates.concurrent, table.get("concurrent").and_then(|f| f.integer(1, MOST)));
    rates
}

fn total(mut table: Reader<'_>) -> Total {
    let mut total = TOTAL;
    set(&mut total.memory, table.get("memory").and_then(|f| f.parse(memory)));
    set(&mut total.cpus, table.get("cpus").and_then(|f| f.number(LEAST_CPUS, 4096.0)));
    set(&mut total.instances, table.get("instances").and_then(|f| f.integer(1, 10_000)));
    table.finish();
    total
}

/// A size in which a container can live.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    let bytes = quantity::size(text)?;
    if bytes < LEAST_MEMORY { Err(format!("must be at least \"6m\", not {text:?}")) } else { Ok(bytes) }
}

fn default_of(role: Role, base: RateLimits) -> RateLimits {
    match role {
        Role::Guest => RateLimits {
            per_minute: GUEST.per_minute.min(base.per_minute),
            burst: GUEST.burst.min(base.burst),
            concurrent: GUEST.concurrent.min(base.concurrent),
        },
        Role::User | Role::Admin => base,
    }
}

fn derived(base: RateLimits, roles: [Option<RateLimits>; 3], total: Total) -> LimitsTable {
    let of = |role: Role| roles[role as usize].unwrap_or_else(|| default_of(role, base));
    let roles = Limits { guest: of(Role::Guest), user: of(Role::User), admin: of(Role::Admin) };
    LimitsTable { base, roles, total }
}
