#!/usr/bin/env bash
# The inspector's command line as a client: inspector.sh [--era legacy|auto|modern] [--call NAME JSON]... -- PROGRAM [ARG]...
# It starts the program anew for every method. It shows no progress, and refuses unknown tools by itself.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
inspector=${BULKHEAD_CLIENTS:-$here/../../target/clients}/inspector/run

fail() { echo "inspector: $1" >&2; exit 1; }

era=legacy names=() arguments=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --era) era=$2; shift 2 ;;
    --call) names+=("$2"); arguments+=("$3"); shift 3 ;;
    *) fail "unknown argument: $1" ;;
  esac
done
[[ $# -gt 1 ]] || fail "usage: [--era ERA] [--call NAME JSON]... -- PROGRAM [ARG]..."
command=("${@:2}")

[[ -x $inspector ]] || fail "no inspector: $inspector"

environment=() # by itself the inspector hands on only a few variables
while IFS= read -r -d '' pair; do environment+=(-e "$pair"); done < <(env -0)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ask() { # FILE METHOD-ARGS...: result to FILE, error to FILE.err
  "$inspector" --cli --quiet --format json --protocol-era "$era" "${environment[@]}" "${@:2}" \
    -- "${command[@]}" >"$work/$1" 2>"$work/$1.err"
}

for method in initialize tools/list; do
  ask "${method/\//-}" --method "$method" || fail "$method: $(cat "$work/${method/\//-}.err")"
done
for i in "${!names[@]}"; do
  ask "call-$i" --method tools/call --tool-name "${names[i]}" --tool-args-json "${arguments[i]}" || true
done

node - "$work" "${names[@]}" <<'JS'
const { readFileSync } = require("node:fs");
const [work, ...names] = process.argv.slice(2);
const read = (file) => JSON.parse(readFileSync(`${work}/${file}`, "utf8") || "{}");
const hello = read("initialize").result;
const calls = names.map((name, i) => {
  const { result } = read(`call-${i}`);
  if (!result) return { name, ok: false, text: read(`call-${i}.err`).error?.message };
  const texts = result.content.filter((block) => block.type === "text").map((block) => block.text);
  return { name, ok: !result.isError, text: texts.join("\n"), structured: result.structuredContent };
});
const tools = read("tools-list").result.tools.map((tool) => tool.name);
const report = { client: "inspector", revision: hello.protocolVersion, server: hello.serverInfo, tools, calls, progress: null };
console.log(JSON.stringify(report));
JS
