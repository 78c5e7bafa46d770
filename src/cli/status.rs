//! `bulkhead status`: running gateways, their servers and instances, and the evidence for each.

use comfy_table::{Cell, Color};
use serde_json::{Value, json};

use crate::app::{Options, control};
use crate::config::env::{self, Environment};
use crate::error::{Class, Exit, Fault};
use crate::wire::text::visible;

use super::print;

/// How a reach tells that any name server of a private network is reached.
const NAMES: &str = "name servers on private networks";

/// What `bulkhead status` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Show the evidence of these servers, control by control
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

/// Asks every running gateway of the state directory.
pub async fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let state = env::state_dir(options.state.as_deref(), env);
    let gateways = control::ask_all(&state).await;
    if arguments.json {
        print::line(&json!({ "gateways": gateways }).to_string());
    } else if gateways.is_empty() {
        print::line(&format!("no gateway runs with the state directory {}", state.display()));
    } else {
        let known = |name: &String| {
            let servers = gateways.iter().filter_map(|g| g["servers"].as_array()).flatten();
            servers.into_iter().any(|s| s["name"] == **name)
        };
        if let Some(unknown) = arguments.servers.iter().find(|name| !known(name)) {
            return Err(Fault::new(Class::Unknown, format!("no running gateway has a server {unknown:?}")));
        }
        let colours = print::colours(env);
        for gateway in &gateways {
            print::line(&gateway_text(gateway, &arguments.servers, colours));
        }
    }
    Ok(Exit::Fine)
}

fn gateway_text(gateway: &Value, detailed: &[String], colours: bool) -> String {
    let mut out = format!(
        "gateway {} (pid {})\n  configuration {}, {:.12}\n{}  audit {}, {} records\n\n",
        word(&gateway["instance"]),
        gateway["pid"],
        word(&gateway["config"]),
        word(&gateway["config_digest"]),
        reloads(&gateway["reload"]),
        word(&gateway["audit"]["path"]),
        gateway["audit"]["seq"],
    );
    let mut table = print::table(&["SERVER", "STATE", "ISOLATION", "REACH", "TOOLS", "RUNNING"]);
    let none = Vec::new();
    let servers = gateway["servers"].as_array().unwrap_or(&none);
    for server in servers {
        let running = server["instances"].as_array().map_or(0, Vec::len);
        let (tools, withheld) = (&server["tools"], server["withheld"].as_u64().unwrap_or(0));
        let tools = if withheld > 0 { format!("{tools} ({withheld} withheld)") } else { tools.to_string() };
        table.add_row([
            Cell::new(word(&server["name"])),
            Cell::new(word(&server["state"])),
            painted(&word(&server["isolation"]), colours),
            Cell::new(reach(server)),
            Cell::new(tools),
            Cell::new(running),
        ]);
    }
    out.push_str(&table.trim_fmt());
    out.push('\n');
    servers.iter().for_each(|server| out.push_str(&notes(server)));
    gateway["leaving"].as_array().into_iter().flatten().for_each(|instance| out.push_str(&leaving(instance)));
    let wanted = servers.iter().filter(|server| detailed.iter().any(|name| server["name"] == **name));
    wanted.for_each(|server| out.push_str(&evidence(server)));
    out
}

/// What became of reloads, where there were any.
fn reloads(reload: &Value) -> String {
    let mut out = String::new();
    if let Some(last) = reload["last"].as_str() {
        out.push_str(&format!("  reloaded {last}\n"));
    }
    if let Some(time) = reload["refused"]["time"].as_str() {
        let reason = visible(&word(&reload["refused"]["reason"]), 400);
        out.push_str(&format!("  a reload was refused {time}: {reason}\n"));
    }
    out
}

/// An instance that ends as soon as nobody uses it.
fn leaving(instance: &Value) -> String {
    let name = word(&instance["server"]);
    format!(
        "  {name}: {:.12} ends once its calls have, since {}\n",
        word(&instance["container"]),
        word(&instance["reason"])
    )
}

/// What deserves a sentence: reasons, host paths, and how much is proven.
fn notes(server: &Value) -> String {
    let name = word(&server["name"]);
    let mut lines = Vec::new();
    for reason in ["reason", "isolation_reason"] {
        if let Some(text) = server[reason].as_str() {
            lines.push(visible(text, 400));
        }
    }
    lines.dedup();
    if server["writable_root"] == true {
        lines.push("its root file system is writable, as configured".to_owned());
    }
    lines.extend(server["mounts"].as_array().into_iter().flatten().map(|m| format!("sees the host's {}", word(m))));
    for instance in server["instances"].as_array().into_iter().flatten() {
        let Some(controls) = instance["evidence"]["controls"].as_array() else { continue };
        let held = controls.iter().filter(|c| c["holds"] == true).count();
        lines.push(format!(
            "{held} of {} controls proven, evidence {:.12}",
            controls.len(),
            word(&instance["evidence"]["digest"])
        ));
        let fence = &instance["fence"];
        if fence.is_object() {
            // Its public addresses are like any where the gateway does not know them.
            let host = if fence["host_addresses"].is_null() { "the host by its private addresses" } else { "the host" };
            let names = server["reach"].as_array().into_iter().flatten().any(|reach| word(reach).contains(NAMES));
            let but = if names { " (but for port 53 of private ones)" } else { "" };
            lines.push(format!(
                "cannot reach {host}, other containers, private and link-local networks{but}, or cloud metadata: {} \
                 networks refused by fence {:.12} in network {}",
                fence["refused"].as_array().map_or(0, Vec::len),
                word(&fence["container"]),
                word(&fence["network"]["name"])
            ));
        }
        let used = &instance["egress"];
        if used.is_object() {
            lines.push(egress(used, &word(&instance["guard"]["container"])));
        }
    }
    lines.iter().map(|line| format!("  {name}: {line}\n")).collect()
}

/// What an instance's connections have used, with the limits on that.
fn egress(used: &Value, guard: &str) -> String {
    let limits = &used["limits"];
    let today = match &limits["bytes_per_day"] {
        Value::Null => String::new(),
        most => format!(" ({} of {most} today)", used["bytes_today"]),
    };
    format!(
        "{} connections ({} of {} open, {} refused, {} cut), {} bytes out, {} in{today}, by guard {guard:.12}",
        used["connections"],
        used["open"],
        limits["connections"],
        used["refused"],
        used["cut"],
        used["bytes_out"],
        used["bytes_in"],
    )
}

/// What it may reach beside its own loopback: what everybody has says nothing.
fn reach(server: &Value) -> String {
    let all = server["reach"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let beyond: Vec<String> = all.filter(|place| *place != "lo").map(|place| visible(place, 200)).collect();
    if beyond.is_empty() { word(&server["network"]) } else { beyond.join("\n") }
}

fn evidence(server: &Value) -> String {
    let mut out = String::new();
    let instances = server["instances"].as_array().into_iter().flatten();
    let proven: Vec<_> = instances.filter(|instance| !instance["evidence"]["controls"].is_null()).collect();
    if proven.is_empty() {
        let why = match server["isolation"].as_str() {
            Some("unisolated") => "it runs on the host, where nothing confines it",
            _ => "no container of it runs now; a call starts one",
        };
        return format!("\n{}: no evidence, since {why}\n", word(&server["name"]));
    }
    for instance in proven {
        let mut table = print::table(&["CONTROL", "ASKED", "ENGINE", "INSIDE", "HOLDS"]);
        for control in instance["evidence"]["controls"].as_array().into_iter().flatten() {
            let holds = if control["holds"] == true { "yes" } else { "NO" };
            let cell = |key: &str| visible(&reading(control, key), 200);
            table.add_row([cell("control"), cell("asked"), cell("engine"), cell("inside"), holds.to_owned()]);
        }
        out.push_str(&format!(
            "\n{} for {}\n{}\n",
            word(&server["name"]),
            word(&instance["principal"]),
            table.trim_fmt()
        ));
    }
    out
}

/// A reading for people: bytes and processors as they stand in a configuration.
fn reading(control: &Value, key: &str) -> String {
    let text = word(&control[key]);
    let number: Option<u64> = text.parse().ok();
    match (control["control"].as_str(), number) {
        (Some("memory" | "swap"), Some(bytes)) if bytes > 0 && bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
        (Some("cpu"), Some(nano)) if key == "engine" => (nano as f64 / 1e9).to_string(),
        _ => text,
    }
}

fn painted(isolation: &str, colours: bool) -> Cell {
    let cell = Cell::new(isolation);
    match isolation {
        "proven" if colours => cell.fg(Color::Green),
        "refused" if colours => cell.fg(Color::Red),
        "unisolated" if colours => cell.fg(Color::Yellow),
        _ => cell,
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}
