// Runs inside the build container, as the unprivileged user: resolves or installs one npm package.
// Reads /bake/inputs.json; its last line of output is the answer that bake/output.rs looks for.
// No package's own code runs: lifecycle scripts are off, and so are dependencies from git (whose settings
// can name a program to run), web addresses and files.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, lstatSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const inputs = JSON.parse(readFileSync("/bake/inputs.json", "utf8"));
const home = "/opt/server";

function answer(value) {
  process.stdout.write(`\n${inputs.marker} ${JSON.stringify(value)}\n`);
  process.exit(value.failed === undefined ? 0 : 1);
}

function npm(...args) {
  // `npm pack` of a registry's package counts as remote itself; it is given a checked name, and asks for no other.
  const barred = ["git", "file", "directory", ...(args[0] === "pack" ? [] : ["remote"])];
  const safe = ["--ignore-scripts", ...barred.map((from) => `--allow-${from}=none`)];
  const quiet = ["--json", "--no-audit", "--no-fund", "--no-progress", "--no-update-notifier"];
  const env = { ...process.env, HOME: "/bake", NPM_CONFIG_CACHE: "/bake/cache" };
  const done = spawnSync("npm", [args[0], ...safe, ...quiet, ...args.slice(1)],
    { cwd: home, env, stdio: ["ignore", "pipe", 1], maxBuffer: 1 << 28 });
  let told;
  try { told = JSON.parse(done.stdout.toString()); } catch { told = undefined; }
  if (done.error || done.status !== 0) {
    answer({ failed: told?.error?.summary ?? `npm ${args[0]}: ${done.error?.message ?? `exit ${done.status ?? done.signal}`}` });
  }
  return told;
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
  const asked = inputs.executable;
  if (asked && !Object.hasOwn(bins, asked)) found.push([asked, join(home, "node_modules/.bin", asked)]);
  return found.filter(([, path]) => existsSync(path))
    .map(([name, path]) => ({ name, command: command(realpathSync(path)) }));
}

if (inputs.mode === "resolve") {
  const [packed] = npm("pack", "--dry-run", "--", `${inputs.name}@${inputs.version}`);
  answer({ version: packed.version });
}

const dependencies = { ...inputs.with, [inputs.name]: inputs.version };
writeFileSync(join(home, "package.json"), JSON.stringify({ private: true, dependencies }));
npm("install", "--omit=dev");
const tree = JSON.parse(readFileSync(join(home, "package-lock.json"), "utf8")).packages;
const top = tree[`node_modules/${inputs.name}`];
settle(home);
rmSync("/bake/cache", { recursive: true, force: true }); // or the engine would store it only to drop it again
answer({
  version: top.version,
  integrity: top.integrity ?? null,
  programs: programs(top.bin ?? {}, join(home, "node_modules", inputs.name)),
  held: Object.entries(tree).filter(([, p]) => p.hasInstallScript).map(([path]) => path.split("node_modules/").pop()),
});
