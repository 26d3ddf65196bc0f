// The thread of one measurement: a kernel that never ends is ended with it.
import { parentPort, workerData } from "node:worker_threads";

import { measure } from "./measure.js";

parentPort.postMessage({
  measured: await measure(workerData, (phase) => parentPort.postMessage({ phase })),
});
