//! The engine's part: is the image there as it should be, build it, look at it, name it. Knows no folder.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ImageConfig, ImageInspect};
use bollard::query_parameters::{RemoveImageOptionsBuilder, TagImageOptionsBuilder};
use uuid::Uuid;

use crate::compartment::Engine;
use crate::compartment::bake::build::{self, Build};
use crate::compartment::bake::output::Output;
use crate::compartment::bake::{LABEL_INPUTS, Progress};
use crate::compartment::engine::{CALL, is_missing};
use crate::error::{Class, Fault};

use super::{PREFIX, Recipe};

/// Whether there was something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was built.
    Built,
    /// It was there, made of the same files on the same images.
    Current,
}

/// An image that bears its name.
#[derive(Clone, Debug)]
pub struct Built {
    /// `sha256:…`.
    pub image: String,
    /// Bytes, with the layers that it has in common with others.
    pub size: u64,
    /// What was done.
    pub state: State,
    /// What somebody who uses it should know.
    pub notes: Vec<String>,
}

/// An image that another one is built upon; `None` where the engine has to get it.
type Base = Option<ImageInspect>;

/// Builds an image, unless there is one from the same inputs. `fresh` builds in any case, and takes no step from the
/// engine's cache, so that packages are installed as they are now.
///
/// Dropping the future ends the build.
pub async fn build(engine: &Engine, recipe: &Recipe, fresh: bool, progress: Progress<'_>) -> Result<Built, Fault> {
    let docker = engine.docker().await?;
    let bases = bases(engine, &docker, recipe).await?;
    let identities: Vec<String> = bases.iter().flatten().filter_map(|base| base.id.clone()).collect();
    let inputs = recipe.inputs(&identities);
    let former = inspect(engine, &docker, &recipe.reference()).await?;
    let stands_on = bases.last().and_then(Option::as_ref);
    if let Some(found) = former.as_ref().filter(|image| !fresh && label(image) == Some(&inputs)) {
        return Ok(Built { notes: notes(found, stands_on), ..described(found, State::Current)? });
    }
    let passing = format!("{PREFIX}building:{}", Uuid::new_v4().simple());
    let made = make(engine, &docker, recipe, &passing, &inputs, fresh, progress).await;
    // It goes with its passing name, unless it has got a better one.
    let force = RemoveImageOptionsBuilder::new().force(true).build();
    let _ = engine.call("remove a name of an image", CALL, docker.remove_image(&passing, Some(force), None)).await;
    let image = made?;
    let mut built = Built { notes: notes(&image, stands_on), ..described(&image, State::Built)? };
    if former.is_some_and(|former| former.id != image.id) {
        built.notes.push(
            "a server that was approved with the former image does not start until you run: bulkhead approve"
                .to_owned(),
        );
    }
    Ok(built)
}

async fn make(
    engine: &Engine,
    docker: &Docker,
    recipe: &Recipe,
    passing: &str,
    inputs: &str,
    fresh: bool,
    progress: Progress<'_>,
) -> Result<ImageInspect, Fault> {
    let archive = |e| Fault::new(Class::Bug, "cannot make a build context").with_inward(format!("{e}"));
    let context = recipe.context().map_err(archive)?;
    let labels = HashMap::from([(LABEL_INPUTS, inputs.to_owned())]);
    let build = Build { context, tag: passing, labels, network: None, cache: !fresh };
    let mut output = Output::new("");
    let ran = build::run(docker, build, &mut output, &|line| progress(line)).await;
    ran.map_err(|fault| named(fault, &format!("cannot build {}", recipe.reference())))?;
    let image = inspect(engine, docker, passing).await?;
    let image = image.ok_or_else(|| Fault::new(Class::Engine, "the engine does not have the image it just built"))?;
    fits(&image).map_err(|fault| named(fault, &recipe.reference()))?;
    let options = TagImageOptionsBuilder::new().repo(&recipe.reference()).tag("latest").build();
    engine.call("name the image", CALL, docker.tag_image(passing, Some(options))).await?;
    Ok(image)
}

/// What the Dockerfile builds upon. Ours have to be there: another `bulkhead/…`, from wherever the engine would get it,
/// is not what is meant.
async fn bases(engine: &Engine, docker: &Docker, recipe: &Recipe) -> Result<Vec<Base>, Fault> {
    let mut found = Vec::new();
    for reference in &recipe.bases {
        let ours = reference.strip_prefix(PREFIX);
        let base = inspect(engine, docker, reference).await?;
        if let (Some(name), None) = (ours, &base) {
            let name = name.split([':', '@']).next().unwrap_or_default();
            let how = match super::OTHERS.contains(&name) {
                true => "run scripts/setup".to_owned(),
                false => format!("run: bulkhead image build {name}"),
            };
            let text = format!("{} is built upon {reference}, which is not on the engine: {how}", recipe.reference());
            return Err(Fault::new(Class::Engine, text));
        }
        // Others count by the reference that stands in the Dockerfile: the builder may yet have to pull them.
        found.push(base.filter(|_| ours.is_some()));
    }
    Ok(found)
}

async fn inspect(engine: &Engine, docker: &Docker, reference: &str) -> Result<Option<ImageInspect>, Fault> {
    let look = async {
        match docker.inspect_image(reference).await {
            Err(error) if is_missing(&error) || is_no_reference(&error) => Ok(None),
            other => other.map(Some),
        }
    };
    engine.call("look at the image", CALL, look).await
}

/// A `FROM` with what only the builder understands in it; the builder judges it.
fn is_no_reference(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 400, .. })
}

/// What no compartment would take is told now, and not when a server is to be started.
fn fits(image: &ImageInspect) -> Result<(), Fault> {
    let config = image.config.clone().unwrap_or_default();
    let volumes = config.volumes.clone().unwrap_or_default();
    if !volumes.is_empty() {
        let places = volumes.join(", ");
        let why = format!(
            "it wants a volume at {places}, and no server gets one that it was not given: take VOLUME out, and use state \
             or mounts in the configuration"
        );
        return Err(Fault::new(Class::Isolation, why));
    }
    if starts(&config).is_empty() {
        let why = "it has neither an ENTRYPOINT nor a CMD, so a server has nothing to start";
        return Err(Fault::new(Class::Isolation, why));
    }
    Ok(())
}

fn notes(image: &ImageInspect, base: Option<&ImageInspect>) -> Vec<String> {
    let config = image.config.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let user = config.user.as_deref().unwrap_or_default().split(':').next().unwrap_or_default();
    if matches!(user, "" | "0" | "root") {
        notes.push(
            "its Dockerfile ends as root; a server runs as the user of its configuration all the same".to_owned(),
        );
    }
    let inherited = base.and_then(|base| base.config.as_ref()).map(starts);
    if inherited.is_some_and(|inherited| inherited == starts(&config)) {
        let what = starts(&config).join(" ");
        notes.push(format!(
            "it starts what its base does ({what}); give the server a command, or the image an ENTRYPOINT"
        ));
    }
    notes
}

fn starts(config: &ImageConfig) -> Vec<String> {
    let (program, arguments) = (config.entrypoint.clone(), config.cmd.clone());
    program.into_iter().chain(arguments).flatten().collect()
}

fn label(image: &ImageInspect) -> Option<&String> {
    image.config.as_ref()?.labels.as_ref()?.get(LABEL_INPUTS)
}

fn described(image: &ImageInspect, state: State) -> Result<Built, Fault> {
    let id = image.id.clone().ok_or_else(|| Fault::new(Class::Engine, "the engine names no identity of an image"))?;
    let size = image.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
    Ok(Built { image: id, size, state, notes: Vec::new() })
}

fn named(fault: Fault, what: &str) -> Fault {
    Fault { outward: format!("{what}: {}", fault.outward), inward: format!("{what}: {}", fault.inward), ..fault }
}
