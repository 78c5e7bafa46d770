#!/usr/bin/env node
// The TypeScript SDK 2.x as a client: ts2.mjs [--auto] [--call NAME JSON]... -- PROGRAM [ARG]...
// Without --auto it makes the handshake; with it, it asks a process of its own for its era first.
import { attempt, commandLine, main, packages, spawn } from "./harness.mjs";

await main("ts2", async () => {
  const line = commandLine("--auto");
  const require = packages("ts2");
  const { Client } = require("@modelcontextprotocol/client");
  const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

  const options = line.flags.has("--auto") ? { versionNegotiation: { mode: "auto" } } : {};
  const client = new Client({ name: "ts2", version: "1" }, options);

  try {
    await client.connect(new StdioClientTransport(spawn(line)));
    const { tools } = await client.listTools(); // follows the pages by itself

    let progress = 0;
    const calls = [];
    for (const call of line.calls) {
      calls.push(await attempt(call.name, () => client.callTool(call, { onprogress: () => progress++ })));
    }
    return {
      revision: client.getNegotiatedProtocolVersion(),
      server: client.getServerVersion(),
      tools: tools.map((tool) => tool.name),
      calls,
      progress,
    };
  } finally {
    await client.close();
  }
});
