//! `bulkhead serve`: the endpoint, until the client closes its end or a signal comes. SIGHUP reloads the configuration, and so
//! does a change of it on disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::app::control::Control;
use crate::app::reload::Reloader;
use crate::app::{App, Options};
use crate::client::outbox::outbox;
use crate::client::stdio;
use crate::config::Start;
use crate::config::env::Environment;
use crate::error::{Exit, Fault};
use crate::flow::conversation::Conversation;

mod signals;

use signals::Hangups;

/// How long calls in flight may take to end once the client or a signal ends us.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a reload that is under way then may take.
const LAST_RELOAD: Duration = Duration::from_secs(1);

/// Serves one client over standard input and output.
pub async fn run(options: Options, env: Arc<dyn Environment + Send + Sync>) -> Result<Exit, Fault> {
    // First of all: whoever starts us may tell us to reload at any moment, and must not end us by it.
    let hangups = Hangups::listen();
    let (app, pins) = App::pinning(&options, &*env).await?;
    let app = Arc::new(app);
    let control = Control::open(&app);
    if let Err(error) = &control {
        tracing::warn!("this gateway will not show in `bulkhead status`: {error}");
    }
    let caller = app.caller("stdio");
    if app.config().gateway.start == Start::Eager {
        app.gateway.start_some(&caller, |_| true);
    }
    let stopping = CancellationToken::new();
    let reloader = Reloader::new((app.clone(), pins), options, env, caller.clone());
    let mut reloading = tokio::spawn(reloads(reloader, hangups, stopping.clone()));
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
        signal = signals::end() => signal,
    };
    tracing::info!("stopping: {why}");
    stopping.cancel();
    conversation.drain(DRAIN).await;
    drop(conversation);
    // The writer ends by itself once every sender is gone; a client that does not read must not hold us up.
    let _ = tokio::time::timeout(Duration::from_secs(1), writer).await;
    if tokio::time::timeout(LAST_RELOAD, &mut reloading).await.is_err() {
        reloading.abort();
    }
    drop(control);
    app.close().await?;
    Ok(Exit::Fine)
}

/// Reloads with each hangup, and with each change on disk, until the gateway stops. However many come while one is under way are one after it.
async fn reloads(reloader: Reloader, mut hangups: Hangups, stopping: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = hangups.next() => reloader.reload().await,
            () = reloader.changed() => reloader.reload().await,
        }
    }
}
