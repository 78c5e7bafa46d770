"""What the Python clients share: the command line, the place of the SDK, the report.

Knows nothing of the gateway beyond its command line, and of no SDK.
"""
import asyncio
import json
import os
import sys
from pathlib import Path

CLIENTS = Path(os.environ.get("BULKHEAD_CLIENTS") or Path(__file__).resolve().parents[2] / "target/clients")


class Line:
    """`[--call NAME JSON]... [FLAG]... -- PROGRAM [ARG]...`"""

    def __init__(self, words, known):
        if "--" not in words[:-1]:
            raise ValueError("usage: [--call NAME JSON]... -- PROGRAM [ARG]...")
        end = words.index("--")
        self.command, *self.args = words[end + 1:]
        self.calls, self.flags = [], set()
        ours = iter(words[:end])
        for word in ours:
            if word == "--call":
                self.calls.append((next(ours), json.loads(next(ours))))
            elif word in known:
                self.flags.add(word)
            else:
                raise ValueError(f"unknown argument: {word}")

    def spawn(self):
        """How to start the server; it gets our whole environment and our stderr."""
        return {"command": self.command, "args": self.args, "env": dict(os.environ)}


def enter(client):
    """Go on in the environment that has the client's SDK."""
    place = CLIENTS / client
    if Path(sys.prefix).resolve() != place.resolve():
        python = place / "bin/python"
        if not python.exists():
            sys.exit(f"{client}: no SDK in {place}")
        os.execv(python, [str(python), *sys.argv])


async def attempt(name, call):
    """One call as the report has it; a JSON-RPC error is a call that is not ok."""
    try:
        result = (await call).model_dump(mode="json", by_alias=True)
    except Exception as e:
        error = getattr(e, "error", None)
        report = {"name": name, "ok": False, "text": error.message if error else repr(e)}
        return report | {"code": error.code} if error else report
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    report = {"name": name, "ok": not result.get("isError"), "text": "\n".join(texts)}
    structured = result.get("structuredContent")
    return report if structured is None else report | {"structured": structured}


def first_cause(error):
    """The error inside the groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main(client, walk, *known):
    """Run a client, print its report, and tell by the exit code whether it could do its walk."""
    try:
        report = asyncio.run(walk(Line(sys.argv[1:], known)))
    except Exception as e:
        cause = first_cause(e)
        sys.exit(f"{client}: {type(cause).__name__}: {cause}")
    print(json.dumps({"client": client, **report}))
