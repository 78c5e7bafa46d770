//! `bulkhead image build`: images of their own for servers, from folders that ship or lie beside the configuration.

use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::app::{Options, configuration, shown};
use crate::compartment::Engine;
use crate::compartment::dedicated::{self, Built, Recipe, Source, State};
use crate::config::env::{self, Environment, engine_candidates};
use crate::config::{Config, Run};
use crate::error::{Exit, Fault};

use super::print;
use super::progress::{Bar, Bars};

/// Images built at the same time: most of it is waiting for downloads.
const AT_ONCE: usize = 3;

/// What `bulkhead image` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Build images from images/NAME beside the configuration, or from what ships
    Build(BuildArguments),
}

#[derive(Debug, clap::Args)]
struct BuildArguments {
    /// These, instead of all that the configuration's servers use
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Build even what is current, with packages as they are now
    #[arg(long)]
    fresh: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An image, for people and for scripts.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    reference: String,
    /// `built`, `current` or `failed`; nothing where it was only listed.
    state: Option<&'static str>,
    image: Option<String>,
    size: Option<u64>,
    /// Where its Dockerfile is: `shipped`, or the folder.
    from: String,
    notes: Vec<String>,
    error: Option<String>,
}

/// Builds images. Those that fail leave the others done, and the exit code says that something failed.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let Action::Build(arguments) = arguments.action;
    let config = env::config_path(options.config.as_deref(), env);
    let images = dedicated::beside(&config);
    let mut names = arguments.names;
    if names.is_empty() {
        let exists = options.config.is_some() || config.symlink_metadata().is_ok();
        let used = if exists { used(&configuration(&options, env)?) } else { Vec::new() };
        if used.is_empty() {
            let why = if exists { "no server of the configuration uses one" } else { "there is no configuration" };
            tracing::info!("{why}, so these are the images that can be built by name");
            list(&dedicated::known(&images), arguments.json);
            return Ok(Exit::Fine);
        }
        names = used;
    }
    names.sort();
    names.dedup();
    // All are looked for before the first is built: a wrong name is told at once.
    let recipes = names.iter().map(|name| dedicated::find(name, &images)).collect::<Result<Vec<_>, _>>()?;
    let engine = Engine::new(engine_candidates(env));
    let outcomes = build(&engine, recipes, arguments.fresh).await;
    let failure = outcomes.iter().find_map(|(_, outcome)| outcome.as_ref().err()).map(|fault| fault.class.exit());
    show(outcomes.into_iter().map(row).collect(), arguments.json);
    Ok(failure.unwrap_or(Exit::Fine))
}

/// The names that a configuration uses.
fn used(config: &Config) -> Vec<String> {
    let images = dedicated::beside(&config.path);
    let references = config.servers.iter().filter_map(|server| match &server.run {
        Run::Image { reference, .. } => dedicated::named_by(reference, &images),
        _ => None,
    });
    references.map(str::to_owned).collect()
}

async fn build(engine: &Engine, recipes: Vec<Recipe>, fresh: bool) -> Vec<(Recipe, Result<Built, Fault>)> {
    let bars = Bars::start();
    let jobs = recipes.into_iter().map(|recipe| {
        let bar = bars.add(&recipe.name);
        async move {
            let outcome = one(engine, &recipe, fresh, &bar).await;
            (recipe, outcome)
        }
    });
    let outcomes = stream::iter(jobs.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await;
    bars.clear();
    outcomes
}

async fn one(engine: &Engine, recipe: &Recipe, fresh: bool, bar: &Bar) -> Result<Built, Fault> {
    if let Source::Own { at, overrides: true } = &recipe.source {
        tracing::info!("{}: {} overrides the one that ships", recipe.name, shown(at));
    }
    bar.say("building");
    let outcome = dedicated::build(engine, recipe, fresh, &|line| bar.say(line)).await;
    bar.done(match &outcome {
        Ok(Built { state: State::Built, .. }) => "built".to_owned(),
        Ok(Built { state: State::Current, .. }) => "current".to_owned(),
        Err(fault) => format!("failed: {}", fault.outward),
    });
    outcome
}

fn row((recipe, outcome): (Recipe, Result<Built, Fault>)) -> Row {
    let row = Row { reference: recipe.reference(), ..listed(recipe.name, &recipe.source) };
    match outcome {
        Ok(built) => {
            let state = if built.state == State::Built { "built" } else { "current" };
            Row { state: Some(state), image: Some(built.image), size: Some(built.size), notes: built.notes, ..row }
        }
        Err(fault) => {
            for line in fault.inward.lines() {
                tracing::error!("{line}");
            }
            Row { state: Some("failed"), error: Some(fault.outward), ..row }
        }
    }
}

fn listed(name: String, source: &Source) -> Row {
    let from = match source {
        Source::Shipped => "shipped".to_owned(),
        Source::Own { at, .. } => shown(at),
    };
    let reference = format!("{}{name}", dedicated::PREFIX);
    Row { name, reference, state: None, image: None, size: None, from, notes: Vec::new(), error: None }
}

fn list(known: &[(String, Source)], json: bool) {
    show(known.iter().map(|(name, source)| listed(name.clone(), source)).collect(), json);
}

fn show(rows: Vec<Row>, json: bool) {
    if json {
        print::line(&serde_json::json!({ "images": rows }).to_string());
        return;
    }
    let mut table = print::table(&["IMAGE", "STATE", "ID", "SIZE", "FROM"]);
    for row in &rows {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            row.reference.clone(),
            or_dash(row.state.map(str::to_owned)),
            or_dash(row.image.as_ref().map(|id| format!("{id:.19}"))),
            or_dash(row.size.map(|bytes| format!("{} MB", bytes.div_ceil(1_000_000)))),
            row.from.clone(),
        ]);
    }
    print::line(&table.trim_fmt());
    for (row, note) in rows.iter().flat_map(|row| row.notes.iter().map(move |note| (row, note))) {
        print::line(&format!("{}: {note}", row.reference));
    }
}
