//! The two build contexts, as tar archives. Pure.
//!
//! Nothing in these Dockerfiles comes from a configuration except the program to start, which stands there as JSON.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};

use super::context::Context;
use crate::config::Runner;

/// Who the server is, and who installs it. In another container, and without any privilege there either.
const USER: &str = "10001:10001";

/// What is on the containers and passing images of a bake, in one order.
pub(super) type Labels = BTreeMap<String, String>;

/// The script that resolves and installs.
pub(super) fn script(runner: Runner) -> &'static str {
    match runner {
        Runner::Npx => include_str!("npx.mjs"),
        Runner::Uvx => include_str!("uvx.py"),
    }
}

/// A build that runs the script with these instructions, on the image `runtime`.
pub(super) fn work(runtime: &str, labels: &Labels, runner: Runner, instructions: &Value) -> io::Result<Vec<u8>> {
    let (_, file) = interpreter(runner);
    let mut context = Context::new();
    context.file("Dockerfile", work_file(runtime, labels, runner).as_bytes())?;
    context.folder("server")?;
    context.folder("bake")?;
    context.file(&format!("bake/{file}"), script(runner).as_bytes())?;
    context.file("bake/inputs.json", instructions.to_string().as_bytes())?;
    context.finish()
}

/// A build that puts what the image `installed` holds onto `runtime`, and has `command` as its entry point.
pub(super) fn seal(runtime: &str, installed: &str, command: &[String]) -> io::Result<Vec<u8>> {
    let mut context = Context::new();
    context.file("Dockerfile", seal_file(runtime, installed, command).as_bytes())?;
    context.finish()
}

/// The labels come first: each container of the build carries what the steps before it set. JSON is how they are quoted.
pub(super) fn work_file(runtime: &str, labels: &Labels, runner: Runner) -> String {
    let (program, file) = interpreter(runner);
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", json!(value))).collect();
    let labels = labels.join(" ");
    format!(
        "FROM {runtime}\n\
         LABEL {labels}\n\
         COPY --chown={USER} bake /bake\n\
         COPY --chown={USER} server /opt/server\n\
         USER {USER}\n\
         WORKDIR /bake\n\
         RUN [\"{program}\", \"/bake/{file}\"]\n"
    )
}

/// Copied rather than built upon: what the installation left elsewhere stays behind, and root owns the files without a
/// second layer of the same size.
pub(super) fn seal_file(runtime: &str, installed: &str, command: &[String]) -> String {
    let command = Value::from(command);
    format!(
        "FROM {runtime}\n\
         COPY --from={installed} --chown=0:0 /opt/server /opt/server\n\
         USER {USER}\n\
         ENTRYPOINT {command}\n\
         CMD []\n"
    )
}

fn interpreter(runner: Runner) -> (&'static str, &'static str) {
    match runner {
        Runner::Npx => ("node", "npx.mjs"),
        Runner::Uvx => ("python3", "uvx.py"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::json;

    use super::*;

    fn read(context: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(context);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        entries.collect()
    }

    #[test]
    fn instructions_are_a_file_and_nowhere_else() {
        let instructions = json!({"name": "x\"; RUN id"});
        let labels = [("org.bulkhead.bake", "b"), ("org.bulkhead.role", "bake")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let context = work("sha256:1", &labels, Runner::Npx, &instructions).unwrap();
        assert_eq!(context, work("sha256:1", &labels, Runner::Npx, &instructions).unwrap());
        let files = read(&context);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Dockerfile", "server", "bake", "bake/npx.mjs", "bake/inputs.json"]);
        assert_eq!(
            files[0].1,
            "FROM sha256:1\n\
             LABEL org.bulkhead.bake=\"b\" org.bulkhead.role=\"bake\"\n\
             COPY --chown=10001:10001 bake /bake\n\
             COPY --chown=10001:10001 server /opt/server\n\
             USER 10001:10001\n\
             WORKDIR /bake\n\
             RUN [\"node\", \"/bake/npx.mjs\"]\n"
        );
        assert_eq!(files[4].1, r#"{"name":"x\"; RUN id"}"#);
    }

    #[test]
    fn a_program_stays_one_line_of_json() {
        let context = seal("sha256:1", "bulkhead/baking:b", &["/opt/server/a\nRUN id\"".to_owned()]).unwrap();
        let [(name, file)] = &read(&context)[..] else { panic!("one file") };
        assert_eq!(name, "Dockerfile");
        assert_eq!(
            file,
            "FROM sha256:1\n\
             COPY --from=bulkhead/baking:b --chown=0:0 /opt/server /opt/server\n\
             USER 10001:10001\n\
             ENTRYPOINT [\"/opt/server/a\\nRUN id\\\"\"]\n\
             CMD []\n"
        );
    }
}
