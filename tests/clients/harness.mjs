// What the TypeScript clients share: the command line, the place of the SDK, the walk and its report.
// Knows nothing of the gateway beyond its command line.
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const clients = process.env.BULKHEAD_CLIENTS || fileURLToPath(new URL("../../target/clients", import.meta.url));

/** A `require` that finds the packages installed for that client. */
export const packages = (client) => createRequire(join(clients, client, "package.json"));

/** `[--call NAME JSON]... [FLAG]... -- PROGRAM [ARG]...` */
export function commandLine(...known) {
  const end = process.argv.indexOf("--");
  if (end < 0 || end + 1 === process.argv.length) throw new Error("usage: [--call NAME JSON]... -- PROGRAM [ARG]...");
  const [command, ...args] = process.argv.slice(end + 1);
  const line = { command, args, calls: [], flags: new Set() };
  for (let at = 2; at < end; at++) {
    const word = process.argv[at];
    if (word === "--call" && at + 2 < end) {
      line.calls.push({ name: process.argv[at + 1], arguments: JSON.parse(process.argv[at + 2]) });
      at += 2;
    } else if (known.includes(word)) line.flags.add(word);
    else throw new Error(`unknown argument: ${word}`);
  }
  return line;
}

/** How to start the server; it gets our whole environment and our stderr. */
export const spawn = ({ command, args }) => ({ command, args, env: { ...process.env }, stderr: "inherit" });

/** One call as the report has it; a JSON-RPC error is a call that is not ok. */
export async function attempt(name, call) {
  try {
    const result = await call();
    const texts = (result.content ?? []).filter((block) => block.type === "text").map((block) => block.text);
    return { name, ok: !result.isError, text: texts.join("\n"), structured: result.structuredContent };
  } catch (error) {
    return { name, ok: false, text: error.message, code: error.code };
  }
}

/** Run a client, print its report, and tell by the exit code whether it could do its walk. */
export async function main(client, walk) {
  try {
    const report = await walk();
    process.stdout.write(JSON.stringify({ client, ...report }) + "\n", () => process.exit(0));
  } catch (error) {
    process.stderr.write(`${client}: ${error?.message ?? error}\n`, () => process.exit(1));
  }
}
