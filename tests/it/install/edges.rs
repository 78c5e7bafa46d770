//! What is refused, found, told and survived.

use super::*;

/// Others' servers, one of which is started.
const SERVERS: &str = "{\n  \"mcpServers\": {\n    \"notes\": { \"command\": \"npx\" },\n    \"wiki\": { \"url\": \"https://wiki.example\" }\n  }\n}\n";

#[test]
fn a_file_that_is_not_understood_is_left_as_it_is_and_the_place_is_told() {
    for (client, file, _, key) in CLIENTS {
        let home = Home::new();
        let path = home.0.path(file);
        let check = |text: &str, place: &str, what: &str| {
            let text = text.replace("KEY", key);
            write(&path, &text);
            let before = names(path.parent().unwrap());
            for args in
                [["install", client].as_slice(), &["install", client, "--force", "--create"], &["uninstall", client]]
            {
                let said = home.refused(2, args);
                let expected = format!("@HOME/{file}:{place}: {}, so it was left as it is", what.replace("KEY", key));
                assert!(said.contains(&expected), "{said}, not {expected}");
                assert!(!said.contains("s3cr3t"), "{said}");
            }
            assert_eq!((read(&path), names(path.parent().unwrap())), (text, before), "{client}");
        };
        check("{\n  \"KEY\": {\n    \"a\": {\"command\": \"s3cr3t\"\n", "3:10", "unterminated object");
        check("{\n  \"x\": 1\n  \"KEY\": {}\n}", "2:9", "expected comma");
        check("[]\n", "1:1", "the file must hold an object, { … }");
        check("{\"KEY\": []}", &format!("1:{}", key.len() + 6), "\"KEY\" must be an object, { … }");
        check("{\"KEY\": \"s3cr3t\"}", &format!("1:{}", key.len() + 6), "\"KEY\" must be an object, { … }");
        check("{\"KEY\": {},\n\"KEY\": {}}", "2:1", "duplicate key \"KEY\", first in line 1");
        check(
            "{\"KEY\": {\"bulkhead\": {},\n \"bulkhead\": {}}}",
            "2:2",
            "duplicate key \"bulkhead\", first in line 1",
        );
    }
}

#[test]
fn what_is_no_plain_file_of_text_is_refused() {
    for (client, file, folder, key) in CLIENTS {
        let home = Home::new();
        let path = home.0.path(file);
        fs::create_dir_all(home.0.path(folder)).unwrap();
        let refused = |why: &str| {
            for command in ["install", "uninstall"] {
                let said = home.refused(2, &[command, client]);
                assert!(said.contains(&format!("\"@HOME/{file}\" {why}")), "{said}");
            }
        };
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from(0o600)).unwrap();
        refused("is no regular file");
        fs::remove_file(&path).unwrap();
        symlink("nowhere.json", &path).unwrap();
        refused("is a link to a file that does not exist");
        fs::remove_file(&path).unwrap();
        fs::write(&path, [0xff, 0xfe, b'{', 0, b'}', 0]).unwrap();
        refused("is not UTF-8");
        fs::File::options().write(true).open(&path).unwrap().set_len((64 << 20) + 1).unwrap();
        refused("is larger than 64 MiB");
        fs::remove_file(&path).unwrap();
        write(&path, &format!("{{\"{key}\": {{}}}}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        refused("every user of this machine may write to it");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("is no regular file");
    }
}

#[test]
fn an_entry_of_another_program_is_replaced_only_by_force_and_never_taken_out() {
    for (client, file, _, key) in CLIENTS {
        let home = Home::new();
        let path = home.0.path(file);
        let other = format!(
            "{{\n  \"{key}\": {{\n    \"bulkhead\": {{ \"url\": \"https://x\", \"headers\": {{}} }}\n  }}\n}}\n"
        );
        write(&path, &other);
        let said = home.refused(2, &["install", client]);
        assert!(said.contains("has an entry of that name that starts something else"), "{said}");
        let said = home.refused(3, &["uninstall", client]);
        assert!(said.contains("not installed: \"bulkhead\" in ") && said.contains("it was left alone"), "{said}");
        assert_eq!((read(&path), names(path.parent().unwrap()).len()), (other.clone(), home_names(&path)));
        home.prints(&["install", client, "--name", "mine"]);
        assert!(read(&path).contains("https://x") && read(&path).contains("\"mine\""));
        home.prints(&["uninstall", client, "--name", "mine"]);
        assert_eq!(read(&path), other);
        home.prints(&["install", client, "--force"]);
        assert!(!read(&path).contains("https://x") && read(&path).contains(BULKHEAD));
        home.prints(&["uninstall", client]);
        assert_eq!(read(&path), format!("{{\n  \"{key}\": {{}}\n}}\n"), "what was replaced does not come back");
    }
}

/// How many names a client's directory has: that of Claude Code's file is the home.
fn home_names(path: &Path) -> usize {
    if path.ends_with(".claude.json") { 2 } else { 1 }
}

#[test]
fn a_client_that_was_not_found_gets_a_file_only_where_asked() {
    for (client, file, _, key) in CLIENTS {
        let home = Home::new();
        let said = home.refused(3, &["install", client]);
        assert!(said.contains("was not found: ") && said.contains("--create"), "{said}");
        assert_eq!(names(&home.0.path("")), BTreeSet::from(["bulkhead.toml".to_owned()]), "{client}");
        let said = home.refused(3, &["uninstall", client]);
        assert!(said.contains(&format!("not installed: \"@HOME/{file}\" does not exist")), "{said}");
        let shown = home.prints(&["install", client, "--create", "--dry-run"]);
        assert!(shown.starts_with(&format!("would make @HOME/{file}\n")), "{shown}");
        assert_eq!(names(&home.0.path("")), BTreeSet::from(["bulkhead.toml".to_owned()]), "{client}");
        home.prints(&["install", client, "--create"]);
        let path = home.0.path(file);
        let written: Value = serde_json::from_str(&read(&path)).unwrap();
        assert_eq!(written[key]["bulkhead"]["command"], BULKHEAD);
        assert_eq!(written[key]["bulkhead"]["type"], if client == "vscode" { "stdio".into() } else { Value::Null });
        assert_eq!(mode(&path), 0o600);
    }
}

#[test]
fn a_link_stays_and_the_file_behind_it_is_changed() {
    let (home, link) = Home::with("");
    let target = home.0.path("dotfiles/cursor.json");
    write(&target, SERVERS);
    fs::set_permissions(&target, fs::Permissions::from_mode(0o604)).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("../dotfiles/cursor.json", &link).unwrap();
    home.prints(&["install", "cursor"]);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../dotfiles/cursor.json"));
    assert!(read(&target).contains(BULKHEAD));
    assert_eq!(mode(&target), 0o604);
    assert_eq!(names(&home.0.path("dotfiles")), BTreeSet::from(["cursor.json".to_owned()]));
    let backup = home.0.path(".cursor/mcp.json.bulkhead-backup-1");
    assert_eq!((read(&backup).as_str(), mode(&backup)), (SERVERS, 0o604));
    home.prints(&["uninstall", "cursor"]);
    assert_eq!(read(&target), SERVERS);
}

/// Somebody who is not root.
const NOBODY: u32 = 65534;

fn give_away(paths: &[PathBuf]) {
    paths.iter().for_each(|path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap());
}

#[test]
fn a_directory_that_cannot_be_written_to_leaves_all_as_it_was() {
    let (home, file) = Home::with(SERVERS);
    let folder = home.0.path(".cursor");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Root may write everywhere, so it is somebody else who tries.
        give_away(&[home.0.path(""), home.0.config(), folder.clone(), file.clone()]);
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    for command in ["install", "uninstall"] {
        if command == "uninstall" {
            fs::write(&file, SERVERS.replace("npx", "npx\" }, \"bulkhead\": { \"command\": \"bulkhead")).unwrap();
        }
        let before = read(&file);
        let mut line = home.command(&[command, "cursor"]);
        if is_root {
            line.uid(NOBODY).gid(NOBODY);
        }
        let ran = ran(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("cannot be backed up, so it was left as it is: Permission denied"), "{ran:?}");
        assert_eq!((read(&file), names(&folder).len()), (before, 1));
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_the_client_still_starts_itself_is_told() {
    let (home, _) = Home::with(SERVERS);
    let expected = "installed in @HOME/.cursor/mcp.json
  bulkhead starts @PROGRAM --config @HOME/bulkhead.toml serve
backup: @HOME/.cursor/mcp.json.bulkhead-backup-1
1 other server is still started by Cursor itself, unconfined:
  bulkhead import @HOME/.cursor/mcp.json
1 server at an address is still reached by Cursor itself
restart Cursor to use it
";
    assert_eq!(home.prints(&["install", "cursor"]), expected);
    let again = home.prints(&["install", "cursor"]);
    assert!(again.starts_with("already installed in @HOME/.cursor/mcp.json\n1 other server is still"), "{again}");
    let expected = "taken out of @HOME/.cursor/mcp.json
backup: @HOME/.cursor/mcp.json.bulkhead-backup-2
restart Cursor to end it there
";
    assert_eq!(home.prints(&["uninstall", "cursor"]), expected);
    let said = home.refused(3, &["uninstall", "cursor"]);
    assert!(said.contains("not installed: \"@HOME/.cursor/mcp.json\" has no entry \"bulkhead\""), "{said}");
}

#[test]
fn the_clients_are_listed_with_what_is_found_and_installed() {
    let home = Home::new();
    write(&home.0.path(CURSOR), SERVERS);
    home.prints(&["install", "cursor"]);
    write(&home.0.path(".config/zed/settings.json"), "{ broken");
    write(&home.0.path(".claude.json"), "{\"mcpServers\": {\"bulkhead\": {\"command\": \"x\"}}}");
    fs::create_dir_all(home.0.path(".codeium/windsurf")).unwrap();
    let listed = home.prints(&["install"]);
    assert_eq!(listed, home.prints(&["install", "--list"]));
    let rows: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["CLIENT", "FOUND", "INSTALLED", "FILE"]);
    for row in [
        ["cursor", "yes", "yes", "~/.cursor/mcp.json"],
        ["zed", "yes", "unreadable", "~/.config/zed/settings.json"],
        ["claude-code", "yes", "something else", "~/.claude.json"],
        ["windsurf", "yes", "no", "~/.codeium/windsurf/mcp_config.json"],
        ["vscode", "no", "no", "~/.config/Code/User/mcp.json"],
    ] {
        assert!(rows.iter().any(|r| r == &row), "{row:?} in {listed}");
    }
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let projects = home.prints(&["install", "--list", "--project"]);
    assert_eq!(projects.lines().count(), 4, "{projects}");
}

#[test]
fn a_project_has_an_entry_of_its_own() {
    let home = Home::new();
    fs::create_dir(home.0.path(".vscode")).unwrap();
    for (client, file, key) in [
        ("claude-code", ".mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
        ("cursor", CURSOR, "mcpServers"),
    ] {
        if client == "cursor" {
            home.refused(3, &["install", client, "--project"]);
        }
        home.prints(&["install", client, "--project", "--create"]);
        let written: Value = serde_json::from_str(&read(&home.0.path(file))).unwrap();
        assert_eq!(written[key]["bulkhead"]["command"], BULKHEAD);
    }
    assert!(!home.0.path(".claude.json").exists());
    for client in ["claude-desktop", "windsurf", "zed", "cline"] {
        let said = home.refused(2, &["install", client, "--project"]);
        assert!(said.contains("has no configuration of a project"), "{said}");
    }
}

#[test]
fn variables_and_flags_move_the_file() {
    let mut home = Home::new();
    home.0.set("XDG_CONFIG_HOME", home.0.path("xdg").to_str().unwrap());
    write(&home.0.path("xdg/zed/settings.json"), "{}");
    home.prints(&["install", "zed"]);
    assert!(read(&home.0.path("xdg/zed/settings.json")).contains("context_servers"));
    let said = home.refused(3, &["install", "zed", "--file", "else/where.json"]);
    assert!(said.contains("\"@HOME/else\" does not exist"), "{said}");
    home.prints(&["install", "zed", "--file", "else/where.json", "--create"]);
    assert!(read(&home.0.path("else/where.json")).contains("context_servers"));
    home.0.set("HOME", "");
    let said = home.refused(2, &["install", "cursor"]);
    assert!(said.contains("name it with --file"), "{said}");
}

#[test]
fn what_would_not_start_is_not_installed() {
    let (home, file) = Home::with(SERVERS);
    let said = home.refused(2, &["install", "cursor", "--file", "bulkhead.toml"]);
    assert!(said.contains("bulkhead.toml"), "{said}");
    write(&home.0.path("own.json"), "{\"mcpServers\": {}}");
    let said = home.refused(2, &["--config", "own.json", "install", "cursor", "--file", "own.json"]);
    assert!(said.contains("is our own configuration"), "{said}");
    home.0.configure("[servers.fx]\nimage = \"x\"\nmemroy = 1\n");
    assert!(home.refused(2, &["install", "cursor"]).contains("bulkhead.toml:3:1: unknown key \"memroy\""));
    fs::remove_file(home.0.config()).unwrap();
    assert!(home.refused(2, &["install", "cursor"]).contains("does not exist yet"));
    for args in [
        ["install", "cursor", "--role", "root"].as_slice(),
        &["install", "cursor", "--name", ""],
        &["install", "cursor", "--name", "a\nb"],
        &["install", "emacs"],
        &["install", "cursor", "--project", "--file", "x.json"],
        &["install", "--force"],
        &["install", "--list", "cursor"],
        &["uninstall"],
    ] {
        home.refused(2, args);
    }
    assert_eq!((read(&file).as_str(), names(&home.0.path(".cursor")).len()), (SERVERS, 1));
}

#[test]
fn a_client_that_starts_the_entry_has_a_gateway() {
    let (mut home, file) = Home::with(SERVERS);
    home.0.set("BULKHEAD_STATE", "the state");
    home.0.set("BULKHEAD_CONFIG", "bulkhead.toml");
    home.prints(&["install", "cursor", "--role", "admin"]);
    let written: Value = serde_json::from_str(&read(&file)).unwrap();
    let entry = &written["mcpServers"]["bulkhead"];
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let at = |name: &str| home.0.path(name).to_str().unwrap().to_owned();
    assert_eq!(args, ["--config", &at("bulkhead.toml"), "--state", &at("the state"), "serve", "--role", "admin"]);
    assert_eq!(entry.as_object().unwrap().keys().collect::<Vec<_>>(), ["args", "command"]);
    // As a desktop starts it: from elsewhere, with next to nothing in its environment.
    let mut command = Command::new(entry["command"].as_str().unwrap());
    command.args(args).env_clear().current_dir("/");
    let mut serving = Serving::start(command);
    assert_eq!(serving.initialize()["serverInfo"]["name"], "bulkhead");
    serving.close();
    assert!(home.0.path("the state/audit.jsonl").exists());
}

#[test]
fn whenever_it_is_killed_the_file_is_the_old_one_or_the_new_one() {
    // Large, so that there is a middle of writing to be killed in.
    let old = SERVERS.replace("npx", &"x".repeat(1 << 19));
    let (home, file) = Home::with(&old);
    let start = Instant::now();
    home.prints(&["install", "cursor"]);
    let (whole, new) = (start.elapsed(), read(&file));
    let (mut before, mut after) = (0, 0);
    for round in 0..24_u32 {
        for name in names(&home.0.path(".cursor")) {
            fs::remove_file(home.0.path(".cursor").join(name)).unwrap();
        }
        fs::write(&file, &old).unwrap();
        // Another name of the old file: where its bytes are written over and not replaced, that shows here.
        let kept = home.0.path("kept.json");
        let _ = fs::remove_file(&kept);
        fs::hard_link(&file, &kept).unwrap();
        let mut child =
            home.command(&["install", "cursor"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * round / 20 + Duration::from_micros(100));
        let _ = child.kill();
        child.wait().unwrap();
        match read(&file) {
            text if text == old => before += 1,
            text if text == new => {
                after += 1;
                assert!(read(&home.0.path(".cursor/mcp.json.bulkhead-backup-1")) == old, "the backup is there before");
            }
            _ => panic!("neither the old file nor the new one in round {round}"),
        }
        assert!(read(&kept) == old, "written over in place in round {round}");
    }
    assert_eq!(before + after, 24);
    assert!(before > 0, "nothing was killed in time");
}

#[test]
fn the_owner_of_the_file_stays_the_owner() {
    if !rustix::process::geteuid().is_root() {
        return crate::support::skipped("root, who alone can give files away");
    }
    let (home, file) = Home::with(SERVERS);
    std::os::unix::fs::chown(&file, None, Some(12345)).unwrap();
    home.prints(&["install", "cursor"]);
    let backup = home.0.path(".cursor/mcp.json.bulkhead-backup-1");
    assert_eq!((fs::metadata(&file).unwrap().gid(), fs::metadata(&backup).unwrap().gid()), (12345, 12345));
    std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
    let before = read(&file);
    let said = home.refused(2, &["uninstall", "cursor"]);
    assert!(said.contains("belongs to user 12345"), "{said}");
    assert_eq!(read(&file), before);
    // One of root's may be read, but not become somebody else's.
    let (home, file) = Home::with(SERVERS);
    give_away(&[home.0.path(""), home.0.config(), home.0.path(".cursor")]);
    let mut line = home.command(&["install", "cursor"]);
    line.uid(NOBODY).gid(NOBODY);
    let ran = ran(line);
    assert!(ran.code == Some(2) && ran.stderr.contains("belongs to user 0, not to user 65534"), "{ran:?}");
    assert_eq!((read(&file).as_str(), names(&home.0.path(".cursor")).len()), (SERVERS, 1));
}
