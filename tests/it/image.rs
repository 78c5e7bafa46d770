//! Images of their own: what ships works without a network, what is current is not built again, and what no compartment
//! would take is refused when it is built.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::engine::try_docker;
use crate::support::site::{BULKHEAD, Ran, ran};
use crate::support::{Serving, Site};

/// A folder of a test alone, and the image it becomes.
struct Own<'a> {
    site: &'a Site,
    name: String,
}

impl<'a> Own<'a> {
    fn new(site: &'a Site, dockerfile: &str) -> Self {
        let own = Own { site, name: format!("test-{}", uuid::Uuid::new_v4().simple()) };
        own.write("Dockerfile", dockerfile);
        own
    }

    fn write(&self, file: &str, text: &str) {
        let folder = self.site.path("images").join(&self.name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
    }

    fn reference(&self) -> String {
        format!("bulkhead/{}", self.name)
    }

    fn build(&self) -> Ran {
        self.site.run(&["image", "build", &self.name])
    }

    /// The image's identity, as the engine knows it.
    fn id(&self) -> Option<String> {
        try_docker(&["image", "inspect", "--format", "{{.Id}}", &self.reference()]).ok()
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let _ = try_docker(&["image", "rm", "--force", &self.reference()]);
    }
}

/// Builds an image that ships, and again, which has nothing to do.
fn build_shipped(site: &Site, name: &str) {
    let first = site.prints(&["image", "build", name]);
    assert!(first.contains(&format!("bulkhead/{name}")) && first.contains("shipped"), "{first}");
    assert!(!first.contains("root"), "{first}");
    let again = site.prints(&["image", "build", name]);
    assert!(again.contains("current") && !again.contains("built"), "{again}");
}

/// Starts the gateway, and a server in it whose compartment is proven, without a network.
fn open_proven(site: &Site, server: &str, tool: &str) -> Serving {
    let mut serving = site.open();
    serving.wait_for_tool(&format!("{server}__{tool}"));
    let shown = site.server_in(server, "ready");
    assert_eq!((&shown["isolation"], &shown["network"]), (&json!("proven"), &json!("none")), "{shown}");
    let controls = shown["instances"][0]["evidence"]["controls"].as_array().unwrap();
    assert!(controls.len() > 20 && controls.iter().all(|control| control["holds"] == true), "{shown}");
    serving
}

#[test]
fn the_python_repl_works_with_nothing_but_what_is_in_its_image() {
    let site = Site::new("[servers.repl]\nimage = \"bulkhead/python-repl\"\ncommand = [\"python-repl\"]\n");
    build_shipped(&site, "python-repl");
    let mut serving = open_proven(&site, "repl", "execute_python");
    let mut run = |code: &str| serving.text("repl__execute_python", json!({"code": code}));
    assert!(run("2**100").contains("1267650600228229401496703205376"));
    run("kept = 41");
    assert!(run("print(kept + 1)").contains("42"));
    let said = run("import socket; socket.create_connection(('1.1.1.1', 53), 5)");
    assert!(said.contains("Network is unreachable"), "{said}");
    let said = run("open('/opt/server/x', 'w')");
    assert!(said.contains("Read-only file system"), "{said}");
    let said = serving.text("repl__list_variables", json!({"all": true}));
    assert!(said.contains("kept = 41"), "{said}");
    serving.failure("repl__install_package", json!({"package": "six"}));
    assert!(serving.close().status.success());
}

#[test]
fn ripgrep_sees_one_directory_and_runs_nothing_that_a_caller_names() {
    let site = Site::new("");
    build_shipped(&site, "ripgrep");
    std::fs::create_dir_all(site.path("notes/sub")).unwrap();
    std::fs::write(site.path("notes/todo.txt"), "one\npaint the boat\n--pre=sh is an option\n").unwrap();
    // Found as it stands only by who runs it.
    std::fs::write(site.path("notes/sub/run.sh"), "echo exec''uted\n").unwrap();
    symlink("/etc/passwd", site.path("notes/link")).unwrap();
    let mounts = format!("mounts = [{{ host = {:?}, at = \"/notes\" }}]\n", site.path("notes"));
    site.configure(&format!(
        "[servers.rg]\nimage = \"bulkhead/ripgrep\"\nargs = [\"/notes\"]\n{mounts}\
         [servers.touch]\nimage = \"bulkhead/ripgrep\"\ncommand = [\"touch\", \"/notes/new\"]\n{mounts}"
    ));
    let mut serving = open_proven(&site, "rg", "search");
    let search = |arguments: Value| ("rg__search", arguments);
    for ((tool, arguments), expected) in [
        (search(json!({"pattern": "boat"})), "todo.txt:2:paint the boat"),
        (
            search(json!({"pattern": "ONE", "ignore_case": true, "context": 1})),
            "todo.txt:1:one\ntodo.txt-2-paint the boat",
        ),
        (search(json!({"pattern": ".", "glob": "*.txt", "max_matches": 1})), "todo.txt:1:one\n... there is more"),
        (search(json!({"pattern": "--pre=sh"})), "todo.txt:3:--pre=sh is an option"),
        (search(json!({"pattern": "executed", "glob": "--pre=sh"})), "nothing found"),
        (("rg__list_files", json!({})), "sub/run.sh\ntodo.txt"),
        (("rg__list_files", json!({"path": "sub"})), "sub/run.sh"),
    ] {
        assert_eq!(serving.text(tool, arguments.clone()), expected, "{arguments}");
    }
    for (arguments, expected) in [
        (json!({"pattern": "root", "path": "../etc"}), "is not in the directory"),
        (json!({"pattern": "root", "path": "/etc/passwd"}), "is not in the directory"),
        (json!({"pattern": "root", "path": "link"}), "is not in the directory"),
        (json!({"pattern": "executed", "path": "--pre=sh"}), "is not in the directory"),
        (json!({"pattern": "("}), "regex parse error"),
        (json!({"pattern": "a\0b"}), "pattern: no string that fits"),
        (json!({"pattern": "a", "context": 11}), "context: no integer that fits"),
        (json!({"pattern": "a", "pre": "sh"}), "unknown: pre"),
    ] {
        let said = serving.failure("rg__search", arguments.clone());
        assert!(said.contains(expected), "{arguments}: {said}");
    }
    assert!(serving.close().status.success());

    let touched = site.run(&["call", "touch", "x"]);
    assert!(touched.stderr.contains("Read-only file system"), "{touched:?}");
    assert!(!site.path("notes/new").exists());
}

#[test]
fn what_is_no_name_of_an_image_is_told_with_those_that_are() {
    let site = Site::new("");
    for (name, said) in [
        ("ripgerp", "there is no image \"ripgerp\"; did you mean \"ripgrep\"?; there are: python-repl, ripgrep"),
        ("../ripgrep", "there is no image \"../ripgrep\""),
        ("base", "run scripts/setup"),
    ] {
        let ran = site.run(&["image", "build", "python-repl", name]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    let unused = site.prints(&["image", "build"]);
    assert!(unused.contains("bulkhead/python-repl") && unused.contains("bulkhead/ripgrep"), "{unused}");
    std::fs::remove_file(site.config()).unwrap();
    let mut bare = site.with_environment(BULKHEAD);
    bare.args(["image", "build", "--json"]);
    let listed = ran(bare);
    let known: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|e| panic!("{e}: {listed:?}"));
    assert_eq!((&known["images"][0]["name"], &known["images"][0]["state"]), (&json!("python-repl"), &Value::Null));
    assert!(listed.stderr.contains("there is no configuration"), "{}", listed.stderr);
}

#[test]
fn what_cannot_be_built_or_no_compartment_would_take_is_refused_and_leaves_no_image() {
    let mut site = Site::new("");
    for (dockerfile, code, said) in [
        ("FROM bulkhead/base\nNONSENSE x\n", 5, "NONSENSE"),
        ("FROM bulkhead/base\nRUN echo 'the reason' >&2; exit 3\n", 5, "the reason"),
        ("FROM bulkhead/base\nVOLUME /data\n", 6, "it wants a volume at /data"),
        ("FROM scratch\nCOPY Dockerfile /\n", 6, "neither an ENTRYPOINT nor a CMD"),
        ("ARG BASE=bulkhead/base:no-such-tag\nFROM ${BASE}\n", 6, "run scripts/setup"),
        ("FROM bulkhead/no-such-one\n", 6, "run: bulkhead image build no-such-one"),
    ] {
        let own = Own::new(&site, dockerfile);
        let ran = own.build();
        assert_eq!(ran.code, Some(code), "{dockerfile}: {}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stdout.contains("failed"), "{dockerfile}: {ran:?}");
        assert_eq!(own.id(), None, "{dockerfile}");
    }
    let own = Own::new(&site, "FROM bulkhead/base\nCOPY secret /secret\n");
    symlink(site.config(), site.path("images").join(&own.name).join("secret")).unwrap();
    let ran = own.build();
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("secret is a link that leads out of its folder"), "{}", ran.stderr);
    drop(own);

    // A broken one, so that the image of that name stays as it is.
    std::fs::create_dir_all(site.path("images/ripgrep")).unwrap();
    std::fs::write(site.path("images/ripgrep/Dockerfile"), "FROM bulkhead/base\nNONSENSE x\n").unwrap();
    let overriding = site.run(&["image", "build", "ripgrep"]);
    assert!(overriding.code == Some(5) && overriding.stderr.contains("overrides the one that ships"), "{overriding:?}");

    let nowhere = site.path("no-engine.sock");
    site.use_engine(&nowhere);
    let down = site.run(&["image", "build", "python-repl"]);
    assert_eq!(down.code, Some(6), "{}", down.stderr);
    assert!(down.stderr.contains("the container engine does not answer"), "{}", down.stderr);
}

#[test]
fn an_image_of_ones_own_is_built_for_the_server_that_uses_it_and_again_when_its_folder_changes() {
    let site = Site::new("");
    let own = Own::new(&site, "FROM bulkhead/base\nCOPY word /word\n");
    own.write("word", "one");
    site.configure(&format!(
        "[servers.fx]\nimage = \"{}\"\n[servers.gx]\nimage = \"bulkhead/base\"\n",
        own.reference()
    ));
    let checked: Value = serde_json::from_str(&site.run(&["check", "--json"]).stdout).unwrap();
    let found = checked["findings"].as_array().unwrap().iter().find(|found| found["what"] == "server fx").unwrap();
    assert_eq!(found["mend"], format!("run: bulkhead image build {}", own.name));

    let build = |args: &[&str]| -> Value {
        let all: Vec<&str> = ["image", "build", "--json"].iter().chain(args).copied().collect();
        let printed: Value = serde_json::from_str(&site.prints(&all)).unwrap();
        assert_eq!(printed["images"].as_array().unwrap().len(), 1, "{printed}");
        printed["images"][0].clone()
    };
    let first = build(&[]);
    assert_eq!((&first["state"], &first["image"]), (&json!("built"), &json!(own.id().unwrap())), "{first}");
    let notes = first["notes"].to_string();
    assert!(notes.contains("ends as root") && notes.contains("what its base does (bash)"), "{notes}");
    assert!(!site.run(&["check"]).stdout.contains("image build"));

    let second = build(&[]);
    assert_eq!(
        (&second["state"], &second["image"], &second["notes"]),
        (&json!("current"), &first["image"], &first["notes"])
    );
    own.write("word", "two");
    let third = build(&[]);
    assert!(third["state"] == "built" && third["image"] != first["image"], "{third}");
    assert!(third["notes"].to_string().contains("does not start until you run: bulkhead approve"), "{third}");
    assert_eq!(build(&["--fresh"])["state"], "built");
    for former in [&first["image"], &third["image"]] {
        let _ = try_docker(&["image", "rm", "--force", former.as_str().unwrap()]);
    }
}

/// What is mounted where a link leads could lie over the engine's init, which sees to all that comes after it.
#[test]
fn an_image_that_leads_a_mount_elsewhere_is_not_started() {
    let site = Site::new("");
    let from = "FROM bulkhead/ripgrep\nUSER 0\nRUN mkdir -p /srv/x && ";
    std::fs::create_dir_all(site.path("notes")).unwrap();
    let notes = site.path("notes").canonicalize().unwrap();
    assert!(site.run(&["image", "build", "ripgrep"]).code == Some(0));
    for (links, told) in [
        // With one command, for afterwards there is no /sbin.
        ("rm /sbin && ln -s /srv/x /sbin\n", "link at \"/sbin\" to \"/srv/x\""),
        ("ln -s /usr/share /srv/x/y\n", "link at \"/srv/x/y\" to \"/usr/share\""),
        ("rmdir /srv/x && ln -s /usr /srv/x\n", "link at \"/srv/x\" to \"/usr\""),
    ] {
        let own = Own::new(&site, &format!("{from}{links}USER 10001\n"));
        assert_eq!(own.build().code, Some(0));
        let mounts = format!("mounts = [{{ host = {notes:?}, at = \"/srv/x/y\" }}]\n");
        site.configure(&format!("[servers.s]\nimage = \"{}\"\n{mounts}", own.reference()));
        let called = site.run(&["call", "s", "list_files"]);
        assert_eq!(called.code, Some(6), "{}", called.stderr);
        assert!(called.stderr.contains(told), "{links}: {}", called.stderr);
    }
}
