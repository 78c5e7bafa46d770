//! Tests of the limits under simulated time.

use governor::clock::FakeRelativeClock;
use proptest::prelude::*;

use super::*;
use crate::gate::fixture::{principal, server};
use crate::name::Role;

const MINUTE: Duration = Duration::from_secs(60);

struct Bench {
    clock: FakeRelativeClock,
    limiter: Limiter<FakeRelativeClock>,
}

fn rate(per_minute: u32, burst: u32, concurrent: u32) -> RateLimits {
    RateLimits { per_minute, burst, concurrent }
}

fn bench(user: RateLimits) -> Bench {
    let clock = FakeRelativeClock::default();
    let limits = Limits { guest: rate(10, 1, 1), user, admin: rate(1000, 1000, 1000) };
    Bench { limiter: Limiter::with_clock(limits, clock.clone()), clock }
}

impl Bench {
    /// A call that ends at once.
    fn call(&self, who: &str, server: &Server) -> Result<(), Limited> {
        self.limiter.admit(&principal(who, Role::User), server).map(drop)
    }

    fn calls(&self, n: usize, who: &str, server: &Server) -> usize {
        (0..n).filter(|_| self.call(who, server).is_ok()).count()
    }
}

fn limited_server(name: &str, limits: RateLimits) -> Server {
    Server { limits: Some(limits), ..server(name) }
}

#[test]
fn the_burst_comes_at_once_and_then_the_rate() {
    let b = bench(rate(120, 20, 16));
    let s = server("s1");
    assert_eq!(b.calls(100, "a", &s), 20);
    let refused = b.call("a", &s).unwrap_err();
    assert_eq!((refused.which, refused.retry_after), (Which::Rate(120), Duration::from_millis(500)));
    b.clock.advance(refused.retry_after);
    assert_eq!(b.calls(100, "a", &s), 1);
    b.clock.advance(MINUTE);
    assert_eq!(b.calls(100, "a", &s), 20, "rest does not save up more than the burst");
}

#[test]
fn principals_do_not_share_an_account_and_guests_do() {
    let b = bench(rate(60, 2, 16));
    let s = server("s1");
    assert_eq!((b.calls(5, "a", &s), b.calls(5, "b", &s)), (2, 2));
    let nobody = Principal { id: None, role: Role::Guest };
    assert!(b.limiter.admit(&nobody, &s).is_ok());
    assert!(b.limiter.admit(&nobody, &s).is_err());
    assert!(b.limiter.admit(&principal("guest", Role::Guest), &s).is_ok(), "a person who is called guest");
}

#[test]
fn a_servers_refusal_costs_nothing_of_the_general_rate() {
    let b = bench(rate(60, 10, 16));
    let (tight, free) = (limited_server("tight", rate(60, 2, 16)), server("free"));
    assert_eq!(b.calls(50, "a", &tight), 2);
    assert_eq!(b.calls(50, "a", &free), 8);
    let refused = b.call("a", &tight).unwrap_err();
    assert_eq!(refused.server, None, "the general rate is asked first");
}

#[test]
fn a_general_refusal_costs_nothing_of_the_servers_rate() {
    let b = bench(rate(60, 1, 16));
    let tight = limited_server("tight", rate(1, 2, 16));
    assert_eq!(b.calls(50, "a", &tight), 1);
    b.clock.advance(Duration::from_secs(1));
    assert_eq!(b.calls(50, "a", &tight), 1, "its second burst call is still there");
    b.clock.advance(Duration::from_secs(1));
    assert_eq!(b.call("a", &tight).unwrap_err().server, Some(tight.name.clone()));
}

#[test]
fn calls_at_the_same_time_are_capped_by_live_permits() {
    let b = bench(rate(600, 100, 2));
    let (s, p) = (server("s1"), principal("a", Role::User));
    let first = b.limiter.admit(&p, &s).unwrap();
    let _second = b.limiter.admit(&p, &s).unwrap();
    assert_eq!(b.limiter.admit(&p, &s).unwrap_err().which, Which::Concurrent(2));
    drop(first);
    let _third = b.limiter.admit(&p, &s).unwrap();
    assert!(b.limiter.admit(&p, &s).is_err());
    assert!(b.limiter.admit(&principal("b", Role::User), &s).is_ok());
}

#[test]
fn a_server_can_cap_calls_below_the_general_number() {
    let b = bench(rate(600, 100, 10));
    let (s, p) = (limited_server("s1", rate(600, 100, 1)), principal("a", Role::User));
    let _running = b.limiter.admit(&p, &s).unwrap();
    let refused = b.limiter.admit(&p, &s).unwrap_err();
    assert_eq!((refused.which, refused.server), (Which::Concurrent(1), Some(s.name.clone())));
    assert!(b.limiter.admit(&p, &server("s2")).is_ok());
}

#[test]
fn the_text_says_who_is_limited_how_and_when_to_come_back() {
    let b = bench(rate(20, 1, 16));
    let s = server("s1");
    b.call("alice", &s).unwrap();
    let fault = Fault::from(b.call("alice", &s).unwrap_err());
    assert_eq!(fault.class, Class::RateLimited);
    assert_eq!(fault.outward, r#"rate limit of "alice": at most 20/min; try again in 3 s"#);
    let b = bench(rate(20, 9, 1));
    let s = limited_server("time", rate(1, 1, 1));
    let permit = b.limiter.admit(&principal("bob", Role::User), &s).unwrap();
    let text = b.call("bob", &s).unwrap_err().to_string();
    assert_eq!(text, r#"limit of "bob": at most 1 calls at the same time; try again in 1 s"#);
    drop(permit);
    let text = b.call("bob", &s).unwrap_err().to_string();
    assert_eq!(text, r#"rate limit of "bob" on server "time": at most 1/min; try again in 60 s"#);
}

#[test]
fn accounts_are_bounded_idle_ones_make_room_and_newcomers_wait() {
    let b = bench(rate(60, 5, 16));
    let s = server("s1");
    for n in 0..MAX_ACCOUNTS {
        b.call(&n.to_string(), &s).unwrap();
    }
    assert_eq!(b.call("new", &s).unwrap_err().which, Which::Accounts);
    assert_eq!(b.calls(9, "0", &s), 4, "who is known goes on, and keeps what was spent");
    b.clock.advance(Duration::from_secs(5));
    assert!(b.call("new", &s).is_ok());
    assert_eq!(b.limiter.books().accounts.len(), 1);
}

#[test]
fn an_account_with_a_call_in_flight_is_never_forgotten() {
    let b = bench(rate(60, 5, 1));
    let s = server("s1");
    let _running = b.limiter.admit(&principal("busy", Role::User), &s).unwrap();
    b.clock.advance(MINUTE);
    for n in 0..MAX_ACCOUNTS {
        let _ = b.call(&n.to_string(), &s);
    }
    assert_eq!(b.call("busy", &s).unwrap_err().which, Which::Concurrent(1));
}

#[test]
fn changed_limits_hold_at_once_and_calls_in_flight_go_on_counting() {
    let b = bench(rate(60, 3, 2));
    let (s, p) = (server("s1"), principal("a", Role::User));
    let running = b.limiter.admit(&p, &s).unwrap();
    b.limiter.reload(Limits { guest: rate(10, 1, 1), user: rate(60, 2, 1), admin: rate(1000, 1000, 1000) });
    assert_eq!(b.call("a", &s).unwrap_err().which, Which::Concurrent(1));
    drop(running);
    assert_eq!(b.calls(9, "a", &s), 2);
}

#[test]
fn limits_that_are_not_changed_keep_what_was_spent() {
    let b = bench(rate(60, 3, 9));
    let (s, tight) = (server("s1"), limited_server("tight", rate(60, 2, 9)));
    assert_eq!((b.calls(9, "a", &tight), b.calls(9, "a", &s)), (2, 1));
    for n in 1..=3 {
        b.limiter.reload(Limits { guest: rate(n, n, n), user: rate(60, 3, 9), admin: rate(n, n, n) });
        assert!(b.call("a", &s).is_err() && b.call("a", &tight).is_err(), "a reload fills no bucket");
    }
}

#[test]
fn extreme_numbers_neither_panic_nor_open() {
    for limits in [rate(0, 0, 0), rate(1, u32::MAX, 1), rate(u32::MAX, u32::MAX, u32::MAX), rate(0, 5, 5)] {
        let b = bench(limits);
        let admitted = b.calls(10, "a", &server("s1"));
        assert_eq!(admitted == 0, limits.concurrent == 0, "{limits:?}");
        b.clock.advance(Duration::from_secs(60 * 60 * 24 * 365));
        assert!(b.calls(10, "a", &server("s1")) <= 10);
    }
}

proptest! {
    /// Over any stretch of time no more is admitted than the burst and what the rate earns.
    #[test]
    fn no_stretch_of_time_admits_more_than_burst_and_rate(
        per_minute in 1u32..600, burst in 1u32..20, pauses in prop::collection::vec(0u64..3_000, 1..200),
    ) {
        let b = bench(rate(per_minute, burst, 9));
        let s = server("s1");
        let (mut now, mut admitted) = (0, Vec::new());
        for pause in pauses {
            b.clock.advance(Duration::from_millis(pause));
            now += pause;
            if b.call("a", &s).is_ok() {
                admitted.push(now);
            }
        }
        for from in 0..admitted.len() {
            for to in from..admitted.len() {
                let earned = (admitted[to] - admitted[from]) as f64 * f64::from(per_minute) / 60_000.0;
                prop_assert!((to - from + 1) as f64 <= f64::from(burst) + earned + 0.001);
            }
        }
    }

    /// Who waits as told is admitted.
    #[test]
    fn the_time_to_wait_is_enough_and_not_too_much(per_minute in 1u32..10_000, burst in 1u32..50) {
        let b = bench(rate(per_minute, burst, 9));
        let s = server("s1");
        while b.call("a", &s).is_ok() {}
        let wait = b.call("a", &s).unwrap_err().retry_after;
        b.clock.advance(wait - Duration::from_nanos(1));
        prop_assert!(b.call("a", &s).is_err());
        b.clock.advance(Duration::from_nanos(1));
        prop_assert!(b.call("a", &s).is_ok());
    }

    /// Refused calls leave no trace: a bench that saw only the admitted ones refuses the same calls.
    #[test]
    fn refused_calls_change_nothing(steps in prop::collection::vec((0u64..2_000, 0usize..3), 1..60)) {
        let servers = [limited_server("x", rate(30, 2, 9)), limited_server("y", rate(90, 4, 9)), server("z")];
        let real = bench(rate(60, 5, 9));
        let mut history = Vec::new();
        for (pause, which) in steps {
            real.clock.advance(Duration::from_millis(pause));
            let admitted = real.call("a", &servers[which]).is_ok();
            history.push((pause, admitted.then_some(which)));
            if !admitted {
                let replay = bench(rate(60, 5, 9));
                for (pause, call) in &history {
                    replay.clock.advance(Duration::from_millis(*pause));
                    prop_assert!(call.is_none_or(|which| replay.call("a", &servers[which]).is_ok()));
                }
                prop_assert!(replay.call("a", &servers[which]).is_err());
            }
        }
    }
}
