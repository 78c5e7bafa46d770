//! The gateway is killed: what the servers do not end of themselves goes with the next gateway, or by `bulkhead reap`.

use rustix::process::Signal;

use crate::support::{PATIENCE, Site, wait_until};

use super::{Client, DEAF, Moment, containers, interrupted, rounds, three};

#[test]
fn forty_gateways_are_killed() {
    let servers = three(&DEAF);
    rounds(40, 4, |engine, random| {
        let all = [Moment::Begun, Moment::Greeted, Moment::Called, Moment::Called, Moment::InFlight, Moment::Closed];
        let moment = random.one_of(&all);
        let site = Site::at(engine, &servers);
        let mut client = Client::new(site.serve());
        let gateway = client.serving.pid();
        client.reach(moment, random);
        client.serving.signal(Signal::KILL);
        let Client { serving, asked } = client;
        let ended = serving.ended();
        // Those that it had no time for stay without an answer; none has two.
        Client::unanswered(asked, &ended.lines);

        if matches!(moment, Moment::InFlight) {
            wait_until("no more than the deaf one", PATIENCE, || {
                containers(engine, gateway).iter().all(|container| container.starts_with("deaf "))
            });
        }
        let next = Site::at(engine, "");
        let _next = (random.below(2) == 0).then(|| next.serve());
        wait_until(&format!("nothing of {gateway}, killed when {moment:?}"), PATIENCE, || {
            if _next.is_none() {
                next.prints(&["reap"]);
            }
            containers(engine, gateway).is_empty()
        });
        if site.audit_file().exists() {
            interrupted(&site);
        }
    });
}
