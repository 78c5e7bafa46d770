//! A container from the request that makes it: whatever becomes of who asked for it, it does not stay. Knows no server.

use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerCreateResponse};
use bollard::query_parameters::CreateContainerOptions;
use tokio::task::JoinHandle;

use crate::downstream::attached::Attached;
use crate::downstream::link::Ending;

/// How long a removal is waited for; it goes on by itself after that.
const UNDO: Duration = Duration::from_secs(5);

/// A container that is being made, or is made. Dropped, it is removed by a task of its own: also when the engine answers
/// only after nobody waits for it any more.
pub(super) struct Made {
    docker: Docker,
    name: String,
    /// The request is a task of its own, for the engine carries it out whether we stay to hear its answer or not.
    asked: Option<JoinHandle<Result<ContainerCreateResponse, Error>>>,
    made: Option<Attached>,
}

impl Made {
    /// Asks for a container.
    pub(super) fn ask(docker: &Docker, name: String, body: ContainerCreateBody) -> Self {
        let asking = docker.clone();
        let options = CreateContainerOptions { name: Some(name.clone()), ..Default::default() };
        let asked = tokio::spawn(async move { asking.create_container(Some(options), body).await });
        Made { docker: docker.clone(), name, asked: Some(asked), made: None }
    }

    /// The engine's answer, once.
    pub(super) async fn answer(&mut self) -> Result<ContainerCreateResponse, Error> {
        let lost = |why: String| Error::IOError { err: std::io::Error::other(why) };
        let Some(asked) = self.asked.as_mut() else { return Err(lost("the answer was taken before".to_owned())) };
        let answer = asked.await.unwrap_or_else(|error| Err(lost(error.to_string())));
        self.asked = None;
        self.made = made(&self.docker, &self.name, &answer);
        answer
    }

    /// Hands over the container, if it was made.
    pub(super) fn keep(mut self) -> Option<Attached> {
        self.made.take()
    }

    /// Kills and removes it, if it was made. What takes too long goes on by itself.
    pub(super) async fn undo(mut self) -> Ending {
        let Some(made) = self.made.take() else { return Ending::default() };
        tokio::time::timeout(UNDO, made.kill()).await.unwrap_or_default()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let (Some(asked), Ok(runtime)) = (self.asked.take(), tokio::runtime::Handle::try_current()) else { return };
        let (docker, name) = (self.docker.clone(), std::mem::take(&mut self.name));
        runtime.spawn(async move {
            let Ok(answer) = asked.await else { return };
            if let Some(made) = made(&docker, &name, &answer) {
                made.kill().await;
            }
        });
    }
}

/// What there may be to remove after an answer.
fn made(docker: &Docker, name: &str, answer: &Result<ContainerCreateResponse, Error>) -> Option<Attached> {
    let known_as = match answer {
        Ok(answer) => &answer.id,
        Err(Error::DockerResponseServerError { .. }) => return None,
        // The connection is lost, and the container may have been made before that.
        Err(_) => name,
    };
    Some(Attached::new(docker.clone(), known_as.to_owned()))
}
