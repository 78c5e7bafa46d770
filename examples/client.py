#!/usr/bin/env python3
"""A small MCP client over stdio, and the walk through a gateway that
scripts/demo shows with it.

    examples/client.py BULKHEAD CONFIG STATE

Python's standard library is all it needs. Ends with 0 where every answer was
the right one; the first wrong one ends it with 1, and is named.
"""

import json
import os
import signal
import subprocess
import sys

ANSWER_WITHIN = 60  # seconds
SERVERS = ["everything", "memory", "filesystem", "time", "git", "repl"]
FOR_GUESTS = ["everything", "time"]

# What the REPL is made to run: what does arbitrary code find in there?
LOOK_AROUND = """
import os, socket
def attempt(what):
    try:
        return what() and "done"
    except OSError as error:
        return error.strerror
print("uid", os.getuid())
print("interfaces", ",".join(os.listdir("/sys/class/net")))
print("internet:", attempt(lambda: socket.create_connection(("1.1.1.1", 53), 5)))
print("write /usr/x:", attempt(lambda: open("/usr/x", "w")))
"""


class Wrong(Exception):
    """An answer that is not the right one."""


def check(holds, what):
    if not holds:
        raise Wrong(what)


# --- the client ---------------------------------------------------------------


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, error):
        super().__init__(f"{error['code']} {error['message']}")
        self.code, self.message = error["code"], error["message"]


class Client:
    """One conversation: messages are lines of JSON, each way."""

    def __init__(self, command, variables, log):
        self.last_id = 0
        self.log = open(log, "a")
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env={**os.environ, **variables})

    def __enter__(self):
        asked = {"protocolVersion": "2025-11-25", "capabilities": {},
                 "clientInfo": {"name": "demo", "version": "1"}}
        self.request("initialize", asked)
        self.send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_):
        # The end of its input is all that a gateway needs to end well.
        self.server.stdin.close()
        self.code = self.server.wait(ANSWER_WITHIN)
        self.log.close()

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message})
        self.server.stdin.write(line + "\n")
        self.server.stdin.flush()

    def request(self, method, params):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        signal.alarm(ANSWER_WITHIN)
        for line in self.server.stdout:
            message = json.loads(line)
            if message.get("id") == self.last_id:
                signal.alarm(0)
                if "error" in message:
                    raise Refused(message["error"])
                return message["result"]
        raise Wrong(f"the gateway ended without an answer to {method}")

    def tools(self):
        names, params = [], {}
        while True:
            page = self.request("tools/list", params)
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                return names
            params = {"cursor": page["nextCursor"]}

    def call(self, tool, arguments):
        """Whether it failed, and its text."""
        asked = {"name": tool, "arguments": arguments}
        result = self.request("tools/call", asked)
        texts = [b["text"] for b in result["content"] if b["type"] == "text"]
        return result.get("isError", False), "\n".join(texts)


# --- the walk -----------------------------------------------------------------


def say(text=""):
    print(text, flush=True)


def heading(text):
    say(f"\n== {text}")


def show(text, most):
    """The first lines of an answer that say something, indented."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line.strip("{}[]: ")]
    for line in lines[:most]:
        say(f"    {line[:74]}")
    if len(lines) > most:
        say("    ...")


def count_by_server(tools):
    """Servers in their order; the part before the two underscores names it."""
    counts = {}
    for tool in tools:
        server = tool.split("__")[0]
        counts[server] = counts.get(server, 0) + 1
    return counts


def show_tools(client, expected):
    tools = client.tools()
    counts = count_by_server(tools)
    each = ", ".join(f"{server} {count}" for server, count in counts.items())
    say(f"{len(tools)} tools: {each}")
    check(sorted(counts) == sorted(expected), f"expected tools of {expected}")
    return tools


def show_call(client, server, tool, arguments, right, failed=False, most=3):
    """Calls, shows the beginning of the answer, and judges it."""
    has_failed, text = client.call(f"{server}__{tool}", arguments)
    say(f"{server} {tool}")
    show(text, most)
    check(has_failed == failed, f"{server} {tool} answered: {text}")
    check(right(text), f"{server} {tool} answered otherwise than expected")


def call_each(client):
    boat = {"name": "boat", "entityType": "thing", "observations": ["is red"]}
    show_call(client, "everything", "get-env", {},
              lambda text: set(json.loads(text)) == {"HOME", "LANG", "PATH"})
    client.call("memory__create_entities", {"entities": [boat]})
    show_call(client, "memory", "open_nodes", {"names": ["boat"]},
              lambda text: "is red" in text)
    show_call(client, "filesystem", "read_text_file",
              {"path": "/notes/todo.txt"}, lambda text: "paint" in text)
    show_call(client, "filesystem", "write_file",
              {"path": "/notes/new.txt", "content": "x"},
              lambda text: "read-only" in text, failed=True)
    show_call(client, "time", "convert_time",
              {"source_timezone": "UTC", "time": "12:00",
               "target_timezone": "Asia/Tokyo"},
              lambda text: "T21:00:00+09:00" in text)
    show_call(client, "git", "git_log", {"repo_path": "/repo", "max_count": 1},
              lambda text: "Launch the boat" in text, most=5)
    show_call(client, "repl", "execute_python", {"code": LOOK_AROUND},
              lambda text: all(part in text for part in [
                  "uid 10001", "interfaces lo\n",
                  "internet: Network is unreachable",
                  "write /usr/x: Read-only file system"]), most=5)


class Walk:
    def __init__(self, bulkhead, config, state):
        self.command = [bulkhead, "--config", config, "--state", state]
        self.log = os.path.join(state, "..", "serve.log")

    def client(self, role):
        # The gateway has a secret; its servers must not.
        variables = {"CANARY_SECRET": "only for the gateway"}
        return Client([*self.command, "serve", "--role", role], variables,
                      self.log)

    def status(self, *arguments):
        command = [*self.command, "status", *arguments]
        return subprocess.run(command, check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def servers(self):
        gateways = json.loads(self.status("--json"))["gateways"]
        check(len(gateways) == 1, f"{len(gateways)} gateways show, not one")
        return {server["name"]: server for server in gateways[0]["servers"]}

    def as_admin(self):
        heading("an admin's client: it lists the tools, and calls each server")
        with self.client("admin") as client:
            show_tools(client, SERVERS)
            say()
            call_each(client)
            heading("bulkhead status repl, meanwhile")
            say(self.status("repl").rstrip())
            for name, server in self.servers().items():
                check(server["isolation"] == "proven", f"{name} is not proven")
                for instance in server["instances"]:
                    for control in instance["evidence"]["controls"]:
                        check(control["holds"], f"{name}: {control}")
        check(client.code == 0, f"serve ended with {client.code}")

    def as_guest(self):
        heading("a guest's client: it does not see the REPL, nor call it")
        with self.client("guest") as client:
            tools = show_tools(client, FOR_GUESTS)
            said = []
            for tool in ["repl__execute_python", "repl__no_such_tool"]:
                check(tool not in tools, f"a guest sees {tool}")
                try:
                    client.call(tool, {"code": "print(1)"})
                    raise Wrong(f"a guest could call {tool}")
                except Refused as error:
                    say(f"{tool}: {error}")
                    same = error.message.replace(tool, "TOOL")
                    said.append((error.code, same))
            check(said[0] == said[1], "the two refusals can be told apart")
            running = self.servers()["repl"]["instances"]
            check(not running, "a guest's call started the REPL")
            say("the same answer to both, and no container was started")
        check(client.code == 0, f"serve ended with {client.code}")


def too_late(*_):
    raise Wrong(f"no answer within {ANSWER_WITHIN} s")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    signal.signal(signal.SIGALRM, too_late)
    walk = Walk(*sys.argv[1:])
    try:
        walk.as_admin()
        walk.as_guest()
    except (Wrong, Refused, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"wrong: {error}")


if __name__ == "__main__":
    main()
