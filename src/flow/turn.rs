//! Order: calls of one conversation reach a server in the order in which the client sent them, although each is carried
//! by a task of its own. Knows no call.

use std::collections::HashMap;
use std::hash::Hash;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Queues kept before the empty ones are looked for.
const MANY: usize = 256;

/// A place in a queue. Dropping it, however that comes, lets the next one pass.
#[derive(Debug)]
pub struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _after: oneshot::Sender<()>,
}

impl Turn {
    /// Waits until everybody who came before has sent, or has given up.
    pub async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // The sender is only ever dropped.
            let _ = before.await;
        }
    }
}

/// The ends of all queues.
#[derive(Debug)]
pub struct Turns<K>(HashMap<K, oneshot::Receiver<()>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Turns(HashMap::new())
    }
}

impl<K: Hash + Eq> Turns<K> {
    /// The next place in a queue.
    pub fn next(&mut self, queue: K) -> Turn {
        if self.0.len() >= MANY {
            // Queues that nobody stands in any more; names come from the client, and there is no end of them.
            self.0.retain(|_, end| matches!(end.try_recv(), Err(TryRecvError::Empty)));
        }
        let (after, end) = oneshot::channel();
        Turn { before: self.0.insert(queue, end), _after: after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_passes_before_those_who_came_first() {
        let mut turns = Turns::default();
        let (mut first, mut second, mut other) = (turns.next(1), turns.next(1), turns.next(2));
        first.come().await;
        other.come().await;
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), second.come()).await;
        assert!(waits.is_err());
        let mut third = turns.next(1);
        // The second gives up while it waits, and the first has sent.
        drop((second, first));
        third.come().await;
    }
}
