//! `[gateway]`, `[front]`, `[audit]`, and the tables that are known but not served yet. Knows nothing of servers.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::fault::quoted;
use crate::config::quantity;
use crate::config::reader::Reader;
use crate::config::{Approval, Arguments, Audit, Gateway, Names, Start, StdioFront, Sync};
use crate::name::Role;

/// `[gateway]`, and the default it sets for servers.
pub(super) struct GatewayTable {
    pub(super) gateway: Gateway,
    pub(super) idle_stop: Duration,
}

/// `[gateway]`.
pub(super) fn gateway(table: Option<Reader<'_>>) -> GatewayTable {
    let mut found = GatewayTable {
        gateway: Gateway {
            name: "bulkhead".to_owned(),
            names: Names::Prefixed,
            start: Start::OnDemand,
            approval: Approval::FirstUse,
        },
        idle_stop: Duration::from_secs(600),
    };
    let Some(mut table) = table else { return found };
    let gateway = &mut found.gateway;
    set(&mut gateway.name, table.get("name").and_then(|f| f.parse(label)));
    let names = [("prefixed", Names::Prefixed), ("bare", Names::Bare)];
    set(&mut gateway.names, table.get("names").and_then(|f| f.choice(&names)));
    let starts = [("on-demand", Start::OnDemand), ("eager", Start::Eager)];
    set(&mut gateway.start, table.get("start").and_then(|f| f.choice(&starts)));
    let approvals = [("first-use", Approval::FirstUse), ("explicit", Approval::Explicit)];
    set(&mut gateway.approval, table.get("approval").and_then(|f| f.choice(&approvals)));
    set(&mut found.idle_stop, table.get("idle_stop").and_then(|f| f.parse(quantity::duration)));
    table.finish();
    found
}

/// `[front]`: who is behind the pipe.
pub(super) fn front(table: Option<Reader<'_>>) -> StdioFront {
    let mut stdio = StdioFront { id: "me".to_owned(), role: Role::User };
    let Some(mut table) = table else { return stdio };
    if let Some(mut table) = table.table("stdio") {
        set(&mut stdio.id, table.get("id").and_then(|f| f.parse(identity)));
        set(&mut stdio.role, table.get("role").and_then(|f| f.parse(role)));
        table.finish();
    }
    table.unsupported(&["http"]);
    table.finish();
    stdio
}

/// `[audit]`.
pub(super) fn audit(table: Option<Reader<'_>>) -> Audit {
    let mut audit = Audit { path: PathBuf::from("audit.jsonl"), arguments: Arguments::Hash, sync: Sync::Always };
    let Some(mut table) = table else { return audit };
    set(&mut audit.path, table.get("path").and_then(|f| f.parse(file)));
    if let Some(field) = table.get("arguments") {
        field.only("hash", &["redacted", "full"]);
    }
    let syncs = [("always", Sync::Always), ("batch", Sync::Batch)];
    set(&mut audit.sync, table.get("sync").and_then(|f| f.choice(&syncs)));
    table.unsupported(&["rotate"]);
    table.finish();
    audit
}

/// `[auth]` and `[policy]`: every key of them is refused by its full name.
pub(super) fn refuse_unsupported(root: &mut Reader<'_>) {
    for (key, inner) in [("auth", &["token", "oidc"][..]), ("policy", &["files"])] {
        if let Some(mut table) = root.table(key) {
            table.unsupported(inner);
            table.finish();
        }
    }
}

/// A role; an unknown one is refused.
pub(super) fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).map_err(|_| format!("must be \"guest\" or \"user\" or \"admin\", not {}", quoted(text)))
}

/// Replaces a default by what was given.
pub(super) fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

fn label(text: &str) -> Result<String, String> {
    let good = !text.trim().is_empty() && text.len() <= 64 && !text.contains(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| format!("must be 1 to 64 printable characters, not {}", quoted(text)))
}

/// An identity stands in audit records and container labels; `guest` there is somebody without one.
fn identity(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_alphanumeric() || "._-@+".contains(c);
    if text.is_empty() || text.len() > 128 || !text.chars().all(good) {
        return Err(format!("may hold only letters, digits and . _ - @ +, not {}", quoted(text)));
    }
    if text == "guest" {
        return Err("must not be \"guest\", which stands for somebody without an identity".to_owned());
    }
    Ok(text.to_owned())
}

fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let up = path.components().any(|part| part == std::path::Component::ParentDir);
    if path.file_name().is_none() || up || text.contains(char::is_control) || text.ends_with('/') {
        return Err(format!("must be the path of a file, without \"..\", not {}", quoted(text)));
    }
    Ok(path)
}
