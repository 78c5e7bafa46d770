//! Which of the engine's processors each instance has. Pure: no engine is asked.
//!
//! A limit of processors says how much of them an instance may use, and not which: one that uses all it has runs on every
//! one of them in turn, and whoever shares one with it waits for the kernel's next tick, several times in one call. So an
//! instance is kept to as few as its limit needs, those with the least on them so far, and what goes wild on one of them
//! holds up nobody on the others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// More than any engine has; what is above is a slip of whoever wrote it.
const MOST: u32 = 1 << 16;

/// The processors of one engine, with what is on them.
#[derive(Debug)]
pub(super) struct Seats {
    loads: Arc<Mutex<Loads>>,
    /// Where the first instance goes: gateways that share an engine, each with a server or two, do not all begin with the
    /// same processor.
    first: usize,
}

/// Processors by their numbers, each with the share of it that is given away.
#[derive(Debug, Default)]
struct Loads {
    all: Vec<(u32, f64)>,
    /// Whether the numbers are the engine's own word.
    told: bool,
}

/// The processors of one instance; given back when dropped.
#[derive(Debug)]
pub struct Seat {
    processors: BTreeSet<u32>,
    share: f64,
    loads: Arc<Mutex<Loads>>,
}

impl Default for Seats {
    fn default() -> Self {
        Seats { loads: Arc::default(), first: uuid::Uuid::new_v4().as_fields().0 as usize }
    }
}

impl Seats {
    /// Takes processors for a limit of so many, of an engine that has `count`; those of `near` first.
    pub(super) fn take(&self, count: usize, cpus: f64, near: Option<&Seat>) -> Seat {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        if !loads.told && loads.all.len() != count {
            // The engine was changed under us, or is asked for the first time.
            loads.all = (0..u32::try_from(count).unwrap_or(MOST).min(MOST)).map(|number| (number, 0.0)).collect();
        }
        let many = loads.all.len().max(1);
        let wanted = (cpus.ceil().max(1.0) as usize).min(many);
        let rank = |(at, (number, load)): (usize, &(u32, f64))| {
            let far = near.is_none_or(|seat| !seat.processors.contains(number));
            (far, *load, (at + many - self.first % many) % many, *number)
        };
        let mut ranked: Vec<_> = loads.all.iter().enumerate().map(rank).collect();
        ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        let processors: BTreeSet<u32> = ranked.iter().take(wanted).map(|(_, _, _, number)| *number).collect();
        let share = cpus / wanted as f64;
        add(&mut loads, &processors, share);
        Seat { processors, share, loads: self.loads.clone() }
    }

    /// Takes note of the processors that there are, where an engine's refusal names them; whether it does. Whoever comes
    /// to hear it may not be the first: several may have asked before any was told.
    pub(super) fn learn(&self, refusal: &str) -> bool {
        let list = refusal
            .rsplit_once("available: ")
            .map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit() && !",-".contains(c)).next().unwrap_or_default());
        let told = list.and_then(parse);
        let Some(told) = told.filter(|told| !told.is_empty()) else { return false };
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut loads.all);
        let load = |number: u32| before.iter().find(|(other, _)| *other == number).map_or(0.0, |(_, load)| *load);
        loads.all = told.into_iter().map(|number| (number, load(number))).collect();
        loads.told = true;
        true
    }
}

fn add(loads: &mut Loads, processors: &BTreeSet<u32>, share: f64) {
    for (_, load) in loads.all.iter_mut().filter(|(number, _)| processors.contains(number)) {
        // Shares are of no more than hundredths; what is added and taken away again is to come to the same.
        *load = ((*load + share) * 1e6).round() / 1e6;
    }
}

impl Seat {
    /// The processors as engines and kernels list them, such as `0-1,4`.
    pub(super) fn list(&self) -> String {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &number in &self.processors {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let runs = runs.into_iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
        runs.collect::<Vec<_>>().join(",")
    }

    /// Whether a list says the same processors.
    pub(super) fn is(&self, list: &str) -> bool {
        parse(list.trim()).is_some_and(|listed| listed == self.processors)
    }

    #[cfg(test)]
    pub(super) fn of(list: &str) -> Self {
        Seat { processors: parse(list).unwrap(), share: 0.0, loads: Arc::default() }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut loads, &self.processors, -self.share);
        loads.all.iter_mut().for_each(|(_, load)| *load = load.max(0.0));
    }
}

/// The numbers of a list such as `0-1,4`.
fn parse(list: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for run in list.split(',') {
        let (from, to) = run.split_once('-').unwrap_or((run, run));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to >= MOST {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(first: usize) -> Seats {
        Seats { loads: Arc::default(), first }
    }

    #[test]
    fn each_instance_has_the_processors_with_the_least_on_them() {
        let all = seats(0);
        let one = all.take(4, 1.0, None);
        let two = all.take(4, 2.0, None);
        let half = all.take(4, 0.5, None);
        let quarter = all.take(4, 0.25, None);
        assert_eq!([&one, &two, &half, &quarter].map(Seat::list), ["0", "1-2", "3", "3"]);
        drop(one);
        assert_eq!(all.take(4, 1.0, None).list(), "0");
        assert_eq!(all.take(4, 3.5, None).list(), "0-3");
        drop((two, half, quarter));
        let left: Vec<f64> = all.loads.lock().unwrap().all.iter().map(|(_, load)| *load).collect();
        assert_eq!(left, [0.0; 4], "all of it is given back");
    }

    #[test]
    fn gateways_begin_with_different_processors_and_go_on_in_order() {
        let all = seats(6);
        let taken: Vec<Seat> = (0..4).map(|_| all.take(4, 1.0, None)).collect();
        assert_eq!(taken.iter().map(Seat::list).collect::<Vec<_>>(), ["2", "3", "0", "1"]);
    }

    #[test]
    fn a_server_is_put_where_its_guard_is() {
        let all = seats(0);
        let (_busy, guard) = (all.take(2, 1.0, None), all.take(2, 0.1, None));
        assert_eq!((guard.list().as_str(), all.take(2, 1.0, Some(&guard)).list().as_str()), ("1", "1"));
        assert_eq!(all.take(2, 2.0, Some(&guard)).list(), "0-1");
    }

    #[test]
    fn there_is_always_a_processor() {
        assert_eq!(seats(3).take(1, 0.01, None).list(), "0");
        assert_eq!(seats(3).take(2, 64.0, None).list(), "0-1");
    }

    #[test]
    fn an_engine_that_has_others_says_which() {
        let all = seats(1);
        let wrong = [all.take(2, 1.0, None), all.take(2, 1.0, None)];
        assert!(all.learn("Requested CPUs are not available - requested 1, available: 4-5,9 (400)"));
        let first = all.take(2, 1.0, None);
        assert!(all.learn("Requested CPUs are not available - requested 0, available: 4-5,9."), "who had asked, too");
        drop(wrong);
        let taken: Vec<Seat> = (0..2).map(|_| all.take(2, 1.0, None)).collect();
        let lists: Vec<String> = [&first].into_iter().chain(&taken).map(Seat::list).collect();
        assert_eq!(lists, ["5", "9", "4"], "what is taken stays so");
        for nothing in ["", "not available", "available: ", "available: x", "available: 3-1", "available: 99999999"] {
            assert!(!all.learn(nothing), "{nothing:?}");
        }
    }

    #[test]
    fn lists_are_compared_by_what_they_say() {
        let seat = Seat::of("0-2,5");
        assert_eq!(seat.list(), "0-2,5");
        assert!(seat.is("0-2,5") && seat.is("5,0,1,2") && seat.is("0-2,5\n"));
        assert!(!seat.is("0-2") && !seat.is("0-5") && !seat.is("") && !seat.is("0-2,5,x"));
    }
}
