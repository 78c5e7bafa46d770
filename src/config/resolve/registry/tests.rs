//! `[registry]` and the variables that stand in for it.

use crate::config::env::Fixed;
use crate::config::registry::{Index, Login, Registry};
use crate::config::resolve::load;
use crate::config::testing::{toml, toml_faults};
use crate::config::{Runner, Sensitive};

fn with(text: &str, variables: &[(&str, &str)]) -> Registry {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.toml");
    std::fs::write(&path, text).unwrap();
    let env = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(&path, &Fixed(env.collect())).unwrap_or_else(|faults| panic!("{faults}")).registry
}

fn index(url: &str, login: Option<Login>) -> Index {
    Index { url: url.to_owned(), login, lacks: None }
}

fn token(text: &str) -> Option<Login> {
    Some(Login::Token(Sensitive::new(text)))
}

fn password(user: &str, text: &str) -> Option<Login> {
    Some(Login::Password { user: user.to_owned(), password: Sensitive::new(text) })
}

#[test]
fn nothing_written_and_nothing_set_is_nothing() {
    assert_eq!(with("", &[]), Registry::default());
    assert_eq!(with("[registry]\n[registry.npm]\n[registry.pypi]\n", &[]), Registry::default());
}

#[test]
fn the_table_says_where_and_as_whom() {
    let text = "[registry]\nproxy = \"http://proxy:3128\"\nno_proxy = [\"*.org\"]\n\
        [registry.npm]\nurl = \"https://NPM.example.org:443/repo\"\ntoken = \"env:T\"\n\
        scopes = { \"@acme\" = { url = \"https://acme/npm/\", username = \"ci\", password = \"env:P\" } }\n\
        [registry.pypi]\nurl = \"https://pypi/simple\"\nusername = \"u\"\npassword = \"env:P\"\n";
    let found = with(text, &[("T", "t0k"), ("P", "p:w"), ("npm_config_registry", "https://other/")]);
    assert_eq!(found.npm.index, Some(index("https://npm.example.org/repo/", token("t0k"))));
    assert_eq!(found.npm.scopes["@acme"], index("https://acme/npm/", password("ci", "p:w")));
    assert_eq!(found.pypi, Some(index("https://pypi/simple", password("u", "p:w"))));
    assert_eq!(found.proxy.https.as_ref().unwrap().reveal(), "http://proxy:3128");
    assert_eq!(
        (found.proxy.http.clone(), found.proxy.except.clone()),
        (found.proxy.https.clone(), vec!["*.org".into()])
    );
    assert!(!format!("{found:?}").contains("t0k"));
    assert_eq!((found.lacks(Runner::Npx), found.lacks(Runner::Uvx)), (None, None));
}

#[test]
fn the_usual_variables_stand_in_and_a_login_in_one_is_a_secret() {
    let found = with(
        "",
        &[
            ("npm_config_registry", "https://ci:p%40ss@npm/"),
            ("UV_INDEX_URL", "https://pypi/simple/"),
            ("PIP_INDEX_URL", "https://never/"),
            ("HTTPS_PROXY", "http://u:s3cr3t@proxy:3128"),
            ("https_proxy", ""),
            ("http_proxy", "proxy:3129"),
            ("NO_PROXY", "a.org, .b.org,"),
        ],
    );
    assert_eq!(found.npm.index, Some(index("https://npm/", password("ci", "p@ss"))));
    assert_eq!(found.pypi, Some(index("https://pypi/simple/", None)));
    assert_eq!(found.proxy.https.as_ref().unwrap().reveal(), "http://u:s3cr3t@proxy:3128");
    assert_eq!(found.proxy.http.as_ref().unwrap().reveal(), "http://proxy:3129");
    assert_eq!(found.proxy.except, ["a.org", ".b.org"]);
    let shown = format!("{found:?}");
    assert!(!shown.contains("s3cr3t") && !shown.contains("p@ss") && !shown.contains("p%40ss"), "{shown}");
    assert_eq!(with("", &[("UV_DEFAULT_INDEX", "company=https://pypi/x")]).pypi, Some(index("https://pypi/x", None)));
    assert_eq!(with("[registry]\nproxy = \"none\"\n", &[("HTTPS_PROXY", "http://p:1")]).proxy.https, None);
}

#[test]
fn what_only_a_bake_needs_is_lacking_there_alone() {
    let lacking =
        |text: &str, variables: &[(&str, &str)], runner| with(text, variables).lacks(runner).map(str::to_owned);
    let npm = "[registry.npm]\nurl = \"https://npm/\"\ntoken = \"env:NOPE\"\n";
    let said = lacking(npm, &[], Runner::Npx);
    assert_eq!(said.unwrap(), "registry.npm.token needs the variable \"NOPE\", which is not set");
    assert_eq!(lacking(npm, &[], Runner::Uvx), None);
    let said = lacking("", &[("PIP_INDEX_URL", "http://pypi/simple")], Runner::Uvx).unwrap();
    assert!(
        said.starts_with("the variable PIP_INDEX_URL names an address with http://")
            && said.ends_with("registry.pypi.url")
    );
    let said = lacking("", &[("https_proxy", "http://127.0.0.1:3128")], Runner::Npx).unwrap();
    assert!(said.contains("https_proxy names this machine's own loopback"), "{said}");
    let said = lacking("", &[("SSL_CERT_FILE", "/no/such")], Runner::Npx).unwrap();
    assert!(said.starts_with("the variable SSL_CERT_FILE names the file \"/no/such\", which "), "{said}");
    let two = lacking(npm, &[("NOPE", "two\nlines")], Runner::Npx).unwrap();
    assert!(
        two.starts_with("registry.npm.token comes from a place that holds more") && !two.contains("lines"),
        "{two}"
    );
    let proxy = lacking("[registry]\nproxy = \"env:P\"\n", &[("P", "http://u:s3cr3t@h/x")], Runner::Npx).unwrap();
    assert!(proxy.starts_with("what registry.proxy leads to must be") && !proxy.contains("s3cr3t"), "{proxy}");
}

#[test]
fn plain_http_is_taken_where_it_is_written_and_noted() {
    let config = toml("[registry.pypi]\nurl = \"http://pypi/simple\"\nusername = \"u\"\npassword = \"env:TOK\"\n");
    assert_eq!(config.registry.pypi.unwrap().url, "http://pypi/simple");
    let note = "registry.pypi.url is http://: whoever is on the way can say what a package is until it is locked, and \
                everybody there reads the login";
    assert_eq!(config.notes, [note]);
}

#[test]
fn only_certificates_are_taken_from_a_file_and_a_key_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    let text = format!("[registry]\nca = {path:?}\n");
    let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(
        &path,
        format!("# ours\n{block}-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n{block}"),
    )
    .unwrap();
    assert_eq!(with(&text, &[("SSL_CERT_FILE", "/no/such")]).ca.unwrap(), block.repeat(2));
    std::fs::write(&path, "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(with(&text, &[]).lacks(Runner::Npx).unwrap().ends_with("which holds no certificate in PEM form"));
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    for (text, says) in [
        ("[registry]\nregistry = \"x\"\n", "unknown key \"registry\" in registry"),
        ("[registry]\nca = \"ca.pem\"\n", "registry.ca must be the absolute path of a file"),
        ("[registry]\nproxy = \"http://u:s3cr3t@p:1\"\n", "registry.proxy must not hold a login"),
        ("[registry]\nproxy = \"http://p:1/path\"\n", "registry.proxy must be the address of a proxy"),
        ("[registry]\nproxy = \"socks5://p:1\"\n", "registry.proxy must be an address"),
        ("[registry]\nno_proxy = [\"a b\"]\n", "must be a host, a domain or a network"),
        ("[registry.npm]\nurl = \"https://u:s3cr3t@h/\"\n", "registry.npm.url must not hold a login"),
        ("[registry.npm]\nurl = \"ftp://h/\"\n", "registry.npm.url must be an address"),
        ("[registry.npm]\nurl = \"https://h/?t=s3cr3t\"\n", "registry.npm.url must be an address without \"?\""),
        ("[registry.npm]\nurl = \"https://h/${X}\"\n", "registry.npm.url must be an address"),
        ("[registry.npm]\nurl = \"https://h/;x\"\n", "registry.npm.url must be an address"),
        ("[registry.npm]\nurl = \"http://localhost:4873\"\n", "registry.npm.url names this machine's own loopback"),
        ("[registry.npm]\nurl = \"http://[::1]:4873\"\n", "registry.npm.url names this machine's own loopback"),
        ("[registry.npm]\nurl = \"https://h\"\ntoken = \"s3cr3t\"\n", "registry.npm.token must be \"env:NAME\""),
        ("[registry.npm]\ntoken = \"env:TOK\"\n", "registry.npm has a login and no \"url\""),
        ("[registry.npm]\nurl = \"https://h\"\nusername = \"u\"\n", "registry.npm needs \"token\" alone, or"),
        (
            "[registry.npm]\nurl = \"https://h\"\nscope = 1\n",
            "unknown key \"scope\" in registry.npm; did you mean \"scopes\"",
        ),
        ("[registry.npm.scopes.acme]\nurl = \"https://h\"\n", "registry.npm.scopes.acme is no scope"),
        ("[registry.npm.scopes.\"@a\"]\n", "registry.npm.scopes.\"@a\" needs the \"url\" of its registry"),
        ("[registry.pypi]\nurl = \"https://h\"\ntoken = \"env:TOK\"\n", "unknown key \"token\" in registry.pypi"),
        (
            "[registry.pypi]\nurl = \"https://h\"\npassword = \"env:TOK\"\n",
            "registry.pypi needs \"username\" and \"password\"",
        ),
        ("[registry.pypi]\nextra = [\"https://h\"]\n", "registry.pypi.extra is not taken: with two indexes"),
    ] {
        let said = toml_faults(text);
        assert!(said.contains(says) && !said.contains("s3cr3t"), "{text}{said}");
    }
}
