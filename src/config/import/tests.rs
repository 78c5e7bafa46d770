//! Entries as other clients write them.

use crate::config::testing::{json, json_faults};
use crate::config::{Config, Package, Run, Runner, Server};

/// One entry of `mcpServers`, called `a`.
fn entry(entry: &str) -> Config {
    json(&format!("{{\"mcpServers\": {{\"a\": {entry}}}}}"))
}

fn server(text: &str) -> Server {
    entry(text).servers.remove(0)
}

#[track_caller]
fn package(text: &str) -> Package {
    match server(text).run {
        Run::Package(package) => package,
        other => panic!("{other:?}"),
    }
}

/// What is wrong with one entry, without the place.
#[track_caller]
fn fault(entry: &str) -> String {
    let said = json_faults(&format!("{{\"mcpServers\": {{\"a\": {entry}}}}}"));
    said.lines().map(|line| line.splitn(4, ':').nth(3).unwrap().trim()).collect::<Vec<_>>().join("\n")
}

fn docker(args: &str) -> String {
    format!(r#"{{"command": "docker", "args": [{args}]}}"#)
}

#[test]
fn npx_becomes_a_package() {
    let plain = package(r#"{"command": "npx", "args": ["-y", "@scope/pkg@1.2.3", "--flag", "-y", "/x"]}"#);
    assert_eq!(
        (plain.runner, plain.name.as_str(), plain.version.as_deref()),
        (Runner::Npx, "@scope/pkg", Some("1.2.3"))
    );
    assert_eq!(plain.args, ["--flag", "-y", "/x"]);
    assert_eq!((plain.executable, plain.with.len()), (None, 0));
    let named = package(r#"{"command": "npx", "args": ["--yes", "-p", "one", "--package=two@2", "run-it", "a"]}"#);
    assert_eq!((named.name.as_str(), named.executable.as_deref()), ("one", Some("run-it")));
    assert_eq!((named.with, named.args), (vec!["two@2".to_owned()], vec!["a".to_owned()]));
    for command in ["npx.cmd", "/usr/local/bin/npx", "C:\\\\Program Files\\\\nodejs\\\\npx.cmd"] {
        assert_eq!(package(&format!(r#"{{"command": "{command}", "args": ["pkg"]}}"#)).name, "pkg", "{command}");
    }
    assert_eq!(package(r#"{"command": "cmd", "args": ["/c", "npx", "-y", "pkg"]}"#).name, "pkg");
    assert_eq!(package(r#"{"command": "npx", "args": ["--", "pkg", "--", "x"]}"#).args, ["--", "x"]);
}

#[test]
fn uvx_becomes_a_package() {
    let plain = package(r#"{"type": "stdio", "command": "uvx", "args": ["mcp-server-time==1.0", "--tz", "UTC"]}"#);
    assert_eq!(
        (plain.runner, plain.name.as_str(), plain.version.as_deref()),
        (Runner::Uvx, "mcp-server-time", Some("1.0"))
    );
    let from = package(r#"{"command": "uvx", "args": ["--from", "pkg[cli]", "--with=mcp<2", "serve", "--from", "x"]}"#);
    assert_eq!((from.name.as_str(), from.executable.as_deref()), ("pkg[cli]", Some("serve")));
    assert_eq!((from.with, from.args), (vec!["mcp<2".to_owned()], vec!["--from".to_owned(), "x".to_owned()]));
}

#[test]
fn options_of_runners_that_are_not_understood_are_refused_by_name() {
    for (command, args, named) in [
        ("npx", r#""--registry=http://x", "p""#, "the npx option \"--registry\" is refused"),
        ("npx", r#""-c", "rm""#, "the npx option \"-c\" is refused"),
        ("npx", r#""-y""#, "npx names no package"),
        ("npx", r#""-p""#, "\"-p\" needs a value"),
        ("uvx", r#""--python", "3.12", "p""#, "the uvx option \"--python\" is refused"),
        ("uvx", r#""--index-url=x", "p""#, "the uvx option \"--index-url\" is refused"),
        ("uvx", r#""--from", "a", "--from", "b", "p""#, "the uvx option \"--from\" is refused"),
        ("npx", r#""-kLITERAL", "p""#, "the npx option \"-k\" is refused"),
        ("uvx", r#""-y", "p""#, "the uvx option \"-y\" is refused"),
    ] {
        let said = fault(&format!(r#"{{"command": "{command}", "args": [{args}]}}"#));
        assert_eq!(said, format!("servers.a cannot be taken over: {named}"));
    }
    let said = fault(r#"{"command": "uvx", "args": ["--from", "git+https://x/y", "z"]}"#);
    assert!(said.starts_with("servers.a.package is no package of PyPI"), "{said}");
}

#[test]
fn a_docker_line_becomes_our_own_container() {
    let config = json(
        r#"{"mcpServers": {"d1": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "KEY", "--env=K2=v2", "-eK3=v3",
            "--name", "fixed", "--pull=always", "img:1", "serve", "--rm"], "env": {"KEY": "k"}}}}"#,
    );
    let d1 = &config.servers[0];
    let image =
        Run::Image { reference: "img:1".to_owned(), command: None, args: vec!["serve".to_owned(), "--rm".to_owned()] };
    assert!(d1.run == image, "{:?}", d1.run);
    let env: Vec<_> = d1.env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
    assert_eq!(env, [("K2", "v2"), ("K3", "v3"), ("KEY", "k")]);
    assert_eq!(d1.disabled, None);
    assert_eq!(
        config.notes,
        [
            "servers.d1: the docker flag \"--name\" is left out, since a fixed name would clash between two instances",
            "servers.d1: the docker flag \"--pull\" is left out, since images are resolved by \"bulkhead lock\", never at a call",
        ]
    );
}

#[test]
fn docker_limits_are_kept_in_our_words() {
    let text = r#"{"command": "/usr/bin/podman", "args": ["run", "-ie", "A=1", "-m=256M", "--cpus", "0.5", "--pids-limit=64",
        "--network", "none", "--init", "--rm=true", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true",
        "-u", "1234:1234", "--", "img"]}"#;
    let server = server(text);
    assert_eq!((server.resources.memory, server.resources.cpus, server.resources.pids), (256 << 20, 0.5, 64));
    assert_eq!((server.uid, server.env["A"].reveal()), (1234, "1"));
}

#[test]
fn docker_flags_that_open_the_compartment_or_are_unknown_are_refused_by_name() {
    for (args, named) in [
        (
            r#""run", "--mount", "type=bind,target=/a", "img""#,
            "the docker flag \"--mount\" with this value is refused: a mount of this kind cannot be kept",
        ),
        (
            r#""run", "-v", "./a:/a", "img""#,
            "the docker flag \"--volume\" with this value is refused: a host path must be absolute, with nothing in it that a \
             shell or a client would replace",
        ),
        (
            r#""run", "--network", "host", "img""#,
            "the docker flag \"--network\" with this value is refused: say what may be reached with \"egress\" or \"host_ports\"",
        ),
        (
            r#""run", "--net=container:x", "img""#,
            "the docker flag \"--net\" with this value is refused: say what may be reached with \"egress\" or \"host_ports\"",
        ),
        (
            r#""run", "--ipc=host", "img""#,
            "the docker flag \"--ipc\" with this value is refused: a compartment shares nothing with the host or another \
             container",
        ),
        (r#""run", "--entrypoint=", "img""#, "the docker flag \"--entrypoint\" with this value is refused"),
        (
            r#""run", "--privileged", "img""#,
            "the docker flag \"--privileged\" is refused: it would lift the whole compartment",
        ),
        (
            r#""run", "--cap-add=ALL", "img""#,
            "the docker flag \"--cap-add\" is refused: a compartment has no capabilities",
        ),
        (
            r#""run", "--security-opt", "seccomp=unconfined", "img""#,
            "the docker flag \"--security-opt\" with this value is refused: nothing of a compartment is taken away",
        ),
        (
            r#""run", "--env-file", "x", "img""#,
            "the docker flag \"--env-file\" is refused: the file is not read; name its variables with \"-e\"",
        ),
        (r#""run", "--frobnicate", "img""#, "the docker flag \"--frobnicate\" is refused: it is not known"),
        (
            r#""run", "-it", "img""#,
            "the docker flag \"-t\" is refused: a server speaks through pipes, and a terminal would change what it says",
        ),
        (
            r#""run", "-d", "img""#,
            "the docker flag \"-d\" is refused: a server speaks through pipes, which a detached one has not",
        ),
        (r#""run", "-p8080:80", "img""#, "the docker flag \"-p\" is refused: nothing connects into a compartment"),
        (
            r#""run", "-w", "/x", "img""#,
            "the docker flag \"-w\" is refused: the working directory is the image's; name one with that directory",
        ),
        (r#""run", "--rm=false", "img""#, "the docker flag \"--rm=false\" is refused: every compartment is so"),
        (r#""run", "-u", "0:5", "img""#, "the docker flag \"--user\" with this value is refused"),
        (r#""run", "-m", "1t", "img""#, "the docker flag \"--memory\" with this value is refused"),
        (r#""run", "-m", "1g", "--memory=2g", "img""#, "it says \"memory\" twice"),
        (r#""run", "-e", "A=1", "-eA=2", "img""#, "the variable \"A\" is set twice"),
        (r#""run", "-i""#, "it names no image"),
        (r#""run", "-e""#, "\"--env\" needs a value"),
        (r#""exec", "-i", "c1", "sh""#, "docker \"exec\" is refused; only \"run\" can be"),
        (r#""compose", "up""#, "docker \"compose\" is refused; only \"run\" can be"),
        (r#""--host=tcp://x", "run", "img""#, "docker \"--host\" is refused; only \"run\" can be"),
        ("", "it does not say \"run\""),
    ] {
        assert_eq!(fault(&docker(args)), format!("servers.a cannot be taken over: {named}"));
    }
    let every = [
        "--pid=host",
        "--uts=host",
        "--userns=host",
        "--device=/dev/kvm",
        "--gpus=all",
        "--sysctl=a=b",
        "--add-host=a:1",
    ];
    for flag in
        every.into_iter().chain(["--cgroup-parent=/x", "--volumes-from=x", "--link=x", "--group-add=0", "--runtime=x"])
    {
        let said = fault(&docker(&format!(r#""run", "{flag}", "img""#)));
        let name = flag.split('=').next().unwrap();
        assert!(said.contains(&format!("the docker flag {name:?} is refused: ")), "{said}");
    }
    assert!(fault(&docker(r#""run", "-v", "/:/host", "img""#)).contains("servers.a.mounts[0].host"));
    assert!(fault(&docker(r#""run", "-v", "/var/run/docker.sock:/s", "img""#)).contains("servers.a.mounts[0].host"));
    assert!(fault(&docker(r#""run", "-u", "0", "img""#)).contains("servers.a.user must be a number from 1"));
    assert!(fault(&docker(r#""run", "--pids-limit=-1", "img""#)).contains("servers.a.pids must be from 1"));
    assert!(fault(&docker(r#""run", "img --privileged""#)).contains("servers.a.image is no image reference"));
}

#[test]
fn docker_mounts_are_read_only_unless_writing_was_asked_for() {
    let dir = tempfile::tempdir_in("/var/lib").or_else(|_| tempfile::tempdir()).unwrap();
    let host = dir.path().canonicalize().unwrap();
    let shown = host.to_str().unwrap();
    let config = entry(&docker(&format!(
        r#""container", "run", "-v", "{shown}:/a", "--volume={shown}:/b:rw", "--mount", "type=bind,src={shown},dst=/c,readonly",
            "-v", "notes:/data", "--tmpfs", "/tmp:size=1m", "--entrypoint", "/serve", "--ipc=private", "--network=bridge",
            "--label", "a=b", "--platform=linux/amd64", "img", "x""#
    )));
    let server = &config.servers[0];
    let mounts: Vec<_> = server.mounts.iter().map(|m| (m.host == host, m.at.as_str(), m.write)).collect();
    assert_eq!(mounts, [(true, "/a", false), (true, "/b", true), (true, "/c", false)]);
    assert_eq!((server.state.as_deref(), &server.network), (Some("/data"), &crate::config::Network::None));
    let Run::Image { command, args, .. } = &server.run else { panic!() };
    assert_eq!((command.as_deref(), args.as_slice()), (Some(&["/serve".to_owned()][..]), &["x".to_owned()][..]));
    assert_eq!(
        config.notes,
        [
            "servers.a: the mount at \"/a\" is read-only, since nothing says that it may be written to",
            "servers.a: the volume is a new one, and empty",
            "servers.a: there is no network unless \"egress\" says what may be reached",
            "servers.a: the docker flag \"--label\" is left out, since labels are the gateway's own",
            "servers.a: the docker flag \"--platform\" is left out, since the image is taken as the engine has it",
        ]
    );
}

#[test]
fn other_runners_of_packages_are_the_same_packages() {
    for (command, args, runner, name, rest) in [
        ("npm", r#""exec", "--yes", "@s/p@1", "--", "-x", "a""#, Runner::Npx, "@s/p", "-x a"),
        ("npm", r#""x", "--package=p@1", "--", "run", "-x""#, Runner::Npx, "p", "-x"),
        ("pnpm", r#""dlx", "p@1", "-x""#, Runner::Npx, "p", "-x"),
        ("yarn", r#""dlx", "-q", "p@1""#, Runner::Npx, "p", ""),
        ("bunx", r#""-y", "p@1", "a""#, Runner::Npx, "p", "a"),
        ("bun", r#""x", "p@1", "a""#, Runner::Npx, "p", "a"),
        ("uv", r#""tool", "run", "--from", "p@1", "run", "a""#, Runner::Uvx, "p", "a"),
        ("pipx", r#""run", "--spec", "p==1", "run", "a""#, Runner::Uvx, "p", "a"),
        ("python", r#""-m", "pipx", "run", "p==1""#, Runner::Uvx, "p", ""),
    ] {
        let package = package(&format!(r#"{{"command": "{command}", "args": [{args}]}}"#));
        let found = (package.runner, package.name.as_str(), package.version.as_deref(), package.args.join(" "));
        assert_eq!(found, (runner, name, Some("1"), rest.to_owned()), "{command} {args}");
    }
    for (command, args, said) in [
        ("npm", r#""exec", "p", "-x""#, "the npm exec option \"-x\" is refused"),
        ("npm", r#""exec", "-c", "rm""#, "the npm exec option \"-c\" is refused"),
        ("bunx", r#""--bun", "p""#, "the bunx option \"--bun\" is refused"),
        ("pipx", r#""run", "--with", "q", "p""#, "the pipx run option \"--with\" is refused"),
        (
            "uv",
            r#""tool", "run", "--with-requirements", "r", "p""#,
            "the uv tool run option \"--with-requirements\" is refused",
        ),
        ("uv", r#""run", "server.py""#, "the command \"uv\" is none of npx, uvx, docker run"),
        ("npm", r#""start""#, "the command \"npm\" is none of npx, uvx, docker run"),
    ] {
        let found = fault(&format!(r#"{{"command": "{command}", "args": [{args}]}}"#));
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn docker_variables_come_from_the_entry_then_from_bulkhead_then_from_the_gateway() {
    let from_gateway = server(&docker(r#""run", "-e", "TOK", "img""#));
    assert_eq!(from_gateway.env["TOK"].reveal(), "s3cr3t$HOME");
    let missing = server(&docker(r#""run", "-e", "NOPE", "img""#));
    assert_eq!(missing.disabled.unwrap(), "servers.a.secrets.NOPE needs the variable \"NOPE\", which is not set");
    let ours = server(
        r#"{"command": "docker", "args": ["run", "-eX=1", "-e", "KEY", "img"],
            "bulkhead": {"secrets": {"KEY": "env:SET"}, "env": {"Y": "2"}}}"#,
    );
    let env: Vec<_> = ours.env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
    assert_eq!(env, [("KEY", "set"), ("X", "1"), ("Y", "2")]);
    let left = entry(r#"{"command": "docker", "args": ["run", "img"], "env": {"UNUSED": "x"}}"#);
    assert!(left.servers[0].env.is_empty());
    assert_eq!(left.notes, ["servers.a: the variable \"UNUSED\" is left out, since no \"-e\" passes it on"]);
    let said = fault(r#"{"command": "docker", "args": ["run", "img"], "env": ["A=1"]}"#);
    assert_eq!(said, "servers.a.env must be a table, not a list");
    let said = fault(r#"{"command": "docker", "args": ["run", "img"], "env": {"DOCKER_HOST": "tcp://x"}}"#);
    assert_eq!(said, "servers.a cannot be taken over: the variable \"DOCKER_HOST\" would choose another engine");
}

#[test]
fn any_other_command_needs_a_word_on_how_to_run_it() {
    assert_eq!(
        fault(r#"{"command": "/opt/x/server", "args": ["a"]}"#),
        "servers.a cannot be taken over: the command \"/opt/x/server\" is none of npx, uvx, docker run; say how to run it: \
         set bulkhead.image, or bulkhead.unisolated with the reason"
    );
    let imaged =
        server(r#"{"command": "python", "args": ["-m", "x"], "env": {"A": "1"}, "bulkhead": {"image": "py:3"}}"#);
    let image = Run::Image {
        reference: "py:3".to_owned(),
        command: Some(vec!["python".to_owned()]),
        args: vec!["-m".to_owned(), "x".to_owned()],
    };
    assert!(imaged.run == image);
    assert_eq!(imaged.env["A"].reveal(), "1");
    let host = server(r#"{"command": "python", "args": ["-m"], "env": {"A": "1"}, "bulkhead": {"unisolated": "gpu"}}"#);
    let Run::Unisolated { reason, command } = &host.run else { panic!() };
    assert_eq!((reason.as_str(), command.join(" ").as_str()), ("gpu", "python -m"));
    assert_eq!(host.env["A"].reveal(), "1");
    let said = fault(r#"{"command": "tool --token LITERAL"}"#);
    assert!(said.contains("the command \"tool\" is none of") && !said.contains("LITERAL"), "{said}");
    let host = server(r#"{"command": "cmd", "args": ["/c", "x"], "bulkhead": {"unisolated": "gpu"}}"#);
    let Run::Unisolated { command, .. } = &host.run else { panic!() };
    assert_eq!(command.join(" "), "cmd /c x", "on the host the line stays as it is");
    let said = fault(r#"{"command": "docker", "args": ["run", "x"], "bulkhead": {"image": "i"}}"#);
    assert!(said.contains("no container client runs in a container"), "{said}");
}

#[test]
fn a_key_outside_and_inside_is_refused_and_ours_belong_inside() {
    let said = fault(r#"{"command": "npx", "args": ["p"], "env": {"A": "1"}, "bulkhead": {"env": {"B": "2"}}}"#);
    assert!(said.contains("servers.a holds \"env\" twice, outside and inside of \"bulkhead\""), "{said}");
    let said = fault(r#"{"command": "docker", "args": ["run", "-m", "1g", "i"], "bulkhead": {"memory": "2g"}}"#);
    assert_eq!(said, "servers.a cannot be taken over: \"memory\" is given by the command and by \"bulkhead\"");
    let said = fault(r#"{"command": "npx", "args": ["p"], "bulkhead": {"package": "npx:q"}}"#);
    assert!(said.contains("\"package\" is given by the command and by \"bulkhead\""), "{said}");
    let said = fault(r#"{"command": "npx", "args": ["p"], "min_role": "admin", "cwd": "/"}"#);
    assert_eq!(
        said,
        "unknown key \"min_role\" in servers.a; it belongs into servers.a.bulkhead\nunknown key \"cwd\" in servers.a"
    );
    let said = fault(r#"{"command": "npx", "args": ["p"], "bulkhead": {"min_rol": "admin"}}"#);
    assert_eq!(said, "unknown key \"min_rol\" in servers.a; did you mean \"min_role\"?");
}

#[test]
fn what_only_steers_the_client_is_left_out_with_a_note() {
    let config = entry(r#"{"command": "npx", "args": ["p"], "timeout": 60, "autoApprove": [], "disabled": true}"#);
    assert_eq!(config.servers[0].disabled.as_deref(), Some("disabled in the configuration"));
    assert_eq!(
        config.notes,
        [
            "servers.a.timeout is the client's own matter, and is not taken over",
            "servers.a.autoApprove is the client's own matter, and is not taken over"
        ]
    );
}

#[test]
fn remote_entries_and_their_type() {
    let config = entry(r#"{"type": "streamable-http", "url": "https://h/mcp", "headers": {"X-Team": "docs"}}"#);
    assert_eq!(config.servers[0].disabled.as_deref(), Some("not yet supported: servers.a.url"));
    assert_eq!(
        fault(r#"{"type": "sse", "command": "npx", "args": ["p"]}"#),
        "servers.a.type must be \"stdio\", not \"sse\""
    );
    assert!(fault(r#"{"type": "ws", "url": "http://h/"}"#).contains("servers.a.type must be \"http\""));
    assert!(fault(r#"{"url": "ftp://h/"}"#).contains("must be an address that begins with http://"));
    assert!(fault(r#"{"url": "http://h/", "command": "npx", "args": ["p"]}"#).contains("cannot stand beside"));
}

#[test]
fn servers_in_json_may_hold_both_kinds_of_entries() {
    let config = json(
        r#"{"gateway": {"name": "g"}, "servers": {"ours": {"image": "i", "command": ["x"]}, "theirs": {"command": "npx", "args": ["p"]},
            "bare": {"bulkhead": {"image": "j"}}}}"#,
    );
    let kinds: Vec<_> = config.servers.iter().map(|s| (s.name.as_str(), s.run.kind())).collect();
    assert_eq!(kinds, [("ours", "image"), ("theirs", "package"), ("bare", "image")]);
    assert_eq!(config.gateway.name, "g");
}
