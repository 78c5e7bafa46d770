#!/usr/bin/env python3
"""The Python SDK 2.x as a client: py2.py [--legacy] [--call NAME JSON]... -- PROGRAM [ARG]...

By itself it asks for the stateless era first and falls back to the handshake; --legacy makes the handshake at once.
"""
import sys

sys.dont_write_bytecode = True
from harness import attempt, enter, main  # noqa: E402

enter("py2")
from mcp import Client, StdioServerParameters  # noqa: E402


async def walk(line):
    mode = {"mode": "legacy"} if "--legacy" in line.flags else {}
    async with Client(StdioServerParameters(**line.spawn()), read_timeout_seconds=60, **mode) as client:
        tools, cursor, more = [], None, True
        while more:
            page = await client.list_tools(cursor=cursor)
            tools += [tool.name for tool in page.tools]
            cursor, more = page.next_cursor, page.next_cursor is not None

        seen = []

        async def progress(done, total, message):
            seen.append(done)

        calls = [await attempt(name, client.call_tool(name, arguments, progress_callback=progress))
                 for name, arguments in line.calls]
        server = client.server_info
        return {"revision": client.protocol_version, "server": server and server.model_dump(exclude_none=True),
                "tools": tools, "calls": calls, "progress": len(seen)}


main("py2", walk, "--legacy")
