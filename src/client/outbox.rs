//! Lines on their way to a client, bounded in bytes: whoever sends waits in turn while the client does not read. So a
//! server that floods one call with notices neither fills our memory nor keeps another call's answer for long.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes that may wait. A longer line is alone in the queue.
const ROOM: u32 = 4 << 20;

/// What a line takes at least, since a short one is kept in more than its bytes.
const LEAST: u32 = 64;

/// Where lines for the client are put.
#[derive(Clone, Debug)]
pub struct Outbox {
    lines: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
}

/// Where they are taken out again.
#[derive(Debug)]
pub struct Pickup {
    lines: mpsc::UnboundedReceiver<Queued>,
}

/// A line with the room that it takes until it is dropped.
#[derive(Debug)]
pub struct Queued {
    /// Without its line end.
    pub line: String,
    _room: OwnedSemaphorePermit,
}

/// An empty queue.
pub fn outbox() -> (Outbox, Pickup) {
    let (lines, taken) = mpsc::unbounded_channel();
    (Outbox { lines, room: Arc::new(Semaphore::new(ROOM as usize)) }, Pickup { lines: taken })
}

impl Outbox {
    /// Puts a line into the queue once there is room for it; first come, first served. Lost where the client is gone.
    pub async fn send(&self, line: String) {
        let size = u32::try_from(line.len()).unwrap_or(ROOM).clamp(LEAST, ROOM);
        // Nobody closes the semaphore.
        if let Ok(room) = self.room.clone().acquire_many_owned(size).await {
            let _ = self.lines.send(Queued { line, _room: room });
        }
    }

    /// Waits until everybody who is waiting for room by now has got it.
    pub async fn room(&self) {
        drop(self.room.acquire().await);
    }
}

impl Pickup {
    /// Takes at most so many lines, waiting for the first; none where nobody can send any more.
    pub async fn take(&mut self, batch: &mut Vec<Queued>, most: usize) -> usize {
        self.lines.recv_many(batch, most).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn waits(sent: &mut tokio::task::JoinHandle<()>) -> bool {
        tokio::time::timeout(Duration::from_millis(50), sent).await.is_err()
    }

    #[tokio::test]
    async fn who_sends_waits_while_nothing_is_taken_and_in_turn() {
        let (out, mut pickup) = outbox();
        out.send("x".repeat(ROOM as usize)).await;
        let send = |line: &'static str| {
            let out = out.clone();
            tokio::spawn(async move { out.send(line.to_owned()).await })
        };
        let mut first = send("1");
        assert!(waits(&mut first).await);
        let mut second = send("2");
        assert!(waits(&mut second).await);
        let mut batch = Vec::new();
        assert_eq!(pickup.take(&mut batch, 9).await, 1);
        // What was taken still takes its room, until it is written.
        assert!(waits(&mut first).await);
        batch.clear();
        first.await.unwrap();
        second.await.unwrap();
        out.room().await;
        pickup.take(&mut batch, 9).await;
        assert_eq!(batch.iter().map(|q| q.line.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    }

    #[tokio::test]
    async fn short_lines_do_not_gather_without_end_and_a_huge_one_passes() {
        let (out, mut pickup) = outbox();
        let many = ROOM / LEAST;
        for _ in 0..many {
            out.send(String::new()).await;
        }
        let huge = out.clone();
        let mut next = tokio::spawn(async move { huge.send("y".repeat(2 * ROOM as usize)).await });
        assert!(waits(&mut next).await);
        let mut batch = Vec::new();
        while pickup.take(&mut batch, 64).await > 0 {
            if batch.pop().is_some_and(|last| last.line.len() > ROOM as usize) {
                break;
            }
            batch.clear();
        }
        next.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_is_gone_keeps_nobody_waiting() {
        let (out, pickup) = outbox();
        out.send("x".repeat(ROOM as usize)).await;
        drop(pickup);
        tokio::time::timeout(Duration::from_secs(5), out.send("late".into())).await.unwrap();
    }
}
