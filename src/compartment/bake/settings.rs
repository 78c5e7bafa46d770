//! What a script is told of registries, and what of that is secret. Pure.
//!
//! All of it goes to the script over its input, and from there to npm and uv as variables of theirs alone: it is in no
//! file, no command line and no label, and in no configuration of a container.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hidden::Hidden;
use crate::config::registry::{Index, Login, Registry};
use crate::config::{Runner, Sensitive};

/// Where npm reads what it is to ask where.
const NPMRC: &str = "/bake/npmrc";
/// Where the certificates are put together.
const CA: &str = "/bake/ca.pem";
/// Those of the runtime image.
const OWN_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The name under which uv knows its index.
const INDEX: &str = "bulkhead";

/// What goes into an order.
#[derive(Default)]
pub(super) struct Settings {
    env: BTreeMap<String, String>,
    files: BTreeMap<&'static str, String>,
    ca: Option<String>,
    secrets: Vec<String>,
}

impl Settings {
    pub fn of(registry: &Registry, runner: Runner) -> Self {
        let mut settings = Settings::default();
        settings.proxy(registry);
        if let Some(ca) = &registry.ca {
            settings.ca = Some(ca.clone());
            settings.set(["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"], CA);
        }
        match runner {
            Runner::Npx => settings.npm(registry),
            Runner::Uvx => settings.pypi(registry.pypi.as_ref()),
        }
        settings
    }

    /// As members of an order.
    pub fn members(&self) -> Value {
        let ca = self.ca.as_ref().map(|text| json!({"at": CA, "beside": OWN_CA, "text": text}));
        json!({"env": self.env, "files": self.files, "ca": ca})
    }

    /// What must not be seen.
    pub fn hidden(&self) -> Hidden {
        Hidden::new(self.secrets.iter().map(String::as_str))
    }

    fn proxy(&mut self, registry: &Registry) {
        let proxy = &registry.proxy;
        // Both spellings: which one is read differs, and another one must not be left to count.
        for (given, names) in
            [(&proxy.https, ["https_proxy", "HTTPS_PROXY"]), (&proxy.http, ["http_proxy", "HTTP_PROXY"])]
        {
            let Some(address) = given.as_ref().map(Sensitive::reveal) else { continue };
            self.set(names, address);
            if let Some((login, _)) = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')) {
                self.secrets.push(login.to_owned());
                self.secrets.extend(login.split_once(':').map(|(_, password)| password.to_owned()));
            }
        }
        if !proxy.except.is_empty() {
            self.set(["no_proxy", "NO_PROXY"], &proxy.except.join(","));
        }
    }

    fn npm(&mut self, registry: &Registry) {
        let mut lines = Vec::new();
        let of_all = registry.npm.index.iter().map(|index| (String::new(), index));
        let of_scopes = registry.npm.scopes.iter().map(|(scope, index)| (format!("{scope}:"), index));
        for (number, (scope, index)) in of_all.chain(of_scopes).enumerate() {
            lines.push(format!("{scope}registry={}", index.url));
            let Some(login) = &index.login else { continue };
            let variable = format!("BULKHEAD_LOGIN_{number}");
            let (key, value) = match login {
                Login::Token(token) => ("_authToken", token.reveal().to_owned()),
                Login::Password { user, password } => {
                    ("_auth", STANDARD.encode(format!("{user}:{}", password.reveal())))
                }
            };
            // npm takes what stands there from the environment when it reads the file.
            let place = index.url.split_once(':').map_or("", |(_, place)| place);
            lines.push(format!("{place}:{key}=${{{variable}}}"));
            self.env.insert(variable, value);
            self.hide(login);
        }
        self.files.insert(NPMRC, lines.join("\n") + "\n");
        self.env.insert("NPM_CONFIG_USERCONFIG".to_owned(), NPMRC.to_owned());
    }

    fn pypi(&mut self, index: Option<&Index>) {
        let Some(index) = index else { return };
        self.env.insert("UV_DEFAULT_INDEX".to_owned(), format!("{INDEX}={}", index.url));
        let Some(login) = &index.login else { return };
        let (user, password) = match login {
            Login::Password { user, password } => (user.as_str(), password.reveal()),
            Login::Token(token) => ("__token__", token.reveal()),
        };
        let name = INDEX.to_ascii_uppercase();
        self.env.insert(format!("UV_INDEX_{name}_USERNAME"), user.to_owned());
        self.env.insert(format!("UV_INDEX_{name}_PASSWORD"), password.to_owned());
        self.hide(login);
    }

    fn hide(&mut self, login: &Login) {
        match login {
            Login::Token(token) => self.secrets.push(token.reveal().to_owned()),
            Login::Password { user, password } => {
                self.secrets.extend([password.reveal().to_owned(), format!("{user}:{}", password.reveal())]);
            }
        }
    }

    fn set(&mut self, names: [&str; 2], value: &str) {
        self.env.extend(names.map(|name| (name.to_owned(), value.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::registry::{Npm, Proxy};

    fn registry() -> Registry {
        let index = |url: &str, login| Index { url: url.to_owned(), login: Some(login), lacks: None };
        let token = Login::Token(Sensitive::new("t0k3n"));
        let password = Login::Password { user: "ci".to_owned(), password: Sensitive::new("p4ss") };
        let scopes = [("@acme".to_owned(), index("https://acme/npm/", password.clone()))].into();
        Registry {
            ca: Some("PEM".to_owned()),
            proxy: Proxy { https: Some(Sensitive::new("http://u:s3cr3t@p:1")), http: None, except: vec!["a".into()] },
            npm: Npm { index: Some(index("https://npm:8443/", token)), scopes },
            pypi: Some(index("https://pypi/simple", password)),
            lacks: Vec::new(),
        }
    }

    #[test]
    fn npm_is_told_in_a_file_without_secrets_and_in_variables() {
        let members = Settings::of(&registry(), Runner::Npx).members();
        assert_eq!(
            members["files"][NPMRC],
            "registry=https://npm:8443/\n//npm:8443/:_authToken=${BULKHEAD_LOGIN_0}\n\
             @acme:registry=https://acme/npm/\n//acme/npm/:_auth=${BULKHEAD_LOGIN_1}\n"
        );
        let env = &members["env"];
        assert_eq!((&env["BULKHEAD_LOGIN_0"], &env["BULKHEAD_LOGIN_1"]), (&json!("t0k3n"), &json!("Y2k6cDRzcw==")));
        assert_eq!((&env["https_proxy"], &env["NO_PROXY"]), (&json!("http://u:s3cr3t@p:1"), &json!("a")));
        assert_eq!((&env["http_proxy"], &env["UV_DEFAULT_INDEX"]), (&Value::Null, &Value::Null));
        assert_eq!((&env["SSL_CERT_FILE"], &members["ca"]["text"]), (&json!(CA), &json!("PEM")));
    }

    #[test]
    fn uv_is_told_in_variables_and_never_of_npm() {
        let members = Settings::of(&registry(), Runner::Uvx).members();
        let env = &members["env"];
        assert_eq!(env["UV_DEFAULT_INDEX"], "bulkhead=https://pypi/simple");
        assert_eq!(
            (&env["UV_INDEX_BULKHEAD_USERNAME"], &env["UV_INDEX_BULKHEAD_PASSWORD"]),
            (&json!("ci"), &json!("p4ss"))
        );
        assert!(!members.to_string().contains("t0k3n"));
    }

    #[test]
    fn everything_secret_is_hidden() {
        let text = "t0k3n p4ss Y2k6cDRzcw== s3cr3t http://u:s3cr3t@p:1";
        let hidden = |runner| Settings::of(&registry(), runner).hidden().out_of(text);
        assert_eq!(hidden(Runner::Npx), "(hidden) (hidden) (hidden)== (hidden) http://(hidden)@p:1");
        assert_eq!(hidden(Runner::Uvx), "t0k3n (hidden) (hidden)== (hidden) http://(hidden)@p:1");
    }
}
