//! Every client with every kind of file: the exact bytes after the entry was put in, and those from before once it was
//! taken out.

use super::*;

/// A file as somebody has written it; `KEY` is where the client's servers are.
const OTHERS: &str = r#"// settings of mine
{
  "theme": "dark", // at night
  "KEY": {
    // for work
    "notes": {
      "command": "npx",
      "args": ["-y", "notes-mcp", "--key=s3cr3t-argument"],
      "env": { "NOTES_TOKEN": "s3cr3t-env" }
    },
    "wiki": { "url": "https://wiki.example/mcp?t=s3cr3t-url", "headers": { "Authorization": "s3cr3t-header" } } // far
    /* no more */
  },
  "last": 1e400
}
"#;

/// The kinds of files, by name; none where there is no file.
fn kinds(key: &str) -> Vec<(&'static str, Option<String>)> {
    let others = OTHERS.replace("KEY", key);
    let plain = |text: &str| Some(text.replace("KEY", key));
    let commas = others.replace("} } // far", "} }, // far").replace("1e400", "1e400,");
    vec![
        ("no file", None),
        ("empty file", plain("")),
        ("empty object", plain("{}")),
        ("nothing but other settings", plain("{\n    \"numStartups\": 3,\n    \"projects\": {}\n}")),
        ("no servers", plain("{\n  \"KEY\": {}\n}\n")),
        ("nothing but a comment", plain("// servers go here\n")),
        ("other servers and comments", Some(others.clone())),
        ("commas at the end", Some(commas)),
        ("CRLF", Some(others.replace('\n', "\r\n"))),
        ("byte order mark", Some(format!("\u{feff}{others}"))),
        ("tabs", Some(others.replace("  ", "\t"))),
        ("one line", plain(r#"{"a":[1,2],"KEY":{"notes":{"command":"npx","args":["notes"]}}}"#)),
        ("one line with spaces", plain("{\"KEY\": {\"notes\": {\"command\": \"npx\"}}}\n")),
        (
            "ours from elsewhere",
            plain(
                "{\n  \"KEY\": {\n    \"bulkhead\": { \"command\": \"/old/bulkhead\", \"args\": [], \"disabled\": true }\n  }\n}\n",
            ),
        ),
    ]
}

/// Bytes that do not show, made to show.
fn visible(text: &str) -> String {
    text.replace('\u{feff}', "<BOM>").replace('\r', "<CR>").replace('\t', "<TAB>")
}

#[test]
fn every_client_and_every_kind_of_file() {
    let mut wrong = Vec::new();
    for (client, file, folder, key) in CLIENTS {
        let mut told = String::new();
        for (kind, before) in kinds(key) {
            let home = Home::new();
            let file = home.0.path(file);
            fs::create_dir_all(home.0.path(folder)).unwrap();
            if let Some(text) = &before {
                write(&file, text);
                fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            }
            let said = home.prints(&["install", client]);
            assert!(said.contains("installed in") && !said.contains("s3cr3t"), "{said}");
            let after = read(&file);
            let shown = visible(&home.named(&after));
            told.push_str(&format!("=== {kind}\n{shown}{}", if shown.ends_with('\n') { "" } else { "<END>\n" }));
            assert_eq!(mode(&file), if before.is_some() { 0o640 } else { 0o600 }, "{client}, {kind}");
            assert_eq!(backup(&file, 1), before, "{client}, {kind}");

            let again = home.prints(&["install", client]);
            assert!(again.starts_with("already installed in @HOME/"), "{again}");
            assert_eq!((read(&file), backup(&file, 2)), (after.clone(), None), "{client}, {kind}");

            home.prints(&["uninstall", client]);
            match before.filter(|_| kind != "ours from elsewhere") {
                Some(before) => assert_eq!(read(&file), before, "{client}, {kind}"),
                None => assert!(!read(&file).contains("bulkhead"), "{client}, {kind}"),
            }
            assert_eq!(backup(&file, if kind == "no file" { 1 } else { 2 }).unwrap(), after, "{client}, {kind}");
        }
        // Those that differ in nothing but where the file is have one in common.
        let golden = repository("tests/it/install").join(format!("{key}.golden"));
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            let aside = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{client}.golden"));
            fs::write(&aside, &told).unwrap();
            wrong.push(format!("{} is not what came out, which is in {}", golden.display(), aside.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn backup(file: &Path, n: usize) -> Option<String> {
    fs::read_to_string(format!("{}.bulkhead-backup-{n}", file.display())).ok()
}

#[test]
fn a_dry_run_shows_the_change_without_anything_secret_and_makes_none() {
    let expected = r#"would change @HOME/.cursor/mcp.json
(values that are not ours are shown as …)
@@ -8,7 +8,11 @@
       "args": ["…", "…", "…"],
       "env": { "NOTES_TOKEN": "…" }
     },
-    "wiki": { "url": "…", "headers": { "Authorization": "…" } } // …
+    "wiki": { "url": "…", "headers": { "Authorization": "…" } }, // …
+    "bulkhead": {
+      "command": "@PROGRAM",
+      "args": ["--config", "@HOME/bulkhead.toml", "serve"]
+    }
     /* … */
   },
   "last": …
"#;
    let before = OTHERS.replace("KEY", "mcpServers");
    let (home, file) = Home::with(&before);
    assert_eq!(home.prints(&["install", "cursor", "--dry-run"]), expected);
    assert_eq!(read(&file), before);
    assert_eq!(names(&home.0.path(".cursor")), BTreeSet::from(["mcp.json".to_owned()]));

    home.prints(&["install", "cursor"]);
    let after = read(&file);
    let back = home.prints(&["uninstall", "cursor", "--dry-run"]);
    assert!(back.contains("-      \"command\": \"@PROGRAM\",") && !back.contains("s3cr3t"), "{back}");
    assert_eq!(read(&file), after);
    let forced = before.replace("\"notes\"", "\"bulkhead\"");
    fs::write(&file, forced).unwrap();
    let shown = home.prints(&["install", "cursor", "--dry-run", "--force"]);
    assert!(shown.contains("+      \"command\": \"@PROGRAM\"") && !shown.contains("s3cr3t"), "{shown}");
}
