//! `bulkhead serve`: the endpoint, until the client closes its end or a signal comes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::app::control::Control;
use crate::app::{App, Options};
use crate::client::outbox::outbox;
use crate::client::stdio;
use crate::config::Start;
use crate::config::env::Environment;
use crate::error::{Exit, Fault};
use crate::flow::conversation::Conversation;

/// How long calls in flight may take to end once the client or a signal ends us.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves one client over standard input and output.
pub async fn run(options: Options, env: &dyn Environment) -> Result<Exit, Fault> {
    let app = Arc::new(App::open(&options, env).await?);
    let control = Control::open(&app);
    if let Err(error) = &control {
        tracing::warn!("this gateway will not show in `bulkhead status`: {error}");
    }
    let caller = app.caller("stdio");
    if app.gateway.config.gateway.start == Start::Eager {
        app.gateway.start_all(&caller);
    }
    let (out, pickup) = outbox();
    let conversation = Conversation::new(app.gateway.clone(), caller, out);
    let (gone, client_gone) = oneshot::channel::<()>();
    let writer = tokio::spawn(async move {
        let written = stdio::write(tokio::io::stdout(), pickup).await;
        drop(gone);
        written
    });
    let reading = stdio::read(tokio::io::stdin(), async |line| conversation.line(line).await);
    let why = tokio::select! {
        read = reading => match read {
            Ok(()) => "the client closed its end",
            Err(_) => "the client's end cannot be read",
        },
        _ = client_gone => "the client does not read any more",
        signal = signal() => signal,
    };
    tracing::info!("stopping: {why}");
    conversation.drain(DRAIN).await;
    drop(conversation);
    // The writer ends by itself once every sender is gone; a client that does not read must not hold us up.
    let _ = tokio::time::timeout(Duration::from_secs(1), writer).await;
    drop(control);
    app.close().await?;
    Ok(Exit::Fine)
}

#[cfg(unix)]
async fn signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int), Ok(mut hup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = term.recv() => return "SIGTERM",
            _ = int.recv() => return "SIGINT",
            _ = hup.recv() => tracing::warn!("SIGHUP: a reload is not yet supported; the configuration stays as it is"),
        }
    }
}

#[cfg(not(unix))]
async fn signal() -> &'static str {
    match tokio::signal::ctrl_c().await {
        Ok(()) => "Ctrl-C",
        Err(_) => std::future::pending().await,
    }
}
