//! The engine is killed or stopped, and comes back: the gateway lives on, answers every call meanwhile, and serves again.

use serde_json::json;

use crate::support::engine::FIXTURE_SERVER;
use crate::support::second_engine::End;
use crate::support::{SecondEngine, Site};

use super::{Client, Moment, Random, containers, interrupted, rounds, three};

#[test]
fn ten_engines_are_killed() {
    rounds(10, 1, |engine, random| goes_away(engine, random, &[End::Kill]));
}

#[test]
fn ten_engines_are_stopped() {
    rounds(10, 1, |engine, random| goes_away(engine, random, &[End::Term]));
}

#[test]
fn ten_engines_are_killed_or_stopped_twice() {
    rounds(10, 1, |engine, random| {
        let how = [random.one_of(&[End::Kill, End::Term]), random.one_of(&[End::Kill, End::Term])];
        goes_away(engine, random, &how);
    });
}

fn goes_away(engine: &SecondEngine, random: &mut Random, how: &[End]) {
    let moment = random.one_of(&[Moment::Greeted, Moment::Called, Moment::Called, Moment::InFlight]);
    // An engine gives each container ten seconds to end, and so would every round take that long with one deaf to that.
    let site = Site::at(engine, &three(&["--ignore-eof"]));
    let mut client = Client::new(site.serve());
    let gateway = client.serving.pid();
    client.reach(moment, random);
    for how in how {
        engine.end(*how);
        if moment != Moment::Greeted {
            client.call_all("echo", &json!({}));
        }
        random.pause(1500);
        engine.begin();
        random.pause(1000);
    }
    for failure in client.all_answered() {
        let told = failure.to_string();
        let known = ["container engine", "ended: ", "not tried again"];
        assert!(known.iter().any(|words| told.contains(words)), "{moment:?}, {how:?}: {told}");
    }
    client.until_all_serve();
    let Client { serving, asked } = client;
    let ended = serving.close();
    assert!(ended.status.success(), "{moment:?}, {how:?}: {ended:?}");
    assert_eq!(containers(engine, gateway), [""; 0], "{moment:?}, {how:?}: {}", ended.stderr);
    assert!(Client::unanswered(asked, &ended.lines).is_empty());
    assert_eq!(interrupted(&site), 0);
}

/// What these tests count by.
#[test]
fn what_is_left_at_an_engine_that_was_killed_is_counted() {
    let Some(engine) = SecondEngine::start() else { return };
    engine.try_docker(&["create", "--name", "left", FIXTURE_SERVER]).unwrap();
    for how in [End::Kill, End::Term] {
        engine.end(how);
        engine.begin();
        assert_eq!(engine.containers(&[], "{{.Names}}"), ["left"], "{how:?}");
    }
    engine.try_docker(&["rm", "left"]).unwrap();
    assert_eq!(engine.containers(&[], "{{.Names}}"), [""; 0]);
}
