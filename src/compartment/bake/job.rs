//! One bake with the engine: its phases, what it finds, what it leaves. Knows nothing of how files are installed.

use std::collections::HashMap;
use std::io;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::build::{self, Build};
use super::executable::Program;
use super::inputs::{Inputs, Mode, Pinned};
use super::output::{Installed, Output, Resolved};
use super::recipe::Labels;
use super::{Baked, LABEL_BAKE, LABEL_EXECUTABLE, LABEL_INPUTS, LABEL_INTEGRITY, LABEL_PACKAGE, LABEL_VERSION};
use super::{Progress, recipe};
use crate::compartment::lease::{Lease, Terms};
use crate::compartment::owner::{Owner, ROLE};
use crate::error::{Class, Fault};

/// One bake.
pub(super) struct Job<'a> {
    docker: &'a Docker,
    pub inputs: Inputs<'a>,
    /// Identity of the image that packages are baked onto.
    pub runtime: String,
    progress: Progress<'a>,
    /// Identity of this bake, on all that it leaves on the way.
    id: String,
}

impl<'a> Job<'a> {
    /// Takes the runtime by its identity, since its name could move between two builds.
    pub async fn new(
        docker: &'a Docker,
        inputs: Inputs<'a>,
        runtime: &str,
        progress: Progress<'a>,
    ) -> Result<Self, Fault> {
        let found = docker.inspect_image(runtime).await.map_err(|error| match error {
            Error::DockerResponseServerError { status_code: 404, .. } => Fault::new(
                Class::Engine,
                format!("the engine has no image \"{runtime}\", which packages are baked onto: build it first"),
            ),
            error => build::engine("cannot inspect the runtime image", &error),
        })?;
        let runtime = identity(found.id)?;
        Ok(Job { docker, inputs, runtime, progress, id: Uuid::new_v4().simple().to_string() })
    }

    /// One line of progress.
    pub fn say(&self, line: &str) {
        (self.progress)(&format!("{}: {line}", self.inputs.label()));
    }

    /// The exact version behind a tag, a range or nothing.
    pub async fn resolve(&self) -> Result<String, Fault> {
        self.say("resolving the version");
        let resolved: Resolved = self.script(Mode::Resolve, self.inputs.asked()).await?;
        Ok(resolved.version)
    }

    /// Everything that the server needs, in the passing image.
    pub async fn install(&self, pinned: &Pinned) -> Result<Installed, Fault> {
        self.say(&format!("installing {}", pinned.version));
        let mut installed: Installed = self.script(Mode::Install, &pinned.version).await?;
        installed.integrity = installed.integrity.filter(|hash| hash.bytes().all(|b| b.is_ascii_graphic()));
        if !installed.held.is_empty() {
            self.say(&format!("install scripts that did not run: {}", installed.held.join(", ")));
        }
        Ok(installed)
    }

    /// The image that stays.
    pub async fn seal(
        &self,
        pinned: &Pinned,
        installed: &Installed,
        program: &Program,
        tag: &str,
    ) -> Result<Baked, Fault> {
        self.say("sealing the image");
        let labels = HashMap::from([
            (LABEL_PACKAGE, self.inputs.label()),
            (LABEL_VERSION, installed.version.clone()),
            (LABEL_INTEGRITY, installed.integrity.clone().unwrap_or_default()),
            (LABEL_EXECUTABLE, program.name.clone()),
            (LABEL_INPUTS, pinned.hash.clone()),
        ]);
        let context = recipe::seal(&self.runtime, &self.passing(), &program.command).map_err(archive)?;
        let mut output = Output::new("");
        self.build(Build { context, tag, labels, network: Some("none"), cache: false }, &mut output).await?;
        let image = self.docker.inspect_image(tag).await;
        let image = identity(image.map_err(|e| build::engine("cannot find the image just built", &e))?.id)?;
        Ok(Baked {
            image,
            name: self.inputs.package.name.clone(),
            version: installed.version.clone(),
            integrity: installed.integrity.clone(),
            executable: program.name.clone(),
            reused: false,
        })
    }

    /// An earlier image from the same inputs; the newest, should there be several.
    pub async fn find(&self, pinned: &Pinned) -> Result<Option<Baked>, Fault> {
        let images = self.labelled(&format!("{LABEL_INPUTS}={}", pinned.hash)).await?;
        let Some(image) = images.into_iter().max_by_key(|image| image.created) else { return Ok(None) };
        self.say("already baked");
        let label = |name: &str| image.labels.get(name).filter(|value| !value.is_empty()).cloned();
        Ok(Some(Baked {
            name: self.inputs.package.name.clone(),
            version: label(LABEL_VERSION).unwrap_or_else(|| pinned.version.clone()),
            integrity: label(LABEL_INTEGRITY),
            executable: label(LABEL_EXECUTABLE).unwrap_or_default(),
            image: image.id,
            reused: true,
        }))
    }

    /// Gives an image another name.
    pub async fn name(&self, image: &str, name: &str) -> Result<(), Fault> {
        let (repo, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
        let options = TagImageOptionsBuilder::new().repo(repo).tag(tag).build();
        let named = self.docker.tag_image(image, Some(options)).await;
        named.map_err(|error| build::engine("cannot name an image", &error))
    }

    /// Removes what this bake left on the way. A failure here changes nothing about the image: what stays is found by its
    /// labels once this process has ended, as is what a bake left that was dropped or died.
    pub async fn clear(&self) {
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        for image in self.labelled(&format!("{LABEL_BAKE}={}", self.id)).await.unwrap_or_default() {
            let _ = self.docker.remove_image(&image.id, Some(force.clone()), None).await;
        }
    }

    /// A build that runs the script; its answer.
    async fn script<T: DeserializeOwned>(&self, mode: Mode, version: &str) -> Result<T, Fault> {
        let marker = Uuid::new_v4().simple().to_string();
        let instructions = self.inputs.instructions(mode, version, &marker);
        let runner = self.inputs.package.runner;
        let context = recipe::work(&self.runtime, &self.labels(), runner, &instructions).map_err(archive)?;
        let mut output = Output::new(&marker);
        let tag = &self.passing();
        // A step from the cache would not tell its answer.
        let build = Build { context, tag, labels: HashMap::new(), network: None, cache: false };
        self.build(build, &mut output).await?;
        output.answer().ok_or_else(|| Fault::new(Class::Engine, "a build ended without an answer"))
    }

    async fn build(&self, build: Build<'_>, output: &mut Output) -> Result<(), Fault> {
        let show = |line: &str| self.say(line);
        build::run(self.docker, build, output, &show).await.map_err(|fault| {
            let what = format!("cannot bake \"{}@{}\"", self.inputs.label(), self.inputs.asked());
            Fault {
                outward: format!("{what}: {}", fault.outward),
                inward: format!("{what}: {}", fault.inward),
                ..fault
            }
        })
    }

    /// Images with a label, `NAME` or `NAME=VALUE`.
    async fn labelled(&self, label: &str) -> Result<Vec<ImageSummary>, Fault> {
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let listed = self.docker.list_images(Some(options)).await;
        listed.map_err(|error| build::engine("cannot list images", &error))
    }

    /// What says whose the containers and images of the next build are, and how long they may be wanted.
    fn labels(&self) -> Labels {
        let owner = Owner::this_process(&self.id).labels(Lease::from_now(Terms::default().work));
        let own = [(LABEL_BAKE, self.id.as_str()), (ROLE, "bake")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        owner.into_iter().chain(own).collect()
    }

    /// Name of the image between installation and seal.
    fn passing(&self) -> String {
        format!("bulkhead/baking:{}", self.id)
    }
}

fn identity(id: Option<String>) -> Result<String, Fault> {
    id.ok_or_else(|| Fault::new(Class::Engine, "the engine names no identity of an image"))
}

fn archive(error: io::Error) -> Fault {
    Fault::new(Class::Bug, "cannot make a build context").with_inward(format!("cannot make a build context: {error}"))
}
