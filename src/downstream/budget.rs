//! What all instances together may take. Knows no server.

use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{Resources, Total};
use crate::error::{Class, Fault};

/// The totals and what is taken of them.
#[derive(Debug)]
pub struct Budget {
    total: Total,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    memory: u64,
    cpus: f64,
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
        Arc::new(Budget { total, taken: Mutex::default() })
    }

    /// Takes a share, or says which total it would go over.
    pub fn take(self: &Arc<Self>, resources: Resources) -> Result<Share, Fault> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let over = if taken.instances + 1 > self.total.instances {
            Some(format!("limits.total.instances = {}", self.total.instances))
        } else if taken.memory + resources.memory > self.total.memory {
            Some(format!("limits.total.memory = {} MiB", self.total.memory >> 20))
        } else if taken.cpus + resources.cpus > self.total.cpus + f64::EPSILON {
            Some(format!("limits.total.cpus = {}", self.total.cpus))
        } else {
            None
        };
        if let Some(over) = over {
            return Err(Fault::new(Class::Unavailable, format!("no room for another instance: {over} is used up")));
        }
        taken.instances += 1;
        taken.memory += resources.memory;
        taken.cpus += resources.cpus;
        Ok(Share { budget: self.clone(), resources })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.budget.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.instances -= 1;
        taken.memory -= self.resources.memory;
        taken.cpus -= self.resources.cpus;
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
}
