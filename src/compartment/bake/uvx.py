"""Runs inside the build container, as the unprivileged user: resolves or installs one PyPI package.

Reads /bake/inputs.json; its last line of output is the answer that bake/output.rs looks for.
No package's own code runs: only wheels are taken, nothing is built from source, and the environment's own Python
is not started once anything is in it, since that runs the lines of the `.pth` files that packages bring.
"""

import compileall
import itertools
import json
import os
import pathlib
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib import metadata

INPUTS = json.loads(pathlib.Path("/bake/inputs.json").read_text("utf-8"))
HOME = pathlib.Path("/opt/server")
LOCK = HOME / "pylock.toml"


def answer(value):
    print(f"\n{INPUTS['marker']} {json.dumps(value)}", flush=True)
    sys.exit(1 if "failed" in value else 0)


def reason(text):
    """The sentences of uv's report that say why; all of it where they are not found."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("cause:", "hint:"))]
    return " ".join(told or lines[-5:])


def uv(*args):
    env = os.environ | {
        "HOME": "/bake",
        "UV_CACHE_DIR": "/bake/cache",
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_COMPILE_BYTECODE": "0",  # uv does it with the environment's own Python
    }
    options = ("--no-progress", "--preview-features", "pylock")
    done = subprocess.run(("uv", *options, *args), env=env, cwd="/bake", text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        answer({"failed": reason(done.stdout) or f"uv {args[0]}: exit {done.returncode}"})


def normal(name):
    return re.sub(r"[-_.]+", "-", name.split("[", 1)[0]).lower()


def resolve():
    """Pins the whole tree, with a hash for every wheel, and returns the package's own entry."""
    version = INPUTS["version"]
    wanted = [INPUTS["name"] + (f"=={version}" if version else "")] + INPUTS["with"]
    # In a list of a TOML file a requirement cannot become an option, as it could on a line of its own.
    listed = json.dumps(wanted, ensure_ascii=False)
    project = f'[project]\nname = "server"\nversion = "0"\ndependencies = {listed}\n'
    pathlib.Path("/bake/pyproject.toml").write_text(project, "utf-8")
    uv("pip", "compile", "--no-build", "--python", sys.executable, "--format", "pylock.toml",
       "-q", "-o", str(LOCK), "/bake/pyproject.toml")
    packages = tomllib.loads(LOCK.read_text("utf-8"))["packages"]
    return next(p for p in packages if normal(p["name"]) == normal(INPUTS["name"]))


def tags(wheel):
    """What a wheel is for, from its name: `a.b-c-d.e` stands for every combination."""
    name = wheel.get("name") or wheel["url"].split("/")[-1]
    parts = (part.split(".") for part in name.removesuffix(".whl").split("-")[-3:])
    return {"-".join(each) for each in itertools.product(*parts)}


def integrity(entry, own):
    """The hash of the wheel that was installed: of several in the lock, the one for what the installed one says."""
    wheels = entry.get("wheels", [])
    if len(wheels) > 1:
        said = {line[4:].strip() for line in (own.read_text("WHEEL") or "").splitlines() if line.startswith("Tag:")}
        wheels = [wheel for wheel in wheels if tags(wheel) == said]
    return f"sha256:{wheels[0]['hashes']['sha256']}" if len(wheels) == 1 else None


def settle():
    """Everything becomes readable by all, writable by its owner alone, and never set-uid."""
    for folder, folders, files in os.walk(HOME):
        for path in (os.path.join(folder, name) for name in [".", *folders, *files]):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, 0o755 if stat.S_ISDIR(mode) or mode & 0o111 else 0o644)


def installed():
    site = next(HOME.glob("lib/python*/site-packages"))
    return next(d for d in metadata.distributions(path=[str(site)]) if normal(d.name) == normal(INPUTS["name"]))


def compile_all():
    # The files will be root's and never change, so that no one needs to compare bytecode with its source.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(HOME / "lib", quiet=2, workers=0, invalidation_mode=unchecked)


def programs(own):
    found = {path.name for path in own.files or () if path.parent.name == "bin" and ".." in path.parts}
    asked = INPUTS["executable"]
    if asked and (HOME / "bin" / asked).is_file():
        found.add(asked)
    return [{"name": name, "command": [str(HOME / "bin" / name)]} for name in sorted(found)]


entry = resolve()
if INPUTS["mode"] == "resolve":
    answer({"version": entry["version"]})
uv("venv", "--allow-existing", "--python", sys.executable, str(HOME))
uv("pip", "sync", "--no-build", "--python", str(HOME / "bin" / "python"), str(LOCK))
compile_all()
own = installed()
found = {"version": entry["version"], "integrity": integrity(entry, own), "programs": programs(own), "held": []}
settle()
shutil.rmtree("/bake/cache", ignore_errors=True)  # or the engine would store it only to drop it again
answer(found)
