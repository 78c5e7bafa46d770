//! The variables that make programs inside use the proxy. Knows no server.

/// What says where the proxy is; in both spellings, since no program reads both, and curl only the lower-case one for HTTP.
const PROXIES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    // Only what npm reads before the others; its scripts get them, too.
    "npm_config_proxy",
    "npm_config_https_proxy",
];

/// The container's own loopback, where the proxy would be asked for what it may never reach.
const NEAR: &str = "localhost,127.0.0.1,::1";

/// The variables for a proxy on that port of the container's loopback.
///
/// curl, git, pip, uv, cargo and Go's and Python's libraries read the general ones; Node's own `fetch` and `http` do since
/// 22.21 and 24.5, when they are told to. The address is an HTTP proxy's for all of them: for a SOCKS one, Python's
/// libraries need a package that few have.
pub fn variables(port: u16) -> Vec<(&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let mut variables: Vec<_> = PROXIES.iter().map(|name| (*name, proxy.clone())).collect();
    variables.extend([
        ("NO_PROXY", NEAR.to_owned()),
        ("no_proxy", NEAR.to_owned()),
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
    ]);
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_is_there_once_and_in_both_spellings() {
        let variables = variables(3128);
        let of = |name: &str| variables.iter().filter(|(n, _)| *n == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            assert_eq!(of(name), ["http://127.0.0.1:3128"]);
            assert_eq!(of(name), of(&name.to_lowercase()));
        }
        assert_eq!((of("NO_PROXY"), of("NODE_USE_ENV_PROXY")), (of("no_proxy"), vec!["1"]));
    }
}
