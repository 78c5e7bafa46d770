#!/usr/bin/env python3
"""The Python SDK 1.x as a client: py1.py [--call NAME JSON]... -- PROGRAM [ARG]..."""
import sys

sys.dont_write_bytecode = True
from harness import attempt, enter, main  # noqa: E402

enter("py1")
from datetime import timedelta  # noqa: E402

from mcp import ClientSession, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402
from mcp.types import PaginatedRequestParams  # noqa: E402


async def walk(line):
    async with stdio_client(StdioServerParameters(**line.spawn())) as pipes:
        async with ClientSession(*pipes, read_timeout_seconds=timedelta(seconds=60)) as session:
            hello = await session.initialize()
            tools, cursor, more = [], None, True
            while more:
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                tools += [tool.name for tool in page.tools]
                cursor, more = page.nextCursor, page.nextCursor is not None

            seen = []

            async def progress(done, total, message):
                seen.append(done)

            calls = [await attempt(name, session.call_tool(name, arguments, progress_callback=progress))
                     for name, arguments in line.calls]
            return {"revision": hello.protocolVersion, "server": hello.serverInfo.model_dump(exclude_none=True),
                    "tools": tools, "calls": calls, "progress": len(seen)}


main("py1", walk)
