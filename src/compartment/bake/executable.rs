//! Which of a package's programs is the server. Pure.

use serde::Deserialize;

use crate::config::{Package, Runner};
use crate::error::{Class, Fault};

/// Where everything installed is; a program elsewhere is none of the package's.
const HOME: &str = "/opt/server/";

/// A program of an installed package.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Program {
    pub name: String,
    /// What starts it: the file, or an interpreter and the file.
    pub command: Vec<String>,
}

/// The one asked for; or the only one; or the one named like the package; or, for npm, the first by name.
pub(super) fn pick<'a>(package: &Package, programs: &'a [Program], say: &dyn Fn(&str)) -> Result<&'a Program, Fault> {
    let mut usable: Vec<&Program> = programs.iter().filter(|p| is_plain(p)).collect();
    usable.sort_by(|a, b| a.name.cmp(&b.name));
    let named = |name: &str| usable.iter().copied().find(|p| p.name == name);
    if let Some(asked) = &package.executable {
        return named(asked).ok_or_else(|| none(package, &format!("has no executable \"{asked}\""), &usable));
    }
    let own = own_name(package);
    match usable.as_slice() {
        [] => Err(none(package, "has no executable", &usable)),
        [only] => Ok(only),
        [first, ..] => match named(own).or_else(|| usable.iter().copied().find(|p| alike(&p.name, own))) {
            Some(program) => Ok(program),
            None if package.runner == Runner::Npx => {
                say(&format!("has {}; taking \"{}\"", list(&usable), first.name));
                Ok(first)
            }
            None => Err(none(package, "has no executable of its own name", &usable)),
        },
    }
}

/// The name without scope and extras.
fn own_name(package: &Package) -> &str {
    let name = package.name.split('[').next().unwrap_or_default();
    name.rsplit('/').next().unwrap_or_default()
}

/// Equal but for case and the three ways in which PyPI lets one write a hyphen.
fn alike(a: &str, b: &str) -> bool {
    let normal = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
    normal(a) == normal(b)
}

/// Names and paths that cannot be mistaken for anything else; a package chooses its own.
fn is_plain(program: &Program) -> bool {
    let graphic = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    let file = program.command.last().map_or("", String::as_str);
    graphic(&program.name)
        && !program.name.contains('/')
        && program.command.iter().all(|part| part.starts_with('/') && graphic(part))
        && file.starts_with(HOME)
        && !file.split('/').any(|part| part == "..")
}

fn list(programs: &[&Program]) -> String {
    programs.iter().map(|p| format!("\"{}\"", p.name)).collect::<Vec<_>>().join(", ")
}

fn none(package: &Package, what: &str, usable: &[&Program]) -> Fault {
    let advice =
        if usable.is_empty() { String::new() } else { format!("; it has {}: set \"executable\" to one", list(usable)) };
    Fault::new(Class::Usage, format!("package \"{}\" {what}{advice}", package.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick_from(runner: Runner, name: &str, executable: Option<&str>, names: &[&str]) -> Result<String, String> {
        let executable = executable.map(str::to_owned);
        let package = Package { runner, name: name.to_owned(), version: None, with: vec![], args: vec![], executable };
        let program = |name: &&str| Program { name: (*name).to_owned(), command: vec![format!("{HOME}bin/{name}")] };
        let programs: Vec<Program> = names.iter().map(program).collect();
        pick(&package, &programs, &|_| ()).map(|p| p.name.clone()).map_err(|f| f.outward)
    }

    #[test]
    fn the_program_asked_for_or_the_obvious_one() {
        use Runner::{Npx, Uvx};
        let ok = |name: &str| Ok(name.to_owned());
        assert_eq!(pick_from(Npx, "@a/srv", None, &["mcp-srv"]), ok("mcp-srv"));
        assert_eq!(pick_from(Npx, "@a/srv", None, &["z", "srv"]), ok("srv"));
        assert_eq!(pick_from(Npx, "@a/srv", None, &["z", "y"]), ok("y"));
        assert_eq!(pick_from(Npx, "@a/srv", Some("z"), &["z", "srv"]), ok("z"));
        assert_eq!(pick_from(Uvx, "mcp_server.time[x]", None, &["a", "mcp-server-time"]), ok("mcp-server-time"));
        assert_eq!(pick_from(Uvx, "x", None, &["only"]), ok("only"));
    }

    #[test]
    fn otherwise_what_there_is_is_listed() {
        use Runner::{Npx, Uvx};
        let err = |text: &str| Err(text.to_owned());
        let listed = "package \"x\" has no executable of its own name; it has \"a\", \"b\": set \"executable\" to one";
        assert_eq!(pick_from(Uvx, "x", None, &["b", "a"]), err(listed));
        assert_eq!(pick_from(Npx, "x", None, &[]), err("package \"x\" has no executable"));
        let listed = "package \"x\" has no executable \"c\"; it has \"a\": set \"executable\" to one";
        assert_eq!(pick_from(Npx, "x", Some("c"), &["a"]), err(listed));
    }

    #[test]
    fn a_program_that_lies_elsewhere_or_hides_its_name_is_none() {
        let program = |name: &str, command: &[&str]| Program {
            name: name.to_owned(),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
        };
        assert!(is_plain(&program("a", &["/usr/bin/node", "/opt/server/a.js"])));
        for (name, command) in [
            ("a", &["/bin/sh"][..]),
            ("a", &["/opt/server/../../bin/sh"]),
            ("a", &["node", "/opt/server/a"]),
            ("a", &["/opt/server/a", "-c"]),
            ("a", &[]),
            ("", &["/opt/server/a"]),
            ("a\u{202e}", &["/opt/server/a"]),
            ("a/b", &["/opt/server/a"]),
            ("a", &["/opt/server/a b"]),
        ] {
            assert!(!is_plain(&program(name, command)), "{name:?} {command:?}");
        }
    }
}
