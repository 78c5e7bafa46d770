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
    let advice = if usable.is_empty() { String::new() } else { format!("; it has {}: name one", list(usable)) };
    Fault::new(Class::Usage, format!("package \"{}\" {what}{advice}", package.name))
}
