//! The faults, word by word: each with file, line, column and the key at fault.

use crate::config::testing::{json_faults, loaded, toml_faults};

/// The fault of one more line in an image server, without its place.
#[track_caller]
fn of_server(line: &str) -> String {
    let said = toml_faults(&format!("[servers.s]\nimage = \"i\"\n{line}\n"));
    assert!(said.lines().all(|line| line.starts_with("b.toml:")), "{said}");
    said.lines().map(|line| line.splitn(4, ':').nth(3).unwrap().trim()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_the_contract_has_and_this_version_has_not_is_refused_by_its_full_name() {
    for (text, name) in [
        ("[front.http]\nlisten = \"127.0.0.1:1\"", "front.http"),
        ("[[auth.token]]\nid = \"a\"", "auth.token"),
        ("[auth.oidc]\nissuer = \"x\"", "auth.oidc"),
        ("[audit]\nrotate = \"1m\"", "audit.rotate"),
        ("[audit]\narguments = \"redacted\"", "audit.arguments = \"redacted\""),
        ("[audit]\narguments = \"full\"", "audit.arguments = \"full\""),
        ("[policy]\nfiles = []", "policy.files"),
    ] {
        let said = toml_faults(text);
        assert!(said.ends_with(&format!(": not yet supported: {name}")) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_file() {
    let said = toml_faults(
        "[gateway]\nnames = \"flat\"\nstrat = \"eager\"\n\n[servers.a]\nimage = \"img --privileged\"\nmemory = 5\n\
         min_role = \"root\"\n[servers.\"../../etc\"]\nimage = \"i\"\n",
    );
    assert_eq!(
        said,
        "b.toml:2:9: gateway.names must be \"prefixed\" or \"bare\", not \"flat\"\n\
         b.toml:3:1: unknown key \"strat\" in gateway; did you mean \"start\"?\n\
         b.toml:6:9: servers.a.image is no image reference such as \"name:tag\" or \"registry.example.org/name@sha256:…\"\n\
         b.toml:7:10: servers.a.memory must be a string, not a number\n\
         b.toml:8:12: servers.a.min_role must be \"guest\" or \"user\" or \"admin\", not \"root\"\n\
         b.toml:9:10: server name \"../../etc\" must begin with a letter or a digit"
    );
}

#[test]
fn a_key_twice_is_refused_in_both_languages() {
    assert_eq!(
        toml_faults("[servers.a]\nimage = \"x\"\n[servers.a]\nimage = \"y\"\n"),
        "b.toml:3:10: duplicate key \"a\"\nb.toml:4:1: duplicate key \"image\""
    );
    assert_eq!(toml_faults("[gateway]\nname = \"a\"\n\"name\" = \"b\"\n"), "b.toml:3:1: duplicate key \"name\"");
    assert_eq!(
        json_faults("{\"mcpServers\":{\"a\":{\"command\":\"npx\"},\n\"a\":{\"command\":\"uvx\"}}}"),
        "b.json:2:1: duplicate key \"a\", first in line 1"
    );
}

#[test]
fn names_that_fall_together_are_refused_naming_both() {
    let entry = r#"{"command": "npx", "args": ["p"]}"#;
    let said = json_faults(&format!("{{\"mcpServers\": {{\"My.Srv (dev)\": {entry},\n\"my-srv-dev\": {entry}}}}}"));
    assert_eq!(
        said,
        "b.json:2:1: the servers \"My.Srv (dev)\" and \"my-srv-dev\" would share one name in tools, containers and volumes"
    );
    let said = json_faults(&format!("{{\"servers\": {{\"a\": {entry}}},\n\"mcpServers\": {{\"A\": {entry}}}}}"));
    assert!(said.starts_with("b.json:2:16: the servers \"a\" and \"A\""), "{said}");
    assert_eq!(
        json_faults(&format!("{{\"mcpServers\": {{\"\": {entry}}}}}")),
        "b.json:1:17: server name \"\" is empty"
    );
}

#[test]
fn a_text_that_cannot_be_read_is_refused_with_its_place() {
    assert_eq!(json_faults("{\"mcpServers\": {\"s1\": {\"command\": \"fake\"}"), "b.json:1:16: unterminated object");
    let said = toml_faults("[gateway\nname = 1");
    assert!(said.starts_with("b.toml:1:9: "), "{said}");
    let said = toml_faults("[servers.a]\nimage = i\n");
    assert!(said.starts_with("b.toml:2:9: "), "{said}");
    let faults =
        crate::config::resolve::load(std::path::Path::new("/no/such.toml"), &crate::config::testing::variables());
    let said = faults.unwrap_err().to_string();
    assert_eq!(said, "/no/such.toml: does not exist yet: write it, or name another one with --config");
    assert_eq!(toml_faults("mcpServers = {}"), "b.toml:1:1: unknown key \"mcpServers\"");
}

#[test]
fn a_server_says_in_exactly_one_way_how_it_runs() {
    assert_eq!(
        toml_faults("[servers.a]\nmemory = \"64m\""),
        "b.toml:1:10: servers.a does not say how it runs: give one of \"package\", \"image\", \"unisolated\" and \"url\""
    );
    assert_eq!(
        toml_faults("[servers.a]\nimage = \"i\"\nunisolated = \"x\"\ncommand = [\"x\"]"),
        "b.toml:3:14: servers.a.unisolated cannot stand beside servers.a.image: give one of them"
    );
    assert_eq!(
        toml_faults("[servers.a]\nunisolated = \"why\""),
        "b.toml:2:14: servers.a.unisolated needs a \"command\" beside it"
    );
    for blank in ["\"\"", "\"  \"", "\"a\\nb\"", "true"] {
        let said = toml_faults(&format!("[servers.a]\nunisolated = {blank}\ncommand = [\"x\"]"));
        assert!(said.starts_with("b.toml:2:14: servers.a.unisolated must be "), "{said}");
    }
}

#[test]
fn what_an_unisolated_or_remote_server_cannot_keep_is_refused() {
    let keys = ["memory = \"64m\"", "cpus = 1", "pids = 9", "network = \"none\"", "state = \"/d\"", "cache = true"];
    for key in keys.iter().chain(&[
        "mounts = []",
        "writable_root = false",
        "user = 5",
        "egress = [\"a.org:1\"]",
        "host_ports = [1]",
        "egress_limits = {}",
    ]) {
        let name = key.split(' ').next().unwrap();
        assert_eq!(
            toml_faults(&format!("[servers.a]\nunisolated = \"w\"\ncommand = [\"x\"]\n{key}")),
            format!("b.toml:4:1: servers.a.{name} cannot be kept, since the server is unisolated")
        );
        let said = toml_faults(&format!("[servers.a]\nurl = \"http://x\"\n{key}"));
        assert_eq!(said, format!("b.toml:3:1: servers.a.{name} has no meaning for a remote server"));
    }
    for (run, key) in [
        ("url = \"http://x\"", "args = []"),
        ("url = \"http://x\"", "env = {}"),
        ("url = \"http://x\"", "secrets = {}"),
        ("image = \"i\"", "with = []"),
        ("image = \"i\"", "headers = {}"),
        ("package = \"npx:p\"", "command = [\"x\"]"),
        ("package = \"npx:p\"", "type = \"http\""),
    ] {
        let said = toml_faults(&format!("[servers.a]\n{run}\n{key}"));
        assert!(said.contains("has no meaning for a") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn values_out_of_bounds_are_refused() {
    for (line, said) in [
        ("memory = \"5m\"", "servers.s.memory must be at least \"6m\", not \"5m\""),
        ("memory = \"1x\"", "servers.s.memory \"1x\" is no size such as \"64k\", \"256m\" or \"8g\""),
        ("memory = \"17g\"", "servers.s.memory is more than limits.total.memory allows for all servers together"),
        ("cpus = 0", "servers.s.cpus must be from 0.01 to 4096, not 0"),
        ("cpus = inf", "servers.s.cpus must be from 0.01 to 4096, not inf"),
        ("cpus = 17", "servers.s.cpus is more than limits.total.cpus allows for all servers together"),
        ("pids = 0", "servers.s.pids must be from 1 to 4194304, not 0"),
        ("user = 0", "servers.s.user must be from 1 to 2147483647, not 0"),
        ("user = \"0\"", "servers.s.user must be a number from 1 to 2147483647, not \"0\""),
        ("user = \"root\"", "servers.s.user must be a number from 1 to 2147483647, not \"root\""),
        ("user = -1", "servers.s.user must be from 1 to 2147483647, not -1"),
        ("limits = { burst = 0 }", "servers.s.limits.burst must be from 1 to 1000000, not 0"),
        ("limits = { concurrent = 0 }", "servers.s.limits.concurrent must be from 1 to 1000000, not 0"),
        ("limits = { rate = \"90/h\" }", "servers.s.limits.rate \"90/h\" is not a whole number of calls a minute"),
        ("timeout = \"0s\"", "servers.s.timeout \"0s\" is not between \"1ms\" and \"168h\""),
        ("timeout = \"11m\"\nmax_time = \"10m\"", "servers.s.max_time must not be shorter than \"timeout\""),
        ("max_result = \"2g\"", "servers.s.max_result must be at most \"1g\", not \"2g\""),
        ("network = \"host\"", "servers.s.network must be \"none\" or \"egress\" or \"bridge\", not \"host\""),
        (
            "network = \"container:abc\"",
            "servers.s.network must be \"none\" or \"egress\" or \"bridge\", not \"container:abc\"",
        ),
        ("share = \"none\"", "servers.s.share must be \"principal\" or \"session\" or \"all\", not \"none\""),
        ("min_role = \"Admin\"", "servers.s.min_role must be \"guest\" or \"user\" or \"admin\", not \"Admin\""),
        (
            "tools = { min_role = { a = \"x\" } }",
            "servers.s.tools.min_role.a must be \"guest\" or \"user\" or \"admin\", not \"x\"",
        ),
        (
            "tools = { deny = [\"a?\"] }",
            "servers.s.tools.deny[0] \"a?\" is no pattern for tools; only \"*\" stands for other characters",
        ),
        ("env = { A = 1 }", "servers.s.env.A must be a string, not a number"),
        (
            "env = { DOCKER_HOST = \"tcp://x\" }",
            "servers.s.env.DOCKER_HOST leads to a container engine, which no server in a container may reach",
        ),
        (
            "env = { \"A-B\" = \"1\" }",
            "servers.s.env.A-B is no name of a variable; letters, digits and \"_\", not beginning with a digit",
        ),
        ("env = { A = \"1\" }\nsecrets = { A = \"env:SET\" }", "servers.s.secrets.A is in \"env\" too; give it once"),
        ("command = []", "servers.s.command must hold at least the program"),
        (
            "command = [\"-x\"]",
            "servers.s.command must begin with a program: not blank, without a leading \"-\", on one line",
        ),
        ("command = \"x\"", "servers.s.command must be a list, not a string"),
        ("args = [\"a\\u0000\"]", "servers.s.args[0] holds a control character"),
        ("state = \"data\"", "servers.s.state must be an absolute, normalized path other than \"/\", not \"data\""),
        ("state = \"/tmp/x\"", "servers.s.state \"/tmp/x\" is taken by the compartment itself"),
    ] {
        assert_eq!(of_server(line), said);
    }
    assert!(of_server("tools = { allow = [] }").starts_with("servers.s.tools.allow must not be empty"));
}

#[test]
fn what_may_be_reached_is_told_in_full_or_refused() {
    let beside = "cannot stand beside network = \"bridge\", which reaches the internet by itself and never the host: choose \
                  one of the two";
    let no_rule = |text: &str, why: &str| format!("servers.s.egress[0] {text:?} is nothing that can be reached: {why}");
    let port = "a port from 1 to 65535 must follow the host";
    for (line, said) in [
        ("egress = []", "servers.s.egress must not be empty".to_owned()),
        ("host_ports = []", "servers.s.host_ports must not be empty".to_owned()),
        ("egress = \"a.org:1\"", "servers.s.egress must be a list, not a string".to_owned()),
        ("egress = [\"a.org\"]", no_rule("a.org", port)),
        (
            "egress = [\"https://a.org:443\"]",
            no_rule("https://a.org:443", "an IPv6 address must be in brackets, without a zone"),
        ),
        ("egress = [\"*.org:443\"]", no_rule("*.org:443", "\"*.org\" is too much: two parts must follow the star")),
        ("egress = [\"a.org:1\", \"A.org.:1\"]", "servers.s.egress[1] stands there twice".to_owned()),
        ("host_ports = [0]", "servers.s.host_ports[0] must be from 1 to 65535, not 0".to_owned()),
        ("host_ports = [65536]", "servers.s.host_ports[0] must be from 1 to 65535, not 65536".to_owned()),
        ("host_ports = [\"5432\"]", "servers.s.host_ports[0] must be a whole number, not a string".to_owned()),
        ("host_ports = [1, 2, 1]", "servers.s.host_ports[2] stands there twice".to_owned()),
        (
            "network = \"none\"\negress = [\"a.org:1\"]",
            "servers.s.egress cannot stand beside network = \"none\": leave that out".to_owned(),
        ),
        ("network = \"bridge\"\negress = [\"a.org:1\"]", format!("servers.s.egress {beside}")),
        ("network = \"bridge\"\nhost_ports = [5432]", format!("servers.s.host_ports {beside}")),
        (
            "network = \"egress\"",
            "servers.s.network = \"egress\" needs what may be reached: egress = [\"host:port\"] or host_ports = [port]"
                .to_owned(),
        ),
    ] {
        assert_eq!(of_server(line), said);
    }
    for (limits, said) in [
        ("connection = 1", "unknown key \"connection\" in servers.s.egress_limits; did you mean \"connections\"?"),
        ("bytes = \"1g\"", "unknown key \"bytes\" in servers.s.egress_limits"),
        ("connections = 0", "servers.s.egress_limits.connections must be from 1 to 1024, not 0"),
        ("connections = 1025", "servers.s.egress_limits.connections must be from 1 to 1024, not 1025"),
        ("bytes_per_day = 5", "servers.s.egress_limits.bytes_per_day must be a string, not a number"),
        ("idle = \"0s\"", "servers.s.egress_limits.idle \"0s\" is not between \"1ms\" and \"168h\""),
        ("connect = \"11m\"", "servers.s.egress_limits.connect must be at most \"10m\", not \"11m\""),
        ("request = \"11m\"", "servers.s.egress_limits.request must be at most \"10m\", not \"11m\""),
    ] {
        assert_eq!(of_server(&format!("host_ports = [1]\negress_limits = {{ {limits} }}")), said);
    }
    for line in ["egress_limits = { idle = \"1h\" }", "network = \"none\"\negress_limits = {}"] {
        let said = "servers.s.egress_limits limits nothing: it is for what egress and host_ports let a server reach";
        assert_eq!(of_server(line), said);
    }
    let many: Vec<u16> = (1..=65).collect();
    assert_eq!(of_server(&format!("host_ports = {many:?}")), "servers.s.host_ports must not have more than 64 entries");
    let small =
        |total: &str| toml_faults(&format!("[limits.total]\n{total}\n[servers.a]\nimage = \"i\"\nhost_ports = [1]"));
    for total in ["memory = \"64m\"", "cpus = 1"] {
        let said = small(total);
        assert!(
            said.ends_with(
                "servers.a has no room: the guard of its network takes 64 MiB and 1 of a processor of limits.total"
            ),
            "{said}"
        );
    }
    let said = toml_faults("[limits.total]\ncpus = 0.2\n[servers.a]\nimage = \"i\"\nnetwork = \"bridge\"");
    assert!(said.ends_with("the fence of its network takes 16 MiB and 0.2 of a processor of limits.total"), "{said}");
}

#[test]
fn mounts_are_judged_and_their_places_used_once() {
    let mount = |line: &str| of_server(&format!("mounts = [{line}]"));
    let said = mount("{ host = \"/etc\", at = \"/x\" }");
    assert!(said.starts_with("servers.s.mounts[0].host \"/etc\" "), "{said}");
    assert!(said.ends_with("is refused: it belongs to the system or to a container engine"), "{said}");
    assert_eq!(
        mount("{ host = \"notes\", at = \"/x\" }"),
        "servers.s.mounts[0].host must be an absolute path, not \"notes\""
    );
    assert_eq!(mount("{ host = \"/usr/share\" }"), "servers.s.mounts[0] needs \"at\"");
    assert_eq!(
        mount("{ host = \"/usr/share\", at = \"/proc/x\" }"),
        "servers.s.mounts[0].at \"/proc/x\" is taken by the compartment itself"
    );
    assert_eq!(
        mount("{ host = \"/usr/share\", at = \"/x\", write = 1 }"),
        "servers.s.mounts[0].write must be true or false, not a number"
    );
    let twice = "{ host = \"/usr/share\", at = \"/x\" }, { host = \"/usr/share\", at = \"/x\" }";
    assert_eq!(mount(twice), "servers.s.mounts[1] is the second use of \"/x\"");
    assert_eq!(
        of_server("state = \"/x\"\nmounts = [{ host = \"/usr/share\", at = \"/x\" }]"),
        "servers.s.mounts[0] is the second use of \"/x\""
    );
    let said = mount("{ type = \"bind\", source = \"/var/run/docker.sock\" }");
    assert!(said.contains("unknown key \"type\" in servers.s.mounts[0]") && said.contains("\"source\""), "{said}");
}

#[test]
fn the_other_tables_have_bounds_too() {
    for (text, said) in [
        ("[limits.role.root]\nburst = 1", "limits.role.root must be \"guest\" or \"user\" or \"admin\", not \"root\""),
        ("[limits.total]\ninstances = 0", "limits.total.instances must be from 1 to 10000, not 0"),
        ("[limits]\nrate = \"fast\"", "limits.rate \"fast\" is no rate such as \"2/s\", \"120/min\" or \"600/h\""),
        (
            "[front.stdio]\nid = \"guest\"",
            "front.stdio.id must not be \"guest\", which stands for somebody without an identity",
        ),
        ("[front.stdio]\nid = \"a b\"", "front.stdio.id may hold only letters, digits and . _ - @ +, not \"a b\""),
        ("[gateway]\nname = \" \"", "gateway.name must be 1 to 64 printable characters, not \" \""),
        ("[audit]\npath = \"../a\"", "audit.path must be the path of a file, without \"..\", not \"../a\""),
        ("[audit]\nsync = \"never\"", "audit.sync must be \"always\" or \"batch\", not \"never\""),
        ("[audit]\narguments = \"none\"", "audit.arguments must be \"hash\", not \"none\""),
        ("gateway = 1", "gateway must be a table, not a number"),
        ("servers = []", "servers must be a table, not a list"),
    ] {
        let faults = toml_faults(text);
        assert!(faults.ends_with(&format!(": {said}")), "{faults}");
    }
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.toml");
    std::fs::write(&path, b"name = \"\xff\"").unwrap();
    let said = crate::config::resolve::load(&path, &crate::config::testing::variables()).unwrap_err().to_string();
    assert!(said.ends_with("b.toml: is not UTF-8"), "{said}");
    assert!(loaded("b.json", "").is_err(), "an empty JSON file holds nothing");
}

#[test]
fn nothing_is_mounted_within_what_a_server_may_change() {
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(host.join("notes")).unwrap();
    let mount = |at: &str| format!("{{ host = {:?}, at = {at:?} }}", host.join("notes"));
    for (keys, names) in [
        (format!("state = \"/data\"\nmounts = [{}]", mount("/data/a")), "/data/a"),
        (format!("mounts = [{}, {}]", mount("/a/b"), mount("/a")), "/a/b"),
        ("state = \"/home/mcp\"\ncache = true".to_owned(), "/home/mcp/.cache"),
    ] {
        let told = of_server(&keys);
        assert!(told.contains(&format!("has \"{names}\" in ")), "{told}");
    }
}
