//! What good files mean: defaults, every key, and that both languages mean the same.

use std::path::Path;
use std::time::Duration;

use crate::config::testing::{json, loaded, toml};
use crate::config::{Config, Names, Network, RateLimits, Run, Runner, Server, Share, Start, Sync};
use crate::egress::passage::Limits;
use crate::egress::rule::{Rule, Rules};
use crate::name::Role;

fn rates(rates: RateLimits) -> (u32, u32, u32) {
    (rates.per_minute, rates.burst, rates.concurrent)
}

fn only(config: Config) -> Server {
    assert_eq!(config.servers.len(), 1);
    config.servers.into_iter().next().unwrap()
}

#[test]
fn an_empty_file_means_the_defaults() {
    let config = toml("");
    assert_eq!((config.gateway.name.as_str(), config.gateway.names), ("bulkhead", Names::Prefixed));
    assert_eq!(config.gateway.start, Start::OnDemand);
    assert_eq!((config.stdio.id.as_str(), config.stdio.role), ("me", Role::User));
    assert_eq!((config.audit.path.as_path(), config.audit.sync), (Path::new("audit.jsonl"), Sync::Always));
    assert_eq!(rates(config.limits.of(Role::Guest)), (10, 5, 2));
    assert_eq!(rates(config.limits.of(Role::User)), (120, 20, 16));
    assert_eq!(rates(config.limits.of(Role::Admin)), (120, 20, 16));
    assert_eq!((config.total.memory, config.total.cpus, config.total.instances), (16 << 30, 16.0, 64));
    assert!(config.servers.is_empty() && config.notes.is_empty());
    assert_eq!(config.digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn a_server_that_says_only_what_it_is_gets_the_defaults() {
    let server = only(toml("[servers.time]\npackage = \"uvx:mcp-server-time\""));
    assert_eq!((server.resources.memory, server.resources.cpus, server.resources.pids), (512 << 20, 1.0, 256));
    assert_eq!((server.uid, server.writable_root, server.cache), (10001, false, false));
    assert_eq!((server.min_role, server.share), (Role::User, Share::Principal));
    assert_eq!((server.timeout, server.max_time), (Duration::from_secs(60), Duration::from_secs(600)));
    assert_eq!((server.start_timeout, server.idle_stop), (Duration::from_secs(60), Duration::from_secs(600)));
    assert_eq!(server.max_result, 32 << 20);
    assert!(server.env.is_empty() && server.mounts.is_empty() && server.state.is_none() && server.limits.is_none());
    assert_eq!(server.disabled, None);
}

#[test]
fn six_default_servers_fit_into_the_default_totals() {
    let total = toml("").total;
    let one = only(toml("[servers.a]\nimage = \"a\"")).resources;
    assert!(one.cpus * 6.0 <= total.cpus && one.memory * 6 <= total.memory);
}

#[test]
fn every_key_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().canonicalize().unwrap();
    let config = toml(&format!(
        r#"
        [gateway]
        name = "g"
        names = "bare"
        start = "eager"
        approval = "first-use"
        idle_stop = "5m"
        [front.stdio]
        id = "alice@example.org"
        role = "admin"
        [limits]
        rate = "4/s"
        burst = 7
        concurrent = 3
        [limits.role.guest]
        rate = "1/min"
        [limits.role.admin]
        burst = 99
        [limits.total]
        memory = "2g"
        cpus = 4
        instances = 9
        [audit]
        path = "log/a.jsonl"
        arguments = "hash"
        sync = "batch"
        [servers.time]
        package = "uvx:mcp-server-time[x]@2026.8.31"
        args = ["--zone", "${{NOPE:-UTC}}"]
        with = ["mcp<2"]
        executable = "time-mcp"
        min_role = "guest"
        [servers.repl]
        image = "bulkhead/python-repl"
        command = ["python-repl"]
        args = ["-q"]
        network = "none"
        min_role = "admin"
        memory = "256m"
        cpus = 0.5
        pids = 64
        tools = {{ allow = ["*"], deny = ["dangerous_*"], min_role = {{ run_code = "admin", "x*" = "user" }} }}
        env = {{ TZ = "UTC", HOME = "/x", LD_PRELOAD = "/x.so" }}
        share = "all"
        state = "/data"
        cache = true
        mounts = [{{ host = "{host}", at = "/notes", write = true }}, {{ host = "{host}", at = "/again" }}]
        writable_root = true
        user = 2000
        limits = {{ rate = "30/min", burst = 5 }}
        timeout = "1500ms"
        max_time = "20m"
        start_timeout = "90s"
        idle_stop = "1h"
        max_result = "1m"
        [servers.gpu]
        unisolated = " needs the host's GPU driver "
        command = ["gpu-mcp", "--stdio"]
        args = ["-v"]
        "#,
        host = host.display()
    ));
    assert_eq!(
        (config.gateway.name.as_str(), config.gateway.names, config.gateway.start),
        ("g", Names::Bare, Start::Eager)
    );
    assert_eq!((config.stdio.id.as_str(), config.stdio.role), ("alice@example.org", Role::Admin));
    assert_eq!(rates(config.limits.guest), (1, 5, 2));
    assert_eq!(rates(config.limits.user), (240, 7, 3));
    assert_eq!(rates(config.limits.admin), (240, 99, 3));
    assert_eq!((config.total.memory, config.total.cpus, config.total.instances), (2 << 30, 4.0, 9));
    assert_eq!((config.audit.path.as_path(), config.audit.sync), (Path::new("log/a.jsonl"), Sync::Batch));

    let time = config.server("time").unwrap();
    let Run::Package(package) = &time.run else { panic!("{:?}", time.run) };
    assert_eq!((package.runner, package.name.as_str()), (Runner::Uvx, "mcp-server-time[x]"));
    assert_eq!((package.version.as_deref(), package.executable.as_deref()), (Some("2026.8.31"), Some("time-mcp")));
    assert_eq!(
        (&package.with[..], &package.args[..]),
        (&["mcp<2".to_owned()][..], &["--zone".into(), "UTC".into()][..])
    );
    assert_eq!((time.min_role, time.idle_stop), (Role::Guest, Duration::from_secs(300)));

    let repl = config.server("repl").unwrap();
    let image = Run::Image {
        reference: "bulkhead/python-repl".to_owned(),
        command: Some(vec!["python-repl".to_owned()]),
        args: vec!["-q".to_owned()],
    };
    assert!(repl.run == image);
    assert_eq!((repl.resources.memory, repl.resources.cpus, repl.resources.pids), (256 << 20, 0.5, 64));
    assert_eq!((&repl.tools.allow[..], &repl.tools.deny[..]), (&["*".to_owned()][..], &["dangerous_*".to_owned()][..]));
    assert_eq!(repl.tools.min_role, [("run_code".to_owned(), Role::Admin), ("x*".to_owned(), Role::User)]);
    assert_eq!(repl.env["HOME"].reveal(), "/x");
    assert_eq!((repl.share, repl.state.as_deref(), repl.cache), (Share::All, Some("/data"), true));
    assert_eq!((repl.mounts[0].host.as_path(), repl.mounts[0].at.as_str()), (host.as_path(), "/notes"));
    assert_eq!((repl.mounts[0].write, repl.mounts[1].write), (true, false));
    assert_eq!((repl.writable_root, repl.uid), (true, 2000));
    assert_eq!(rates(repl.limits.unwrap()), (30, 5, 3));
    assert_eq!((repl.timeout, repl.max_time), (Duration::from_millis(1500), Duration::from_secs(1200)));
    assert_eq!((repl.start_timeout, repl.idle_stop), (Duration::from_secs(90), Duration::from_secs(3600)));
    assert_eq!(repl.max_result, 1 << 20);

    let Run::Unisolated { reason, command } = &config.server("gpu").unwrap().run else { panic!() };
    assert_eq!((reason.as_str(), command.join(" ").as_str()), ("needs the host's GPU driver", "gpu-mcp --stdio -v"));
    let order: Vec<_> = config.servers.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(order, ["time", "repl", "gpu"], "the order of the file");
}

#[test]
fn limits_of_what_may_be_reached_have_defaults_and_change_nothing_of_what_runs() {
    let of = |lines: &str| only(toml(&format!("[servers.a]\nimage = \"i\"\nhost_ports = [1]\n{lines}")));
    let defaults = Limits {
        connections: 64,
        bytes_per_day: None,
        connect: Duration::from_secs(15),
        request: Duration::from_secs(30),
        idle: Duration::from_secs(3600),
    };
    assert_eq!(of("").egress_limits, defaults);
    assert_eq!(of("egress_limits = { connections = 3 }").egress_limits, Limits { connections: 3, ..defaults });
    let all = "egress_limits = { connections = 1024, bytes_per_day = \"1g\", connect = \"5s\", request = \"10m\", \
               idle = \"90ms\" }";
    let said = Limits {
        connections: 1024,
        bytes_per_day: Some(1 << 30),
        connect: Duration::from_secs(5),
        request: Duration::from_secs(600),
        idle: Duration::from_millis(90),
    };
    assert_eq!((of(all).egress_limits, of(all).digest), (said, of("").digest));
}

#[test]
fn what_may_be_reached_is_kept_as_written() {
    let network = |lines: &str| only(toml(&format!("[servers.a]\nimage = \"i\"\n{lines}"))).network;
    let guarded = |rules: &str, ports: &[u16]| {
        let rules = rules.split_whitespace().map(|rule| Rule::parse(rule).unwrap());
        Network::Guarded { rules: Rules::new(rules), host_ports: ports.to_vec() }
    };
    let rules = "egress = [\"API.github.com:443\", \"*.example.org:80\"]";
    for (lines, means) in [
        (String::new(), Network::None),
        ("network = \"none\"".to_owned(), Network::None),
        ("network = \"bridge\"".to_owned(), Network::Bridge),
        (rules.to_owned(), guarded("api.github.com:443 *.example.org:80", &[])),
        (format!("network = \"egress\"\n{rules}"), guarded("api.github.com:443 *.example.org:80", &[])),
        ("host_ports = [5432, 6379]".to_owned(), guarded("", &[5432, 6379])),
        ("network = \"none\"\nhost_ports = [5432]".to_owned(), guarded("", &[5432])),
        ("network = \"egress\"\nhost_ports = [5432]".to_owned(), guarded("", &[5432])),
        (format!("{rules}\nhost_ports = [5432]"), guarded("api.github.com:443 *.example.org:80", &[5432])),
    ] {
        assert_eq!(network(&lines), means, "{lines}");
    }
}

#[test]
fn a_guard_counts_in_the_totals() {
    let server = |lines: &str| {
        only(toml(&format!("[limits.total]\nmemory = \"256m\"\ncpus = 1.5\n[servers.a]\nimage = \"i\"\n{lines}")))
    };
    let (alone, guarded) = (server(""), server("host_ports = [1]"));
    assert_eq!((alone.resources.memory, alone.resources.cpus), (256 << 20, 1.0));
    assert_eq!((guarded.resources.memory, guarded.resources.cpus), (192 << 20, 0.5));
    assert_eq!((alone.takes(), guarded.takes().memory, guarded.takes().cpus), (alone.resources, 256 << 20, 1.5));
}

#[test]
fn both_languages_mean_the_same() {
    let toml = only(toml("[servers.a]\nimage = \"i:1\"\ncommand = [\"x\"]\nenv = { K = \"v\" }\nmemory = \"64m\""));
    let json =
        only(json(r#"{"servers": {"a": {"image": "i:1", "command": ["x"], "env": {"K": "v"}, "memory": "64m"}}}"#));
    assert_eq!(toml.digest, json.digest);
    assert!(toml.run == json.run);
}

#[test]
fn byte_order_mark_crlf_comments_and_trailing_commas_are_read() {
    let text = "\u{feff}{\r\n  // team servers\r\n  \"mcpServers\": {\r\n    /* off: \"old\": {\"command\":\"x\"}, */\r\n    \
                \"s1\": {\"command\": \"fake\", \"args\": [\"a//b\", \"c,]\"], \"bulkhead\": {\"image\": \"i\"},},\r\n  },\r\n}\r\n";
    for file in ["b.json", "b.jsonc"] {
        let Run::Image { args, .. } = only(loaded(file, text).unwrap()).run else { panic!() };
        assert_eq!(args, ["a//b", "c,]"]);
    }
    assert_eq!(only(toml("\u{feff}# team\r\n[servers.a]\r\nimage = \"i\" # x\r\n")).name.as_str(), "a");
}

#[test]
fn guests_never_have_more_than_everyone() {
    let limits = toml("[limits]\nrate = \"5/min\"\nburst = 2\nconcurrent = 1").limits;
    assert_eq!(rates(limits.guest), (5, 2, 1));
}

#[test]
fn a_long_timeout_lengthens_the_default_of_max_time_and_a_small_total_caps_the_defaults() {
    let server =
        only(toml("[limits.total]\nmemory = \"128m\"\ncpus = 0.5\n[servers.a]\nimage = \"i\"\ntimeout = \"1h\""));
    assert_eq!(server.max_time, Duration::from_secs(3600));
    assert_eq!((server.resources.memory, server.resources.cpus), (128 << 20, 0.5));
}

#[test]
fn the_digest_follows_what_is_written_and_nothing_else() {
    let digest = |text: &str| only(toml(text)).digest;
    let base = digest("[servers.a]\nimage = \"i\"\nenv = { A = \"1\", B = \"2\" }");
    assert_eq!(base, digest("# moved\n[servers.b]\nenv = { B = \"2\", A = \"1\" }\nmemory = \"512m\"\nimage = \"i\""));
    for other in [
        "image = \"j\"\nenv = { A = \"1\", B = \"2\" }",
        "image = \"i\"\nenv = { A = \"1\", B = \"3\" }",
        "image = \"i\"\nenv = { A = \"1\" }",
        "image = \"i\"\nenv = { A = \"1\" }\nsecrets = { B = \"env:SET\" }",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\ncommand = [\"i\"]",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\nargs = [\"i\"]",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\npids = 255",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\nuser = 3",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\nwritable_root = true",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\negress = [\"a.org:1\"]",
        "image = \"i\"\nenv = { A = \"1\", B = \"2\" }\nhost_ports = [1]",
    ] {
        assert_ne!(base, digest(&format!("[servers.a]\n{other}")), "{other}");
    }
    for policy in
        ["min_role = \"admin\"", "timeout = \"5s\"", "limits = { rate = \"1/min\", burst = 1, concurrent = 1 }"]
    {
        let same = format!("[servers.a]\nimage = \"i\"\nenv = {{ A = \"1\", B = \"2\" }}\n{policy}");
        assert_eq!(base, digest(&same), "{policy} changes nothing of what runs");
    }
}
