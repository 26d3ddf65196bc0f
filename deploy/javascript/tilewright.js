// Runs modules of Tilewright (`tilewright compile --target wasm`) in browsers and in Node.js:
//
//   const module = await loadModule(await (await fetch("model.tw")).arrayBuffer());
//   const session = await module.createSession();
//   const { output } = session.run({ input: new Float32Array(4 * 84 * 84) });
//
// The memory of a session is one WebAssembly.Memory of at most 4 GiB. A run is one call on the
// calling thread: a page that must stay responsive loads this file in a worker.

export { TilewrightError } from "./error.js";
export { loadModule } from "./module.js";
