//! What a server wrote, line by line: answers go to whoever waits, noise is counted, and only real requests are answered.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::protocol::{code, meta};
use crate::wire::envelope::find_id;
use crate::wire::line::HEAD;
use crate::wire::text::mend_surrogates;
use crate::wire::{Defect, Envelope, Id, Kind, Line, Object, reply};

use super::{Answer, Peer};

/// How long a caller that takes no notices may hold up what else its server says.
const STUCK: Duration = Duration::from_secs(2);

impl Peer {
    /// Takes in a line; whether it was an answer that somebody waited for.
    pub(super) async fn receive(&self, line: Line) -> bool {
        match line {
            Line::Whole(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let mended = mend_surrogates(&text);
                if mended.len() != bytes.len() || mended.as_bytes() != bytes {
                    self.counters.mended.fetch_add(1, Relaxed);
                }
                self.message(&mended).await
            }
            Line::TooLong { head, tail, length } => {
                self.too_long(&head, &tail, length);
                false
            }
        }
    }

    /// What came after the last line end. A message may lack its own; half of one is no answer, and whoever waits for it
    /// is to learn that the server ended.
    pub(super) async fn receive_last(&self, line: Line) {
        let whole =
            matches!(&line, Line::Whole(bytes) if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok());
        match whole {
            true => drop(self.receive(line).await),
            false => drop(self.counters.noise.fetch_add(1, Relaxed)),
        }
    }

    async fn message(&self, text: &str) -> bool {
        let envelope = match Envelope::parse(text) {
            Ok(envelope) => envelope,
            Err(defect) => {
                self.defective(text, &defect);
                return false;
            }
        };
        match envelope.kind {
            Kind::Result { id, result } => return self.answer(&id, Answer::Result(result.get().to_owned())),
            Kind::Error { id: Some(id), error } => return self.answer(&id, Answer::Error(error.get().to_owned())),
            Kind::Error { id: None, .. } => self.stray(),
            Kind::Request { id, method, .. } => self.request(&id, &method),
            Kind::Notification { method, params } => match method.as_ref() {
                "notifications/progress" => self.progress(params.map(|p| p.get())).await,
                "notifications/tools/list_changed"
                | "notifications/prompts/list_changed"
                | "notifications/resources/list_changed" => self.changed.notify_one(),
                _ => self.stray(),
            },
        }
        false
    }

    /// A line that is no message is noise, unless it is under the id of a request: then that one must not wait for ever.
    fn defective(&self, text: &str, defect: &Defect) {
        let (id, why) = match defect {
            Defect::NotMessage { id, why } => (id.clone(), *why),
            Defect::NotJson if text.trim_start().starts_with('{') => {
                let ends = |n: usize| &text.as_bytes()[..n.min(text.len())];
                (find_id(ends(HEAD), b""), "its answer is no JSON")
            }
            Defect::NotJson => (None, ""),
        };
        match id.filter(|id| number(id.json()).is_some_and(|n| self.waiting.contains_key(&n))) {
            Some(id) => drop(self.answer(&id, Answer::Malformed(why))),
            None => drop(self.counters.noise.fetch_add(1, Relaxed)),
        }
    }

    /// Whether somebody waited for it.
    fn answer(&self, id: &Id, answer: Answer) -> bool {
        // The sender is gone where the caller withdrew in this very moment.
        match number(id.json()).and_then(|n| self.waiting.remove(&n)) {
            Some((_, waiting)) => waiting.answer.send(answer).is_ok(),
            None => {
                self.stray();
                false
            }
        }
    }

    /// Passed on at the pace of whoever waits for it. A caller that takes nothing any more loses notices rather than keep
    /// the others of the same instance from their answers.
    async fn progress(&self, params: Option<&str>) {
        let waiting = params.and_then(|text| {
            let token = Object::parse(text).ok()?.get(meta::PROGRESS_TOKEN)?.get().to_owned();
            // Nothing of the table may be held while we wait.
            let waiting = self.waiting.get(&number(&token)?)?;
            Some((waiting.progress.clone(), waiting.stuck.clone(), text.to_owned()))
        });
        let Some((progress, stuck, text)) = waiting else { return self.stray() };
        let sent = match stuck.load(Relaxed) {
            true => progress.try_send(text).is_ok(),
            false => progress.send_timeout(text, STUCK).await.is_ok(),
        };
        stuck.store(!sent, Relaxed);
        if !sent {
            self.stray();
        }
    }

    /// We declare no capability to servers, so a ping is all they may ask.
    fn request(&self, id: &Id, method: &str) {
        let line = match method {
            "ping" => reply::result(id, "{}"),
            _ => reply::error(Some(id), code::METHOD_NOT_FOUND, "not offered by this client", None),
        };
        let _ = self.out.try_send(line);
    }

    fn too_long(&self, head: &[u8], tail: &[u8], length: usize) {
        let found = find_id(head, tail).and_then(|id| number(id.json()));
        // Where the id is out of sight, a single open request is the one it must have been for.
        let only = || match self.waiting.len() {
            1 => self.waiting.iter().next().map(|w| *w.key()),
            _ => None,
        };
        match found.or_else(only) {
            Some(n) => drop(self.answer(&Id::from(n), Answer::TooLarge(length))),
            None => drop(self.counters.noise.fetch_add(1, Relaxed)),
        }
    }

    fn stray(&self) {
        self.counters.stray.fetch_add(1, Relaxed);
    }
}

/// One of our ids; some servers send a number back as a string.
fn number(json: &str) -> Option<u64> {
    json.trim_matches('"').parse().ok()
}
