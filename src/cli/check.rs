//! `bulkhead check`: configuration, engine, images and audit in plain words; what is wrong and how to mend it.

use serde::Serialize;

use crate::app::{Options, configuration, lock_path, shown};
use crate::audit::{Audit, query};
use crate::compartment::dedicated;
use crate::compartment::engine::Description;
use crate::compartment::{self, Engine, Owner};
use crate::config::env::{self, Environment, engine_candidates};
use crate::config::{Config, Run, Server, Sync};
use crate::error::{Exit, Fault};
use crate::route::lock::Lock;

use super::print;

/// What `bulkhead check` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    fine: bool,
    says: String,
    /// What to do, where something is wrong.
    mend: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Finding {
    fn fine(what: impl Into<String>, says: impl Into<String>) -> Self {
        Finding { what: what.into(), fine: true, says: says.into(), mend: None, exit: Exit::Fine }
    }

    fn wrong(what: impl Into<String>, says: impl Into<String>, mend: impl Into<String>, exit: Exit) -> Self {
        Finding { what: what.into(), fine: false, says: says.into(), mend: Some(mend.into()), exit }
    }
}

/// Looks at everything, prints what was found, and exits with the code of the first thing that is wrong.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let mut findings = Vec::new();
    let config = match configuration(&options, env) {
        Ok(config) => {
            findings.push(Finding::fine(
                "configuration",
                format!("{}, {} servers", shown(&config.path), config.servers.len()),
            ));
            Some(config)
        }
        Err(fault) => {
            findings.push(Finding::wrong("configuration", fault.inward, "correct the places named", Exit::Usage));
            None
        }
    };
    let engine = Engine::new(engine_candidates(env));
    let answers = look_at_engine(&engine, &mut findings).await;
    if answers {
        look_at_images(&engine, &mut findings).await;
    }
    if let Some(config) = &config {
        look_at_servers(&engine, answers, config, &mut findings).await;
        let audit = env::state_dir(options.state.as_deref(), env).join(&config.audit.path);
        findings.push(look_at_audit(&audit));
    }
    if answers {
        look_for_leftovers(&engine, &mut findings).await;
    }
    show(&findings, arguments.json, print::colours(env));
    Ok(findings.iter().find(|f| !f.fine).map_or(Exit::Fine, |f| f.exit))
}

async fn look_at_engine(engine: &Engine, findings: &mut Vec<Finding>) -> bool {
    let found = match engine.describe().await {
        Ok(found) => found,
        Err(fault) => {
            let mend = "start Docker, Colima or Podman's socket, or run scripts/setup where Debian is at hand";
            findings.push(Finding::wrong("engine", fault.inward, mend, Exit::Isolation));
            return false;
        }
    };
    let Description { version, info } = found;
    let word = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    let cgroup = info.cgroup_version.map_or_else(|| "?".to_owned(), |v| v.to_string());
    let says = format!(
        "version {}, API {}, {}, control groups v{cgroup}",
        word(version.version),
        word(version.api_version),
        word(info.operating_system),
    );
    findings.push(Finding::fine("engine", says));
    let security = info.security_options.unwrap_or_default();
    findings.push(if security.iter().any(|o| o.contains("name=seccomp") && !o.contains("unconfined")) {
        Finding::fine("seccomp", "the engine filters system calls by its default profile")
    } else {
        Finding::wrong(
            "seccomp",
            "the engine does not filter system calls",
            "use an engine built with seccomp",
            Exit::Isolation,
        )
    });
    let lacking: Vec<&str> = [
        (info.memory_limit, "memory"),
        (info.swap_limit, "swap"),
        (info.pids_limit, "pids"),
        (info.cpu_cfs_quota, "cpu"),
    ]
    .into_iter()
    .filter_map(|(has, name)| (has == Some(false)).then_some(name))
    .collect();
    findings.push(if lacking.is_empty() {
        Finding::fine("limits", "memory, swap, pids and cpu can be limited")
    } else {
        let says = format!("the kernel cannot limit {}", lacking.join(", "));
        Finding::wrong(
            "limits",
            says,
            "enable these control groups at boot (cgroup_enable, swapaccount)",
            Exit::Isolation,
        )
    });
    true
}

async fn look_at_images(engine: &Engine, findings: &mut Vec<Finding>) {
    for name in ["bulkhead/probe", "bulkhead/runtime"] {
        findings.push(match engine.image(name).await {
            Ok(image) => Finding::fine(format!("image {name}"), format!("{:.19}", image.id)),
            Err(fault) => Finding::wrong(format!("image {name}"), fault.inward, "run scripts/setup", Exit::Isolation),
        });
    }
}

async fn look_at_servers(engine: &Engine, answers: bool, config: &Config, findings: &mut Vec<Finding>) {
    let path = lock_path(config);
    let lock = match Lock::read(&path) {
        Ok(lock) => lock.unwrap_or_default(),
        Err(fault) => {
            findings.push(Finding::wrong("lock", fault.inward, "run: bulkhead lock", Exit::Usage));
            return;
        }
    };
    for server in &config.servers {
        let name = server.name.as_str();
        let what = format!("server {name}");
        if let Some(why) = &server.disabled {
            findings.push(Finding::wrong(what, format!("disabled: {why}"), "give what is missing", Exit::Usage));
            continue;
        }
        let locked = lock.servers.get(name);
        let current = locked.filter(|l| l.config == server.digest);
        let reference = match &server.run {
            Run::Unisolated { reason, .. } => {
                findings.push(Finding::fine(what, format!("runs on the host, unisolated: {}", reason.as_str())));
                continue;
            }
            Run::Package(_) if current.is_none() => {
                let says =
                    if locked.is_some() { "its configuration has changed since it was locked" } else { "not locked" };
                findings.push(Finding::wrong(what, says, format!("run: bulkhead lock {name}"), Exit::Unavailable));
                continue;
            }
            Run::Image { reference, .. } => current.and_then(|l| l.image.as_ref()).unwrap_or(reference),
            Run::Package(_) | Run::Remote { .. } => match current.and_then(|l| l.image.as_ref()) {
                Some(image) => image,
                None => continue,
            },
        };
        if answers {
            findings.push(match engine.image(reference).await {
                Ok(image) => Finding::fine(what, format!("image {:.19}", image.id)),
                Err(fault) => Finding::wrong(what, fault.inward, how_to_get(server, config), Exit::Isolation),
            });
        }
    }
}

/// How a server's image comes to be on the engine.
fn how_to_get(server: &Server, config: &Config) -> String {
    let images = dedicated::beside(&config.path);
    let name = match &server.run {
        Run::Image { reference, .. } => dedicated::named_by(reference, &images),
        _ => None,
    };
    let get = name.map_or("build or pull it".to_owned(), |name| format!("run: bulkhead image build {name}"));
    format!("{get}, then: bulkhead lock {}", server.name)
}

fn look_at_audit(path: &std::path::Path) -> Finding {
    if !path.exists() {
        return Finding::fine("audit", format!("{} does not exist yet", shown(path)));
    }
    // A file that reads well may still be one that nothing is written to.
    if let Err(fault) = Audit::open(path, Sync::Batch, "check".to_owned(), Vec::new()) {
        let mend = "mend what is named: until then every call is refused";
        return Finding::wrong("audit", fault.inward, mend, Exit::Audit);
    }
    match query::verify(path) {
        Ok(found) => match found.first_bad_line {
            None => Finding::fine("audit", format!("{}, {} records, the chain is whole", shown(path), found.records)),
            Some((line, why)) => {
                let says = format!("{}:{line}: {why}", shown(path));
                Finding::wrong("audit", says, "keep the file as evidence and set audit.path to a new one", Exit::Audit)
            }
        },
        Err(fault) => Finding::wrong("audit", fault.inward, "make the file readable for its owner", Exit::Audit),
    }
}

async fn look_for_leftovers(engine: &Engine, findings: &mut Vec<Finding>) {
    let me = Owner::this_process("check");
    if let Ok(found) = compartment::leftovers(engine, &me).await {
        findings.push(if found.is_empty() {
            Finding::fine("leftovers", "none")
        } else {
            let says = format!("{} of gateways that are gone", compartment::reap::counted(&found));
            Finding::wrong("leftovers", says, "run: bulkhead reap", Exit::Isolation)
        });
    }
}

fn show(findings: &[Finding], json: bool, colours: bool) {
    if json {
        print::line(&serde_json::json!({ "findings": findings }).to_string());
        return;
    }
    for finding in findings {
        let (mark, colour) = if finding.fine { ("ok", 32) } else { ("WRONG", 31) };
        let mark = if colours { format!("\u{1b}[{colour}m{mark:<5}\u{1b}[0m") } else { format!("{mark:<5}") };
        print::line(&format!("{mark}  {}: {}", finding.what, finding.says));
        if let Some(mend) = &finding.mend {
            print::line(&format!("       {mend}"));
        }
    }
}
