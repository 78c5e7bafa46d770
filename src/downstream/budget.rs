//! What all instances together may take. Knows no server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::compartment::spec::nano;
use crate::config::{Resources, Total};
use crate::error::{Class, Fault};

/// The totals and what is taken of them.
#[derive(Debug)]
pub struct Budget {
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug)]
struct Taken {
    total: Total,
    memory: u64,
    /// In billionths: shares that are added and taken away again must come to the same.
    nano_cpus: i64,
    instances: usize,
}

/// A share of the totals, given back when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    resources: Resources,
}

impl Budget {
    /// Nothing taken yet.
    pub fn new(total: Total) -> Arc<Self> {
        Arc::new(Budget {
            taken: Mutex::new(Taken { total, memory: 0, nano_cpus: 0, instances: 0 }),
            freed: Notify::new(),
        })
    }

    /// Sets other totals. Where more than these is taken, it stays so until it is given back.
    pub fn set(&self, total: Total) {
        self.taken().total = total;
        self.freed.notify_waiters();
    }

    /// Resolves when a share is given back, or the totals are others, from now on.
    pub fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a share, or says which total it would go over.
    pub fn take(self: &Arc<Self>, resources: Resources) -> Result<Share, Fault> {
        let mut taken = self.taken();
        let total = taken.total;
        let over = if taken.instances + 1 > total.instances {
            Some(format!("limits.total.instances = {}", total.instances))
        } else if taken.memory + resources.memory > total.memory {
            Some(format!("limits.total.memory = {} MiB", total.memory >> 20))
        } else if taken.nano_cpus + nano(resources.cpus) > nano(total.cpus) {
            Some(format!("limits.total.cpus = {}", total.cpus))
        } else {
            None
        };
        if let Some(over) = over {
            return Err(Fault::new(Class::Unavailable, format!("no room for another instance: {over} is used up")));
        }
        taken.instances += 1;
        taken.memory += resources.memory;
        taken.nano_cpus += nano(resources.cpus);
        Ok(Share { budget: self.clone(), resources })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        {
            let mut taken = self.budget.taken();
            taken.instances -= 1;
            taken.memory -= self.resources.memory;
            taken.nano_cpus -= nano(self.resources.cpus);
        }
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_total_is_named_when_it_is_used_up_and_shares_come_back() {
        let one = Resources { memory: 100, cpus: 1.0, pids: 1 };
        let refused = |total| {
            let budget = Budget::new(total);
            let share = budget.take(one).unwrap();
            let fault = budget.take(one).unwrap_err().outward;
            drop(share);
            budget.take(one).unwrap();
            fault
        };
        assert!(refused(Total { memory: 1000, cpus: 9.0, instances: 1 }).contains("total.instances"));
        assert!(refused(Total { memory: 150, cpus: 9.0, instances: 9 }).contains("total.memory"));
        assert!(refused(Total { memory: 1000, cpus: 1.5, instances: 9 }).contains("total.cpus"));
    }

    #[tokio::test]
    async fn who_waits_hears_of_what_is_given_back_and_other_totals_hold_for_who_comes() {
        let one = Resources { memory: 100, cpus: 1.0, pids: 1 };
        let total = |instances| Total { memory: 1000, cpus: 9.0, instances };
        let budget = Budget::new(total(2));
        let shares = [budget.take(one).unwrap(), budget.take(one).unwrap()];
        let heard = budget.freed();
        budget.set(total(1));
        heard.await;
        let heard = budget.freed();
        drop(shares);
        heard.await;
        let _share = budget.take(one).unwrap();
        assert!(budget.take(one).unwrap_err().outward.contains("total.instances = 1"));
    }

    #[test]
    fn shares_of_processors_come_back_whole_and_fill_the_total() {
        let of = |cpus| Resources { memory: 1, cpus, pids: 1 };
        let budget = Budget::new(Total { memory: 1 << 40, cpus: 2.0, instances: 99 });
        let tenths: Vec<_> = (0..20).map(|_| budget.take(of(0.1)).unwrap()).collect();
        assert!(budget.take(of(0.01)).is_err());
        drop(tenths);
        let [a, b, c] = [0.1, 1.2, 0.4].map(|cpus| budget.take(of(cpus)).unwrap());
        drop((c, b, a));
        budget.take(of(2.0)).unwrap();
    }
}
