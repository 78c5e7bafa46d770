//! How a server runs: a package, an image, a host process by a written reason, or a remote address; exactly one of them.
//! Knows nothing of how it is confined.

use crate::config::env::{Source, is_name};
use crate::config::fault::quoted;
use crate::config::reader::{Field, Reader};
use crate::config::{Package, Reason, Run};

use super::texts::{Text, Texts};
use super::{image, package};

/// How a server runs, and what of that was written.
pub(super) struct Launch {
    pub(super) run: Run,
    /// For the digest: as in the file, before any variable is replaced.
    pub(super) written: Vec<(&'static str, Vec<String>)>,
}

/// The keys beside the one that says the kind.
struct Words<'a> {
    command: Option<Field<'a>>,
    args: Option<Field<'a>>,
    with: Option<Field<'a>>,
    executable: Option<Field<'a>>,
    headers: Option<Field<'a>>,
    secret_headers: Option<Field<'a>>,
    kind: Option<Field<'a>>,
}

/// Reads how a server runs.
pub(super) fn launch(r: &mut Reader<'_>, texts: &mut Texts<'_>) -> Option<Launch> {
    let words = Words {
        command: r.get("command"),
        args: r.get("args"),
        with: r.get("with"),
        executable: r.get("executable"),
        headers: r.get("headers"),
        secret_headers: r.get("secret_headers"),
        kind: r.get("type"),
    };
    let kinds = [r.get("package"), r.get("image"), r.get("unisolated"), r.get("url")];
    let mut given = kinds.iter().flatten();
    let Some(first) = given.next() else {
        r.fault("does not say how it runs: give one of \"package\", \"image\", \"unisolated\" and \"url\"");
        return None;
    };
    if let Some(second) = given.next() {
        second.fault(format!("cannot stand beside {}: give one of them", first.path));
        return None;
    }
    let [packaged, imaged, unisolated, _] = &kinds;
    if packaged.is_some() {
        from_package(first, &words, texts)
    } else if imaged.is_some() {
        from_image(first, &words, texts)
    } else if unisolated.is_some() {
        on_the_host(first, &words, texts)
    } else {
        remote(first, &words, texts)
    }
}

fn from_package(field: &Field<'_>, words: &Words<'_>, texts: &mut Texts<'_>) -> Option<Launch> {
    let meaningless = [&words.command, &words.headers, &words.secret_headers, &words.kind];
    refuse(&meaningless, "has no meaning for a package; its program comes from it, or from \"executable\"");
    let args = texts.list(words.args.as_ref());
    let executable = words.executable.as_ref().and_then(|f| f.parse(package::executable));
    let (runner, name, version) = field.parse(package::package)?;
    let with = words.with.as_ref().map(|f| f.texts(|text| package::requirement(runner, text))).unwrap_or_default();
    let written = vec![
        ("package", vec![field.string()?.to_owned()]),
        ("with", with.clone()),
        ("executable", executable.iter().cloned().collect()),
        ("args", written(&args)),
    ];
    let run = Run::Package(Package { runner, name, version, with, args: values(args), executable });
    Some(Launch { run, written })
}

fn from_image(field: &Field<'_>, words: &Words<'_>, texts: &mut Texts<'_>) -> Option<Launch> {
    let meaningless = [&words.with, &words.executable, &words.headers, &words.secret_headers, &words.kind];
    refuse(&meaningless, "has no meaning for an image");
    let args = texts.list(words.args.as_ref());
    let command = words.command.as_ref().map(|f| texts.command(f).unwrap_or_default());
    let reference = field.parse(image::reference)?;
    let written = vec![
        ("image", vec![reference.clone()]),
        ("command", command.as_deref().map(written).unwrap_or_default()),
        ("args", written(&args)),
    ];
    Some(Launch { run: Run::Image { reference, command: command.map(values), args: values(args) }, written })
}

fn on_the_host(field: &Field<'_>, words: &Words<'_>, texts: &mut Texts<'_>) -> Option<Launch> {
    let meaningless = [&words.with, &words.executable, &words.headers, &words.secret_headers, &words.kind];
    refuse(&meaningless, "has no meaning for an unisolated server");
    let args = texts.list(words.args.as_ref());
    let reason = field.parse(|text| {
        let line = Some(text).filter(|text| !text.contains(char::is_control));
        line.and_then(Reason::parse).ok_or_else(|| "must be the reason, in words on one line".to_owned())
    });
    let Some(command) = &words.command else {
        field.fault("needs a \"command\" beside it");
        return None;
    };
    let mut command = texts.command(command)?;
    command.extend(args);
    let reason = reason?;
    let written = vec![("unisolated", vec![reason.as_str().to_owned()]), ("command", written(&command))];
    Some(Launch { run: Run::Unisolated { reason, command: values(command) }, written })
}

fn remote(field: &Field<'_>, words: &Words<'_>, texts: &mut Texts<'_>) -> Option<Launch> {
    refuse(&[&words.command, &words.args, &words.with, &words.executable], "has no meaning for a remote server");
    if let Some(kind) = &words.kind {
        kind.choice(&[("http", ()), ("streamable-http", ()), ("streamableHttp", ()), ("sse", ())]);
    }
    let mut headers = header_fields(words.headers.as_ref(), |field| texts.text(field).map(|text| text.written));
    let secrets = |field: &Field<'_>| field.parse(Source::parse).map(|source| source.to_string());
    headers.extend(header_fields(words.secret_headers.as_ref(), secrets));
    let url = texts.text(field)?;
    let host = url.value.strip_prefix("https://").or_else(|| url.value.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) || url.value.contains(char::is_whitespace) {
        field.fault("must be an address that begins with http:// or https://");
        return None;
    }
    Some(Launch {
        written: vec![("url", vec![url.written]), ("headers", headers)],
        run: Run::Remote { url: url.value },
    })
}

/// Names and written values of header fields.
fn header_fields(table: Option<&Field<'_>>, mut value: impl FnMut(&Field<'_>) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, field) in table.and_then(Field::table).iter().flat_map(Reader::entries) {
        if !is_name(&name.replace('-', "_")) {
            field.fault(format!("is no header: {} is no name for one", quoted(name)));
        }
        found.extend(value(&field).map(|value| format!("{name}: {value}")));
    }
    found
}

fn refuse(fields: &[&Option<Field<'_>>], why: &str) {
    for field in fields.iter().copied().flatten() {
        field.fault(why);
    }
}

fn written(texts: &[Text]) -> Vec<String> {
    texts.iter().map(|text| text.written.clone()).collect()
}

fn values(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}
