// Writes modules with loops whose manifests are randomly changed, and what deploy/javascript says of
// them, for a comparison with other readers:
//   node mutated_modules.mjs FOLDER COUNT [SEED]
// FOLDER/N.tw are the modules, FOLDER/slugs.json is a list of slugs, "" where it loads.
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { loadModule } from "../../deploy/javascript/tilewright.js";
import { Mutator } from "./mutate_json.mjs";
import {
  FINITE_CODE, fileOf, findingInTripsManifest, findingManifest, loopManifest,
} from "./small_wasm_module.mjs";

const [folder, count, seed = "1"] = process.argv.slice(2);
const MAKERS = [loopManifest, findingManifest, findingInTripsManifest];
const mutator = new Mutator([...Array(16).keys(), -1, "steps", "left", "left + steps", "left*steps", "",
  [], [1], ["steps"], ["left"]], Number(seed));

const slugs = [];
for (let i = 0; i < Number(count); ++i) {
  const changed = MAKERS[i % MAKERS.length]();
  const [main] = changed.functions;
  const parts = [main, main.loops, main.checks ?? [], changed.tensors, main.launches, changed.size_vars];
  const edits = i < MAKERS.length ? 0 : 1 + mutator.below(2);
  for (let e = 0; e < edits; ++e) mutator.change(parts[mutator.below(parts.length)]);
  const file = fileOf(changed, FINITE_CODE);
  writeFileSync(join(folder, `${i}.tw`), file);
  slugs.push(await loadModule(file).then(() => "", (error) => error.slug ?? error.stack));
}
writeFileSync(join(folder, "slugs.json"), JSON.stringify(slugs));
