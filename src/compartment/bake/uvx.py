"""Runs inside the bake's container, as the unprivileged user: finds the tree of a PyPI package, and installs one.

Each line of its input is an order; it answers each on a line that begins with the order's marker, for bake/output.rs.
The end of its input is its own end: nobody waits any more.

No package's own code runs: only wheels are taken, nothing is built from source, and the environment's own Python
is not started once anything is in it, since that runs the lines of the `.pth` files that packages bring.
Nothing is written outside of /opt/server but to memory.
"""

import json
import os
import pathlib
import queue
import re
import stat
import subprocess
import sys
import threading
import tomllib
from importlib import metadata

HOME = pathlib.Path("/opt/server")
BAKE = pathlib.Path("/bake")


class Failed(Exception):
    def __init__(self, text, why=None):
        super().__init__(text)
        self.why = why


def reason(text):
    """The sentences of uv's report that say why; all of it where they are not found."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("cause:", "hint:"))]
    return " ".join(told or lines[-5:])


def uv(order, *args):
    env = os.environ | {
        "HOME": "/bake",
        "UV_CACHE_DIR": "/bake/cache",
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_COMPILE_BYTECODE": "0",  # uv does it with the environment's own Python
    } | order["env"]
    options = ("--no-progress", "--no-config", "--preview-features", "pylock")
    done = subprocess.run(("uv", *options, *args), env=env, cwd="/bake", text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        login = re.search(r"401 Unauthorized|403 Forbidden", done.stdout)
        raise Failed(reason(done.stdout) or f"uv {args[0]}: exit {done.returncode}", "login" if login else None)


def normal(name):
    return re.sub(r"[-_.]+", "-", name.split("[", 1)[0]).lower()


def resolve(order):
    """Pins the whole tree, with the hashes of the wheels for this Python."""
    version = order["version"]
    wanted = [order["name"] + (f"=={version}" if version else "")] + order["with"]
    # In a list of a TOML file a requirement cannot become an option, as it could on a line of its own.
    listed = json.dumps(wanted, ensure_ascii=False)
    project, lock = BAKE / "pyproject.toml", BAKE / "pylock.toml"
    project.write_text(f'[project]\nname = "server"\nversion = "0"\ndependencies = {listed}\n', "utf-8")
    uv(order, "pip", "compile", "--no-build", "--python", sys.executable, "--format", "pylock.toml",
       "-q", "-o", str(lock), str(project))
    packages = tomllib.loads(lock.read_text("utf-8")).get("packages", [])
    tree = [located(package) for package in packages]
    own = next(p for p in tree if normal(p["name"]) == normal(order["name"]))
    return {"version": own["version"], "tree": tree}


def located(package):
    """What it takes to get the very same files again: the address only where no index knows them."""
    archive = package.get("archive")
    found = [archive] if archive else package.get("wheels", [])
    entry = {"name": package["name"], "version": package.get("version"),
             "sha256": sorted(file["hashes"]["sha256"] for file in found if "sha256" in file.get("hashes", {}))}
    if archive:
        entry["url"] = archive.get("url") or pathlib.Path(BAKE, archive["path"]).as_uri()
    return entry


def pinned(entry):
    place = f" @ {entry['url']}" if "url" in entry else f"=={entry['version']}"
    return entry["name"] + place + "".join(f" --hash=sha256:{digest}" for digest in entry["sha256"])


def install(order):
    """Exactly what the tree says: no dependency is looked for, and no file is taken whose hash is not listed."""
    pins = BAKE / "pins.txt"
    pins.write_text("".join(f"{pinned(entry)}\n" for entry in order["tree"]), "utf-8")
    uv(order, "venv", "--no-project", "--allow-existing", "--python", sys.executable, str(HOME))
    try:
        uv(order, "pip", "sync", "--require-hashes", "--no-build", "--python", str(HOME / "bin" / "python"), str(pins))
    except Failed as failed:
        raise not_the_locked(order, failed) from None
    compile_all()
    settle()
    own = installed(order)
    entry = next(p for p in order["tree"] if normal(p["name"]) == normal(order["name"]))
    one = entry["sha256"][0] if len(entry["sha256"]) == 1 else None
    return {"version": own.version, "integrity": one and f"sha256:{one}", "programs": programs(order, own),
            "held": [], "content": digest(order)}


def not_the_locked(order, failed):
    text = str(failed)
    if not re.search(r"hash(es)? mismatch|matching hash", text, re.IGNORECASE):
        return failed
    told = text.lower().replace("_", "-")
    named = [p for p in order["tree"] if re.search(rf"(?<![\w.-]){re.escape(normal(p['name']))}(?![\w-])", told)]
    which = f"{named[0]['name']} {named[0]['version']}" if named else "a package"
    return Failed(f"the bytes of {which} from the index are not the locked ones: {text}", "bytes")


def settle():
    """Everything becomes readable by all, writable by its owner alone, and never set-uid."""
    for folder, folders, files in os.walk(HOME):
        for path in (os.path.join(folder, name) for name in [".", *folders, *files]):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, 0o755 if stat.S_ISDIR(mode) or mode & 0o111 else 0o644)


def installed(order):
    site = next(HOME.glob("lib/python*/site-packages"))
    return next(d for d in metadata.distributions(path=[str(site)]) if normal(d.name) == normal(order["name"]))


# The files will be root's and never change, so that no one needs to compare bytecode with its source.
COMPILE = """
import compileall, os, py_compile, sys
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
for path in sys.argv[1:]:
    compile = compileall.compile_dir if os.path.isdir(path) else compileall.compile_file
    compile(path, quiet=2, invalidation_mode=unchecked)
"""


def compile_all():
    """What Python writes depends on the words it has met before; so each part is the work of a process of its own, which
    meets the same ones in the same order, and how many parts there are does not depend on the machine."""
    site = next(HOME.glob("lib/python*/site-packages"))
    paths = sorted(str(path) for path in site.iterdir() if path.is_dir() or path.suffix == ".py")
    env = os.environ | {"PYTHONHASHSEED": "0"}
    parts = [subprocess.Popen((sys.executable, "-S", "-P", "-c", COMPILE, *paths[n::4]), env=env) for n in range(4)]
    if any([part.wait() for part in parts]):
        raise Failed("the packages cannot be compiled")


def programs(order, own):
    found = {path.name for path in own.files or () if path.parent.name == "bin" and ".." in path.parts}
    asked = order["executable"]
    if asked and (HOME / "bin" / asked).is_file():
        found.add(asked)
    return [{"name": name, "command": [str(HOME / "bin" / name)]} for name in sorted(found)]


def digest(order):
    command = (sys.executable, "-P", "-c", order["digest"], str(HOME))
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Failed(f"the content cannot be hashed: {done.stderr.strip()}")
    return done.stdout.strip()


def orders():
    lines = queue.Queue()

    def read():
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


for order in orders():
    try:
        for path, text in order["files"].items():
            pathlib.Path(path).write_text(text, "utf-8")
        if ca := order.get("ca"):
            pathlib.Path(ca["at"]).write_text(pathlib.Path(ca["beside"]).read_text("utf-8") + ca["text"], "utf-8")
        answer = resolve(order) if order["mode"] == "resolve" else install(order)
    except Failed as failed:
        answer = {"failed": str(failed), "why": failed.why}
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(f"\n{order['marker']} {json.dumps(answer)}", flush=True)
