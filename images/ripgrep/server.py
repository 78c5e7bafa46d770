"""ripgrep as an MCP server over stdio: `server.py DIRECTORY` searches that one.

What a caller gives becomes one argument each, after `--` or within `--glob=`,
never a word of a shell and never an option; paths stay below the directory.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
ROOT = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else "/files")
WITHIN = 30  # seconds that one search may take
MOST_TEXT = 64 * 1024  # characters of a result
MOST_LINE = 8 << 20  # bytes of one line of a file

WHERE = {"path": {"type": "string", "description": "Directory or file to look in, relative; all by default"},
         "glob": {"type": "string", "description": "Only files that match, such as *.md; with ! in front, the others"}}


def tool(name, description, required=(), **properties):
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": True}}


TOOLS = [
    tool("search", "Lines that match a regular expression, as PATH:LINE:TEXT.", ["pattern"],
         pattern={"type": "string", "description": "Regular expression in ripgrep's syntax"}, **WHERE,
         ignore_case={"type": "boolean", "default": False, "description": "Whether case does not matter"},
         context={"type": "integer", "minimum": 0, "maximum": 10, "default": 0},
         max_matches={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
    tool("list_files", "The files there are, hidden and ignored ones left out.", **WHERE,
         max_files={"type": "integer", "minimum": 1, "maximum": 5000, "default": 500}),
]


class Wrong(Exception):
    """What the caller is told instead of a result."""


def checked(name, given):
    """The arguments of a call, each of its type, with defaults for those that are missing."""
    schema = next((t["inputSchema"] for t in TOOLS if t["name"] == name), None)
    if schema is None or not isinstance(given, dict):
        raise Wrong(f"no tool {name!r} with such arguments")
    if strange := given.keys() - schema["properties"].keys():
        raise Wrong(f"unknown: {', '.join(sorted(strange))}")
    asked = {key: rule.get("default") for key, rule in schema["properties"].items()}
    asked |= {key: value for key, value in given.items() if value is not None}
    for key, rule in schema["properties"].items():
        value = asked[key]
        fits = {"string": isinstance(value, str) and "\0" not in value and len(value) <= 4096,
                "boolean": isinstance(value, bool),
                "integer": type(value) is int and rule.get("minimum", 0) <= value <= rule.get("maximum", 0)}
        if not fits[rule["type"]] and (value is not None or key in schema["required"]):
            raise Wrong(f"{key}: no {rule['type']} that fits")
    return asked


def below_root(path):
    """The path relative to the directory, links resolved; nothing outside of it."""
    full = os.path.realpath(os.path.join(ROOT, path or "."))
    if os.path.commonpath([ROOT, full]) != ROOT or not os.path.exists(full):
        raise Wrong(f"{path!r} is not in the directory")
    return os.path.relpath(full, ROOT)


def ripgrep(options, asked, operands, end, most, shown):
    """Runs it, and shows what it finds until there is enough. A record ends with `end`; `shown` tells its text, and
    whether it counts against `most`."""
    glob = [] if asked["glob"] is None else ["--glob=" + asked["glob"]]
    command = ["rg", "--no-config", "--color=never", "--sort=path", *options, *glob, "--", *operands]
    out, count, note, rest = [], 0, "", b""
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
        late = threading.Timer(WITHIN, process.kill)
        late.start()
        began = time.monotonic()
        while not note and (piece := process.stdout.read1(65536)):
            *records, rest = (rest + piece).split(end)
            for text, counts in map(shown, records):
                count += counts
                if count > most or sum(map(len, out)) + len(text) > MOST_TEXT:
                    note = "... there is more"
                    break
                out += [text] if text else []
            if len(rest) > MOST_LINE:
                note = "... stopped at a line that is too long"
        if time.monotonic() - began >= WITHIN:
            note = f"... stopped after {WITHIN} s"
        late.cancel()
        process.kill()
        errors.seek(0)
        said = errors.read(2000).decode(errors="replace").strip()
    if said and not out:
        raise Wrong(said)
    return "\n".join([*out, *filter(None, [said, note])]) or "nothing found"


def match(record):
    found = json.loads(record)
    if found["type"] not in ("match", "context"):
        return "", False
    data, is_match = found["data"], found["type"] == "match"
    path, line = (data[key].get("text", "(not UTF-8)") for key in ("path", "lines"))
    mark = ":" if is_match else "-"
    return f"{os.path.normpath(path)}{mark}{data['line_number']}{mark}{line.rstrip()[:500]}", is_match


def call(name, given):
    asked = checked(name, given)
    where = below_root(asked["path"])
    if name == "list_files":
        return ripgrep(["--files", "--null"], asked, [where], b"\0", asked["max_files"],
                       lambda record: (os.path.normpath(record.decode(errors="replace")), True))
    options = ["--json", f"--context={asked['context']}"] + ["--ignore-case"] * asked["ignore_case"]
    return ripgrep(options, asked, [asked["pattern"], where], b"\n", asked["max_matches"], match)


def answer(method, params):
    """The result of a request; None where there is no such method."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {"protocolVersion": asked if asked in REVISIONS else REVISIONS[0], "capabilities": {"tools": {}},
                "serverInfo": {"name": "ripgrep", "version": "1"}}
    if method == "tools/call":
        try:
            text, failed = call(params.get("name"), params.get("arguments") or {}), False
        except (Wrong, OSError, ValueError) as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {"tools/list": {"tools": TOOLS}, "ping": {}}.get(method)


for line in sys.stdin:
    try:
        message = json.loads(line)
        request, method, params = message.get("id"), message.get("method"), dict(message.get("params") or {})
    except (ValueError, TypeError, AttributeError):
        continue
    if request is not None and method is not None:
        result = answer(method, params)
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request, **outcome}), flush=True)
