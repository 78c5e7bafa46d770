// Runs inside the bake's container, as the unprivileged user: finds the tree of an npm package, and installs one.
// Each line of its input is an order; it answers each on a line that begins with the order's marker, for bake/output.rs.
// The end of its input is its own end: nobody waits any more.
//
// No package's own code runs: lifecycle scripts are off, and so are dependencies from git (whose settings can name a
// program to run), web addresses and files. Nothing is written outside of /opt/server but to memory.
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, lstatSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const home = "/opt/server";
const hidden = join(home, "node_modules/.package-lock.json");
const npmItself = process.env.PATH.split(":").map((folder) => join(folder, "npm")).find(existsSync);
const semver = createRequire(realpathSync(npmItself))("semver");

class Failed extends Error {
  constructor(text, why) { super(text); this.why = why; }
}

let order;

async function npm(...args) {
  const barred = ["git", "file", "directory", "remote"];
  const safe = ["--ignore-scripts", ...barred.map((from) => `--allow-${from}=none`)];
  const quiet = ["--json", "--no-audit", "--no-fund", "--no-progress", "--no-update-notifier"];
  const retries = ["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000"];
  const env = { ...process.env, HOME: "/bake", NPM_CONFIG_CACHE: "/bake/cache", ...order.env };
  const child = spawn("npm", [args[0], ...safe, ...quiet, ...retries, ...args.slice(1)], { cwd: home, env, stdio: ["ignore", "pipe", 1] });
  let out = "";
  child.stdout.setEncoding("utf8").on("data", (piece) => { out += piece; });
  const ended = await new Promise((done) => child.on("error", (error) => done(error.message))
    .on("close", (status, signal) => done(status === 0 ? undefined : `exit ${status ?? signal}`)));
  if (ended === undefined) return;
  let error;
  try { ({ error } = JSON.parse(out)); } catch { error = undefined; }
  const text = error?.summary ?? `npm ${args[0]}: ${ended}`;
  if (error?.code === "EINTEGRITY") throw notTheLocked(text);
  throw new Failed(text, ["E401", "E403", "ENEEDAUTH"].includes(error?.code) ? "login" : undefined);
}

function notTheLocked(text) {
  const found = order.tree?.find((entry) => entry.integrity && text.includes(entry.integrity));
  const which = found ? `${nameOf(found)} ${found.version}` : "a package";
  return new Failed(`the bytes of ${which} from the registry are not the locked ones: ${text}`, "bytes");
}

const nameOf = (entry) => entry.name ?? entry.path.split("node_modules/").pop();

// A tag says what is newest, which is settled once the tree is known; what stands in a lock must not be asked for again.
function settled(specs) {
  const spec = (text) => (text.startsWith("npm:") || semver.validRange(text, true) !== null ? text : "*");
  return specs && Object.fromEntries(Object.entries(specs).map(([name, text]) => [name, spec(text)]));
}

async function resolve() {
  const dependencies = { ...order.with, [order.name]: order.version };
  writeFileSync(join(home, "package.json"), JSON.stringify({ private: true, dependencies }));
  await npm("install", "--package-lock-only", "--omit=dev");
  const { packages } = JSON.parse(readFileSync(join(home, "package-lock.json"), "utf8"));
  for (const file of ["package.json", "package-lock.json"]) rmSync(join(home, file));
  const tree = Object.entries(packages).filter(([path]) => path !== "").map(([path, entry]) => ({
    ...entry,
    path,
    dependencies: settled(entry.dependencies),
    optionalDependencies: settled(entry.optionalDependencies),
    peerDependencies: settled(entry.peerDependencies),
  }));
  return { version: packages[`node_modules/${order.name}`].version, tree };
}

async function install() {
  const at = (name) => order.tree.find((entry) => entry.path === `node_modules/${name}`);
  const names = [...Object.keys(order.with), order.name].sort();
  const absent = names.find((name) => at(name) === undefined);
  if (absent) throw new Failed(`the locked tree has no package ${absent}: lock the server anew`);
  const dependencies = Object.fromEntries(names.map((name) => [name, at(name).version]));
  const packages = Object.fromEntries(order.tree.map(({ path, ...entry }) => [path, entry]));
  writeFileSync(join(home, "package.json"), JSON.stringify({ private: true, dependencies }));
  const lock = { lockfileVersion: 3, requires: true, packages: { "": { dependencies }, ...packages } };
  writeFileSync(join(home, "package-lock.json"), JSON.stringify(lock));
  await npm("ci", "--omit=dev");
  asLocked();
  rmSync(hidden);
  settle(home);
  const own = at(order.name);
  return {
    version: own.version,
    integrity: own.integrity ?? null,
    programs: programs(own.bin ?? {}, join(home, "node_modules", order.name)),
    held: order.tree.filter((entry) => entry.hasInstallScript).map(nameOf),
    content: digest(),
  };
}

// What npm says that it installed, held against what it was to install.
function asLocked() {
  const locked = new Map(order.tree.map((entry) => [entry.path, entry]));
  for (const [path, { version, integrity }] of Object.entries(JSON.parse(readFileSync(hidden, "utf8")).packages)) {
    const asked = locked.get(path);
    if (asked?.version !== version || (asked.integrity && asked.integrity !== integrity)) {
      throw new Failed(`npm installed ${path} ${version}, which is not what is locked`, "bytes");
    }
  }
}

// Everything becomes readable by all, writable by its owner alone, and never set-uid.
function settle(path) {
  const stat = lstatSync(path);
  if (stat.isSymbolicLink()) return;
  const runs = stat.isDirectory() || (stat.mode & 0o111) !== 0;
  chmodSync(path, runs ? 0o755 : 0o644);
  if (stat.isDirectory()) for (const name of readdirSync(path)) settle(join(path, name));
}

// How to start a file: by node itself where its first line asks for nothing else, or else as it stands.
function command(file) {
  const first = readFileSync(file, "latin1").split("\n", 1)[0].trim();
  const asks = first.startsWith("#!");
  const node = asks ? /^#!\s*(\/usr\/bin\/env\s+node|\/usr(\/local)?\/bin\/node)$/.test(first) : /\.[cm]?js$/.test(file);
  return node ? [process.execPath, file] : [file];
}

function programs(bins, folder) {
  const found = Object.entries(bins).map(([name, path]) => [name, join(folder, path)]);
  const asked = order.executable;
  if (asked && !Object.hasOwn(bins, asked)) found.push([asked, join(home, "node_modules/.bin", asked)]);
  return found.filter(([, path]) => existsSync(path))
    .map(([name, path]) => ({ name, command: command(realpathSync(path)) }));
}

function digest() {
  const done = spawnSync("python3", ["-P", "-c", order.digest, home]);
  if (done.status !== 0) throw new Failed(`the content cannot be hashed: ${done.stderr}`);
  return done.stdout.toString().trim();
}

const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(1));
lines.on("line", async (line) => {
  order = JSON.parse(line);
  let answer;
  try {
    for (const [path, text] of Object.entries(order.files)) writeFileSync(path, text);
    if (order.ca) writeFileSync(order.ca.at, readFileSync(order.ca.beside, "utf8") + order.ca.text);
    answer = await (order.mode === "resolve" ? resolve() : install());
  } catch (error) {
    answer = { failed: error instanceof Failed ? error.message : String(error.stack), why: error.why };
  }
  process.stdout.write(`\n${order.marker} ${JSON.stringify(answer)}\n`);
});
