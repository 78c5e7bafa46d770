//! `egress_limits`: how much a server may do with what it may reach. Knows nothing of how that is kept.

use std::time::Duration;

use crate::config::fault::quoted;
use crate::config::quantity;
use crate::config::reader::Reader;
use crate::config::resolve::gateway::set;
use crate::egress::passage::Limits;

/// More connections than this are more than a gateway should hold open for one server.
const MOST_CONNECTIONS: i64 = 1024;

/// Longer than this, a connection is not about to be made any more, and a request not about to be sent.
const LONGEST: Duration = Duration::from_secs(600);

/// Reads the limits; what is left out is as it is for everybody.
pub(super) fn egress_limits(r: &mut Reader<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(field) = r.get("egress_limits") else { return limits };
    let connects = ["egress", "host_ports"].iter().any(|key| r.written().get(key).is_some());
    if !connects {
        field.fault("limits nothing: it is for what egress and host_ports let a server reach");
    }
    let Some(mut table) = field.table() else { return limits };
    set(&mut limits.connections, table.get("connections").and_then(|f| f.integer(1, MOST_CONNECTIONS)));
    set(&mut limits.bytes_per_day, table.get("bytes_per_day").map(|f| f.parse(quantity::size)));
    set(&mut limits.connect, table.get("connect").and_then(|f| f.parse(moment)));
    set(&mut limits.request, table.get("request").and_then(|f| f.parse(moment)));
    set(&mut limits.idle, table.get("idle").and_then(|f| f.parse(quantity::duration)));
    table.finish();
    limits
}

fn moment(text: &str) -> Result<Duration, String> {
    match quantity::duration(text)? {
        long if long > LONGEST => Err(format!("must be at most \"10m\", not {}", quoted(text))),
        moment => Ok(moment),
    }
}
