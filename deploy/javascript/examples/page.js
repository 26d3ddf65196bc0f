// What page.html does: loads a module, runs it on zeros, and shows the largest output.
import { loadModule } from "../tilewright.js";

export async function runPage(document, url) {
  const answer = document.getElementById("answer");
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
    const module = await loadModule(await response.arrayBuffer());
    const session = await module.createSession();
    const [input] = module.inputs;
    const zeros = new Float32Array(input.shape.reduce((product, extent) => product * extent, 1));
    const start = performance.now();
    const outputs = session.run({ [input.name]: zeros });
    const ms = performance.now() - start;
    const [{ name }] = module.outputs;
    const { data } = outputs[name];
    const best = data.reduce((most, value, i) => (value > data[most] ? i : most), 0);
    answer.value = `${name}[${best}] is largest, ${data[best]} (${ms.toFixed(2)} ms)`;
  } catch (error) {
    answer.value = error.message;
  }
}
