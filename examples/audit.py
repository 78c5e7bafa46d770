#!/usr/bin/env python3
"""Audit records in a short form for people, one line each.

    bulkhead audit tail -n 20 | examples/audit.py
"""

import json
import sys


def intent(r):
    who = f"{r['principal'] or 'guest'} ({r['role']})"
    what = f"{r['server']} {r['tool']}" if r["tool"] else r["exposed"]
    text = f"{r['decision']} {who} {what}"
    if r["decision"] == "deny":
        return f"{text}, by {', '.join(r['policy']) or 'nothing'}"
    return f"{text}, evidence {(r['evidence'] or 'none')[:8]}"


def outcome(r):
    return f"{r['outcome']}, {r['ms']} ms, {r['result_bytes']} bytes"


def server(r):
    container = f", container {r['container'][:12]}" if r["container"] else ""
    return f"{r['server']} {r['event']}{container}"


def gateway(r):
    configuration = (r["config_digest"] or "unknown")[:8]
    return f"{r['event']}, configuration {configuration}"


KINDS = {"intent": intent, "outcome": outcome, "server": server,
         "gateway": gateway}

for line in sys.stdin:
    r = json.loads(line)
    text = KINDS[r["kind"]](r)
    print(f"{r['seq']:>4} {r['time'][11:19]} {r['kind']:<7} {text}")
