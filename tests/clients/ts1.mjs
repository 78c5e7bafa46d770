#!/usr/bin/env node
// The TypeScript SDK 1.x as a client: ts1.mjs [--call NAME JSON]... -- PROGRAM [ARG]...
import { attempt, commandLine, main, packages, spawn } from "./harness.mjs";

await main("ts1", async () => {
  const line = commandLine();
  const require = packages("ts1");
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

  const client = new Client({ name: "ts1", version: "1" });
  const transport = new StdioClientTransport(spawn(line));
  let revision;
  transport.setProtocolVersion = (version) => { revision = version; };

  try {
    await client.connect(transport);
    const tools = [];
    let cursor;
    do {
      const page = await client.listTools(cursor === undefined ? {} : { cursor });
      tools.push(...page.tools.map((tool) => tool.name));
      cursor = page.nextCursor;
    } while (cursor !== undefined);

    let progress = 0;
    const calls = [];
    for (const call of line.calls) {
      calls.push(await attempt(call.name, () => client.callTool(call, undefined, { onprogress: () => progress++ })));
    }
    return { revision, server: client.getServerVersion(), tools, calls, progress };
  } finally {
    await client.close();
  }
});
