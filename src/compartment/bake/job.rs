//! One bake with the engine: its phases, what it finds, what it leaves. Knows nothing of how files are installed.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::build::{self, Build};
use super::executable::Program;
use super::hidden::Hidden;
use super::inputs::{Inputs, Pinned, Task};
use super::output::{Installed, Output, Resolved, Why};
use super::recipe::{self, Labels};
use super::settings::Settings;
use super::tree::Tree;
use super::worker::Worker;
use super::{Baked, Progress};
use super::{LABEL_BAKE, LABEL_CONTENT, LABEL_EXECUTABLE, LABEL_INPUTS, LABEL_INTEGRITY, LABEL_PACKAGE, LABEL_VERSION};
use crate::compartment::lease::{Lease, Terms};
use crate::compartment::owner::{Owner, ROLE};
use crate::config::{Registry, Runner};
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
    settings: Settings,
    hidden: Hidden,
    /// Whether somebody is named to the registry.
    logs_in: bool,
    /// Behind a lock, for progress is told from several threads.
    worker: Mutex<Option<Worker>>,
}

/// What the image between installation and seal is named, before its tag.
const PASSING: &str = "bulkhead/baking";

impl<'a> Job<'a> {
    /// Takes the runtime by its identity, since its name could move between two builds.
    pub async fn new(
        docker: &'a Docker,
        inputs: Inputs<'a>,
        registry: &Registry,
        runtime: &str,
        progress: Progress<'a>,
    ) -> Result<Self, Fault> {
        let runner = inputs.package.runner;
        if let Some(lacks) = registry.lacks(runner) {
            return Err(Fault::new(Class::Usage, format!("cannot bake \"{}\": {lacks}", inputs.label())));
        }
        let settings = Settings::of(registry, runner);
        let found = docker.inspect_image(runtime).await.map_err(|error| match error {
            Error::DockerResponseServerError { status_code: 404, .. } => Fault::new(
                Class::Engine,
                format!("the engine has no image \"{runtime}\", which packages are baked onto: build it first"),
            ),
            error => build::engine("cannot inspect the runtime image", &error),
        })?;
        let runtime = identity(found.id)?;
        Ok(Job {
            docker,
            inputs,
            runtime,
            progress,
            id: Uuid::new_v4().simple().to_string(),
            hidden: settings.hidden(),
            settings,
            logs_in: registry.indexes(runner).any(|index| index.login.is_some()),
            worker: Mutex::new(None),
        })
    }

    /// One line of progress.
    pub fn say(&self, line: &str) {
        (self.progress)(&format!("{}: {line}", self.inputs.label()));
    }

    /// The exact version behind a tag, a range or nothing, and everything that comes with it.
    pub async fn resolve(&self) -> Result<(String, Tree), Fault> {
        self.say("resolving the version");
        let resolved: Resolved = self.script(Task::Resolve).await?;
        let tree = Tree::found(self.inputs.package.runner, resolved.tree);
        let tree = tree.map_err(|why| self.cannot(Fault::new(Class::Unavailable, why)))?;
        Ok((resolved.version, tree))
    }

    /// Everything that the server needs, in the passing image.
    pub async fn install(&self, pinned: &Pinned) -> Result<Installed, Fault> {
        self.say(&format!("installing {}", pinned.version));
        let mut installed: Installed = self.script(Task::Install(pinned)).await?;
        installed.integrity = installed.integrity.filter(|hash| hash.bytes().all(|b| b.is_ascii_graphic()));
        if !installed.held.is_empty() {
            self.say(&format!("install scripts that did not run: {}", installed.held.join(", ")));
        }
        Ok(installed)
    }

    /// Keeps what was installed for the seal, and removes the container.
    pub async fn keep(&self) -> Result<(), Fault> {
        let Some(worker) = self.worker.lock().await.take() else {
            return Err(Fault::new(Class::Bug, "nothing was installed"));
        };
        let kept = worker.commit(PASSING, &self.id).await;
        worker.end().await;
        kept.map_err(|fault| self.cannot(fault))
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
            (LABEL_CONTENT, installed.content.clone()),
            (LABEL_INPUTS, pinned.hash.clone()),
        ]);
        let archive = |error| Fault::new(Class::Bug, format!("cannot make a build context: {error}"));
        let context = recipe::seal(&self.runtime, &self.passing(), &program.command).map_err(archive)?;
        let mut output = Output::hiding("", self.hidden.clone());
        let build = Build { context, tag, labels, network: Some("none"), cache: false };
        let built = build::run(self.docker, build, &mut output, &|line| self.say(line)).await;
        built.map_err(|fault| self.cannot(fault))?;
        let image = self.docker.inspect_image(tag).await;
        let image = identity(image.map_err(|e| build::engine("cannot find the image just built", &e))?.id)?;
        Ok(Baked {
            image,
            name: self.inputs.package.name.clone(),
            version: installed.version.clone(),
            integrity: installed.integrity.clone(),
            executable: program.name.clone(),
            tree: pinned.tree.lines().to_vec(),
            content: installed.content.clone(),
            reused: false,
        })
    }

    /// An earlier image from the same inputs and with that content; the newest, should there be several.
    pub async fn find(&self, pinned: &Pinned, content: Option<&str>) -> Result<Option<Baked>, Fault> {
        let mut images = self.labelled(&format!("{LABEL_INPUTS}={}", pinned.hash)).await?;
        images.retain(|image| {
            let has = image.labels.get(LABEL_CONTENT);
            has.is_some_and(|has| content.is_none_or(|content| has == content))
        });
        let Some(image) = images.into_iter().max_by_key(|image| image.created) else { return Ok(None) };
        self.say("already baked");
        let label = |name: &str| image.labels.get(name).filter(|value| !value.is_empty()).cloned();
        Ok(Some(Baked {
            name: self.inputs.package.name.clone(),
            version: label(LABEL_VERSION).unwrap_or_else(|| pinned.version.clone()),
            integrity: label(LABEL_INTEGRITY),
            executable: label(LABEL_EXECUTABLE).unwrap_or_default(),
            tree: pinned.tree.lines().to_vec(),
            content: label(LABEL_CONTENT).unwrap_or_default(),
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
    pub async fn clear(self) {
        if let Some(worker) = self.worker.lock().await.take() {
            worker.end().await;
        }
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        for image in self.labelled(&format!("{LABEL_BAKE}={}", self.id)).await.unwrap_or_default() {
            let _ = self.docker.remove_image(&image.id, Some(force.clone()), None).await;
        }
    }

    /// Has the script carry out a task; its answer.
    async fn script<T: DeserializeOwned>(&self, task: Task<'_>) -> Result<T, Fault> {
        let marker = Uuid::new_v4().simple().to_string();
        let order = self.inputs.order(task, &self.settings, &marker).to_string();
        let mut output = Output::hiding(&marker, self.hidden.clone());
        let mut place = self.worker.lock().await;
        if place.is_none() {
            *place = Some(self.started().await.map_err(|fault| self.cannot(fault))?);
        }
        let Some(worker) = place.as_mut() else { return Err(Fault::new(Class::Bug, "there is no container")) };
        let asked = worker.ask(&order, &mut output, &|line| self.say(line)).await;
        drop(place);
        asked.map_err(|fault| self.cannot(fault))?;
        if output.tells_a_secret() {
            let text = "the registry puts the login that it was shown into what it tells of packages";
            return Err(self.cannot(Fault::new(Class::Unavailable, text)));
        }
        output.answer().ok_or_else(|| self.cannot(self.refused(&output)))
    }

    async fn started(&self) -> Result<Worker, Fault> {
        let name = format!("bulkhead-bake-{:.12}", self.id);
        Worker::start(self.docker, &name, &self.runtime, self.inputs.package.runner, self.labels()).await
    }

    /// What the script gave up for, with what can be done about it.
    fn refused(&self, output: &Output) -> Fault {
        let reason = output.reason().unwrap_or_else(|| "the script gave no answer that makes sense".to_owned());
        let (table, keys) = match self.inputs.package.runner {
            Runner::Npx => ("registry.npm", "\"token\""),
            Runner::Uvx => ("registry.pypi", "\"username\" and \"password\""),
        };
        let advice = match (output.why(), self.logs_in) {
            (Some(Why::Login), false) => format!("; the registry asks who is there: set {keys} in [{table}]"),
            (Some(Why::Login), true) => format!("; the registry does not take the login in [{table}]: correct it"),
            (Some(Why::Bytes), _) => {
                "; nothing was made of them: find out which are right before locking anew".to_owned()
            }
            (None, _) => String::new(),
        };
        let text = format!("{reason}{advice}");
        let tail = output.tail().join("\n  ");
        Fault::new(Class::Unavailable, text.clone()).with_inward(format!("{text}; it ended with\n  {tail}"))
    }

    /// The fault of this bake, by name.
    pub fn cannot(&self, fault: Fault) -> Fault {
        let what = format!("cannot bake \"{}@{}\"", self.inputs.label(), self.inputs.asked());
        Fault { outward: format!("{what}: {}", fault.outward), inward: format!("{what}: {}", fault.inward), ..fault }
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
        format!("{PASSING}:{}", self.id)
    }
}

fn identity(id: Option<String>) -> Result<String, Fault> {
    id.ok_or_else(|| Fault::new(Class::Engine, "the engine names no identity of an image"))
}
