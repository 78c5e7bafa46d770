//! What the process is told by signals. Knows nothing of what is done then.

#[cfg(unix)]
pub(super) use unix::{Hangups, end};

#[cfg(not(unix))]
pub(super) use other::{Hangups, end};

#[cfg(unix)]
mod unix {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// SIGHUP, which ends nothing once it is listened to. None where it cannot be.
    pub struct Hangups(Option<Signal>);

    impl Hangups {
        /// From now on.
        pub fn listen() -> Self {
            Hangups(signal(SignalKind::hangup()).ok())
        }

        /// Waits for one, or several at once.
        pub async fn next(&mut self) {
            let heard = match &mut self.0 {
                Some(signal) => signal.recv().await,
                None => None,
            };
            if heard.is_none() {
                std::future::pending().await
            }
        }
    }

    /// Waits for a signal that ends the process, and names it.
    pub async fn end() -> &'static str {
        let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
mod other {
    /// There are none on this system.
    pub struct Hangups;

    impl Hangups {
        /// There is nothing to listen to.
        pub fn listen() -> Self {
            Hangups
        }

        /// Never.
        pub async fn next(&mut self) {
            std::future::pending().await
        }
    }

    /// Waits for what ends the process, and names it.
    pub async fn end() -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}
