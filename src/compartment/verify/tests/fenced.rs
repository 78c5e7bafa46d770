//! A server within its fence, and the fence itself: what of a network that leads out must be as it was asked for.

use std::sync::Arc;

use serde_json::json;

use crate::compartment::fence::Bounds;
use crate::compartment::spec::Way;
use crate::compartment::testing::{GUARD, NAMESPACE};
use crate::compartment::verify::tests::*;

/// The engine's report of the network.
fn network(bounds: &Bounds, joined: &str) -> Value {
    let place = &bounds.place;
    json!({
        "Name": place.name, "Id": place.id, "Scope": "local", "Driver": "bridge", "EnableIPv6": false,
        "IPAM": { "Driver": "default", "Options": null, "Config": [{ "Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1" }] },
        "Internal": false, "Attachable": false, "Ingress": false, "ConfigFrom": { "Network": "" }, "ConfigOnly": false,
        "Containers": { joined: { "Name": "fence" } },
        "Options": { "com.docker.network.bridge.enable_icc": "false" }, "Labels": { "org.bulkhead.role": "network" },
    })
}

/// The kernel's routes within such a fence.
fn routes(bounds: &Bounds) -> String {
    let hex = |address: std::net::Ipv4Addr| format!("{:08X}", u32::from_le_bytes(address.octets()));
    let refused = bounds.refused().into_iter().map(|subnet| {
        let flags = if subnet.length() == 32 { "0205" } else { "0201" };
        format!("*\t{}\t00000000\t{flags}\t0\t0\t0\t{}\t0\t0\t0\n", hex(subnet.address()), hex(subnet.mask()))
    });
    let heading = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n".to_owned();
    let out = "eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n".to_owned();
    [heading, out].into_iter().chain(refused).collect()
}

fn tried(bounds: &Bounds) -> Value {
    bounds.attempts().into_iter().map(|attempt| (attempt.text(), attempt.error())).collect::<Vec<_>>().into_iter().fold(
        json!({}),
        |mut all, (text, error)| {
            all[text] = error.into();
            all
        },
    )
}

/// As captured, but in a network that leads out.
fn led_out(way: Way, joined: Option<&str>) -> Case {
    let mut case = Case::captured();
    case.asked.way = way;
    let bounds = case.asked.bounds().unwrap().clone();
    let own = case.engine["Id"].as_str().unwrap().to_owned();
    case.network = Some(network(&bounds, joined.unwrap_or(&own)));
    case.engine["HostConfig"]["NetworkMode"] = case.asked.network_mode().into();
    case.engine["Config"]["Entrypoint"] = case.asked.entrypoint().into();
    case.inside["route"] = routes(&bounds).into();
    case.inside["attempts"] = tried(&bounds);
    case.inside["namespaces"]["net"] = NAMESPACE.into();
    let dev = case.inside["net_dev"].as_str().unwrap().to_owned();
    case.inside["net_dev"] =
        format!("{dev}  eth0:     936       8    0    0    0     0    0   0   0   0 0 0 0 0 0 0\n").into();
    case
}

fn within() -> Case {
    let way = planned(&server("image = \"notes\"\nnetwork = \"bridge\"")).way;
    let mut case = led_out(way, Some(GUARD));
    case.engine["NetworkSettings"]["Networks"] = json!({});
    let own = case.engine["Id"].as_str().unwrap().to_owned();
    case.reworded("mountinfo", &own, GUARD)
}

fn fence() -> Case {
    let bounds = Arc::new(Bounds::example());
    let name = server(ENTRY).name;
    let mut case = led_out(Way::Fencing(name, bounds.clone()), None);
    let place = &bounds.place;
    case.engine["NetworkSettings"]["Networks"] =
        json!({ &place.name: { "NetworkID": place.id, "Gateway": "172.18.0.1", "IPAddress": "172.18.0.2" } });
    case.engine["Config"]["User"] = "0:0".into();
    case.engine["Config"]["Labels"]["org.bulkhead.role"] = "fence".into();
    case.engine["HostConfig"]["Init"] = false.into();
    case.engine["HostConfig"]["CapAdd"] = json!(["CAP_NET_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"]);
    case.engine["HostConfig"]["Dns"] = json!(["10.255.255.53", "9.9.9.9"]);
    case.engine["HostConfig"]["DnsSearch"] = json!(["."]);
    case.reworded("status", "PPid:\t1", "PPid:\t0")
}

#[test]
fn a_server_within_its_fence_and_the_fence_hold_in_every_control() {
    for (case, network) in
        [(within(), "none but within the fence 9a9a9a9a9a9a"), (fence(), "bulkhead-My-Notes-5e5e5e5e alone")]
    {
        assert_eq!(case.broken(), NONE, "{:#?}", case.evidence().controls);
        let control = case.control("network");
        assert_eq!((&*control.asked, &*control.engine, &*control.inside), (network, network, "lo,eth0"));
        let fence = case.control("fence");
        assert_eq!((&*fence.asked, &*fence.engine), ("public addresses alone", "as asked"));
        assert_eq!(fence.inside, "1 route out, 17 networks prohibited, 22 attempts refused");
    }
    assert_eq!(fence().control("capabilities").asked, "none, after NET_ADMIN,SETGID,SETPCAP,SETUID");
}

#[test]
fn another_network_than_its_own_is_found_out() {
    for mode in ["none", "bridge", "host", "", "container:9a9a", "bulkhead-My-Notes-5e5e5e5e"] {
        assert_eq!(within().engine("/HostConfig/NetworkMode", mode).broken(), ["network"], "{mode}");
    }
    assert_eq!(within().engine("/NetworkSettings/Networks", json!({ "bridge": {} })).broken(), ["network"]);
    let own = "/NetworkSettings/Networks/bulkhead-My-Notes-5e5e5e5e";
    let two = fence().with("/NetworkSettings/Networks/bridge", json!({}));
    assert_eq!(two.broken(), ["network"]);
    for part in ["NetworkID", "Gateway"] {
        assert_eq!(fence().engine(&format!("{own}/{part}"), "8.8.8.8").broken(), ["network"], "{part}");
    }
    assert_eq!(fence().without(own).broken(), ["network"]);
    for case in [within(), fence()] {
        let published = json!({ "80/tcp": [{ "HostPort": "8080" }] });
        assert_eq!(case.clone().engine("/HostConfig/PortBindings", published).broken(), ["network"]);
        assert_eq!(case.clone().engine("/HostConfig/PublishAllPorts", true).broken(), ["network"]);
        let more = format!("{}  eth1: 0 0 0\n", case.inside["net_dev"].as_str().unwrap());
        assert!(case.inside("net_dev", more).broken().contains(&"network"));
    }
    for namespace in [json!("net:[4026532999]"), json!(""), Value::Null] {
        let mut elsewhere = within();
        elsewhere.inside["namespaces"]["net"] = namespace.clone();
        assert_eq!(elsewhere.broken(), ["network"], "{namespace}");
    }
}

#[test]
fn a_network_that_is_not_as_it_was_asked_for_does_not_hold() {
    let other = || "8".repeat(64);
    for (pointer, value) in [
        ("/Id", json!(other())),
        ("/Name", json!("other")),
        ("/Driver", json!("macvlan")),
        ("/Options", json!({})),
        ("/Options", json!({ "com.docker.network.bridge.enable_icc": "true" })),
        (
            "/Options",
            json!({ "com.docker.network.bridge.enable_icc": "false", "com.docker.network.bridge.name": "docker0" }),
        ),
        ("/Internal", json!(true)),
        ("/Attachable", json!(true)),
        ("/Ingress", json!(true)),
        ("/EnableIPv6", json!(true)),
        ("/IPAM/Config", json!([{ "Subnet": "172.19.0.0/16" }])),
        ("/IPAM/Config", json!([{ "Subnet": "172.18.0.0/16" }, { "Subnet": "172.19.0.0/16" }])),
        ("/ConfigOnly", json!(true)),
        ("/ConfigFrom/Network", json!("other")),
        ("/Labels", json!({})),
        ("/Containers", json!({})),
        ("/Containers", json!({ other(): {} })),
        ("/Containers", json!({ GUARD: {}, other(): {} })),
    ] {
        for mut case in [within(), fence()] {
            *case.network.as_mut().unwrap().pointer_mut(pointer).unwrap() = value.clone();
            assert_eq!(case.broken(), ["fence"], "{pointer} {value}");
        }
    }
    assert_eq!(Case { network: None, ..within() }.broken(), ["fence"]);
}

#[test]
fn a_fence_that_does_not_stand_is_seen_from_inside() {
    let case = within();
    let all = case.inside["route"].as_str().unwrap().to_owned();
    // Any of the routes missing, any more, and any that is another one.
    for left_out in 1..all.lines().count() {
        let lines = all.lines().enumerate().filter(|(n, _)| *n != left_out).map(|(_, line)| format!("{line}\n"));
        assert_eq!(case.clone().inside("route", lines.collect::<String>()).broken(), ["fence"], "{left_out}");
    }
    for more in ["eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n", all.lines().nth(2).unwrap()] {
        assert_eq!(case.clone().inside("route", format!("{all}{more}\n")).broken(), ["fence"], "{more}");
    }
    for (from, to) in [("0201", "0001"), ("010012AC", "020012AC"), ("0003", "0001"), ("eth0\t", "eth9\t")] {
        assert_eq!(case.clone().inside("route", all.replacen(from, to, 1)).broken(), ["fence"], "{from}");
    }
    let six = "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 \
               00000100 00000001 00000000 00000001     eth0\n";
    let more = format!("{}{six}", case.inside["ipv6_route"].as_str().unwrap_or_default());
    assert_eq!(case.clone().inside("ipv6_route", more).broken(), ["fence"]);
    for attempt in case.asked.bounds().unwrap().attempts() {
        for answer in [json!(0), json!(101), Value::Null] {
            let mut open = case.clone();
            open.inside["attempts"][attempt.text()] = answer.clone();
            assert_eq!(open.broken(), ["fence"], "{attempt:?} {answer}");
        }
    }
    for nothing in [json!({}), Value::Null] {
        assert_eq!(case.clone().inside("attempts", nothing).broken(), ["fence"]);
    }
    assert_eq!(case.inside("route", Value::Null).broken(), ["fence"]);
}

#[test]
fn a_fence_keeps_nothing_of_what_it_begins_with() {
    for kept in ["CapPrm", "CapEff", "CapBnd", "CapInh"] {
        let case =
            fence().reworded("status", &format!("{kept}:\t0000000000000000"), &format!("{kept}:\t0000000000001000"));
        assert_eq!(case.broken(), ["capabilities"], "{kept}");
    }
    for added in [json!([]), json!(["NET_ADMIN", "SETUID", "SETGID"]), json!(["ALL"]), Value::Null] {
        assert_eq!(fence().engine("/HostConfig/CapAdd", added.clone()).broken(), ["capabilities"], "{added}");
    }
    let more = json!(["NET_ADMIN", "NET_RAW", "SETUID", "SETGID", "SETPCAP"]);
    assert_eq!(fence().engine("/HostConfig/CapAdd", more.clone()).broken(), ["capabilities"]);
    assert_eq!(within().engine("/HostConfig/CapAdd", json!(["NET_ADMIN"])).broken(), ["capabilities"]);
    assert_eq!(fence().engine("/HostConfig/Init", true).broken(), ["init"]);
    assert_eq!(fence().reworded("status", "PPid:\t0", "PPid:\t1").broken(), ["init"]);
    assert_eq!(fence().engine("/Config/User", "10001:10001").broken(), ["user"]);
    assert_eq!(fence().engine("/HostConfig/Dns", json!(["9.9.9.9"])).broken(), ["network"]);
    assert_eq!(fence().engine("/HostConfig/DnsSearch", json!([])).broken(), ["network"]);
    assert_eq!(within().engine("/HostConfig/Dns", json!(["9.9.9.9"])).broken(), ["other settings"]);
}
