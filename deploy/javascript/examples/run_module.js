// Runs a module on NumPy files, as `tilewright run` does on a machine with the native runtime:
//   node run_module.js MODULE.tw --input NAME=FILE.npy… [--output-dir FOLDER] [--repeat N] [--profile]
//
// Prints one line of JSON: the outputs' shapes, the milliseconds of the runs, and with --profile those
// of each launch. With --input-sets FILE, a JSON list of { NAME: FILE.npy }, runs
// one session for each set, and writes the outputs of set i to FOLDER/i.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { loadModule, TilewrightError } from "../tilewright.js";
import { readNpy, writeNpy } from "./npy.js";

const { values: flags, positionals: [path] } = parseArgs({
  allowPositionals: true,
  options: {
    "input": { type: "string", multiple: true, default: [] },
    "input-sets": { type: "string" },
    "output-dir": { type: "string" },
    "repeat": { type: "string", default: "1" },
    "profile": { type: "boolean", default: false },
  },
});

function tensors(files) {
  return Object.fromEntries(
    Object.entries(files).map(([name, file]) => [name, readNpy(readFileSync(file))]));
}

function save(outputs, folder) {
  mkdirSync(folder, { recursive: true });
  for (const [name, tensor] of Object.entries(outputs)) {
    writeFileSync(join(folder, `${name}.npy`), writeNpy(tensor));
  }
}

async function main() {
  const module = await loadModule(readFileSync(path));
  const session = await module.createSession();
  const sets = flags["input-sets"] !== undefined
    ? JSON.parse(readFileSync(flags["input-sets"], "utf8"))
    : [Object.fromEntries(flags.input.map((text) => {
      const equals = text.indexOf("=");
      return [text.slice(0, equals), text.slice(equals + 1)];
    }))];
  const times = [];
  let outputs;
  sets.forEach((files, i) => {
    const inputs = tensors(files);
    for (let run = 0; run < Number(flags.repeat); ++run) {
      const start = performance.now();
      outputs = session.run(inputs);
      times.push(performance.now() - start);
    }
    const folder = flags["output-dir"];
    if (folder !== undefined) save(outputs, sets.length > 1 ? join(folder, String(i)) : folder);
  });
  const shapes = Object.fromEntries(Object.entries(outputs).map(([name, { shape }]) => [name, shape]));
  const profile = flags.profile ? session.runProfiled(tensors(sets.at(-1))).launches : undefined;
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.floor(share * (times.length - 1))];
  const latency = { p10: at(0.1), median: at(0.5), p90: at(0.9) };
  console.log(JSON.stringify(
    { module: module.name, outputs: shapes, latency_ms: latency, launches: profile }));
}

try {
  await main();
} catch (error) {
  if (!(error instanceof TilewrightError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
