//! Removes one thing, and sees that it is gone, also where another gateway is at it. Decides nothing.

use std::future::Future;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::{RemoveContainerOptions, RemoveImageOptions, RemoveVolumeOptions};

use crate::error::{Class, Fault};

use super::super::Engine;
use super::super::engine::{CALL, Refused, is_missing};
use super::verdict::{Item, Kind};

/// How long another gateway's removal is left alone before it is asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// What became of it.
pub(super) enum Gone {
    /// Nothing is left of it.
    Yes,
    /// Something else needs it.
    InUse,
}

pub(super) async fn remove(engine: &Engine, item: &Item) -> Result<Gone, Fault> {
    let docker = engine.docker().await?;
    let id = item.id.as_str();
    match item.kind {
        Kind::Container => container(engine, id).await,
        Kind::Network => once(engine, item.kind, docker.remove_network(id)).await,
        Kind::Volume => once(engine, item.kind, docker.remove_volume(id, None::<RemoveVolumeOptions>)).await,
        Kind::Image => {
            // By force, for it may have a name; one that a container needs is kept by the engine all the same.
            let options = RemoveImageOptions { force: true, ..Default::default() };
            once(engine, item.kind, docker.remove_image(id, Some(options), None)).await
        }
    }
}

/// Running or not; a removal that another has begun is waited for.
async fn container(engine: &Engine, id: &str) -> Result<Gone, Fault> {
    let docker = engine.docker().await?;
    let removal = async {
        loop {
            let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
            match docker.remove_container(id, Some(options)).await {
                Err(error) if is_missing(&error) => return Ok(()),
                Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                    tokio::time::sleep(AGAIN).await;
                }
                other => return other,
            }
        }
    };
    engine.call("remove a container", CALL, removal).await.map(|()| Gone::Yes)
}

/// An engine says of what is in use that it is in conflict, and of a network that it is forbidden.
pub(super) async fn once<T>(
    engine: &Engine,
    kind: Kind,
    removal: impl Future<Output = Result<T, Error>>,
) -> Result<Gone, Fault> {
    match engine.ask(&format!("remove a {kind}"), CALL, removal).await? {
        Ok(_) | Err(Refused { status: 404, .. }) => Ok(Gone::Yes),
        Err(Refused { status: 403 | 409, .. }) => Ok(Gone::InUse),
        Err(why) => {
            let text = format!("the container engine failed to remove a {kind}");
            Err(Fault::new(Class::Engine, text.clone()).with_inward(format!("{text}: {}", why.message)))
        }
    }
}
