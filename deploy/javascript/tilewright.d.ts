// Types of tilewright.js.

export type DType =
  | "bool" | "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64"
  | "float16" | "bfloat16" | "float32" | "float64";

/** bool is bytes; float16 and bfloat16 are their bits. */
export type TensorData =
  | Uint8Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint16Array | Uint32Array
  | BigUint64Array | Float32Array | Float64Array;

export interface TensorType {
  readonly name: string;
  readonly dtype: DType;
  /** Open dimensions are expressions over `sizeVars`. */
  readonly shape: readonly (number | string)[];
}

export interface Tensor {
  data: TensorData;
  shape: readonly number[];
}

export interface SizeVar {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  /** Whether a run finds it; else the shapes of the inputs say it, or the state. */
  readonly found: boolean;
}

export interface LaunchTime {
  readonly name: string;
  readonly symbol: string;
  /** Of all trips, where a loop runs it. */
  readonly ms: number;
}

/** A slug of deploy/docs/reference/errors.md, and what was expected and found. */
export class TilewrightError extends Error {
  readonly slug: string;
  readonly detail: string;
}

export interface Session {
  /** Outputs are copies. A typed array alone is for inputs of fixed shape. */
  run(inputs: Record<string, TensorData | Tensor>): Record<string, Tensor>;
  runProfiled(inputs: Record<string, TensorData | Tensor>): {
    outputs: Record<string, Tensor>;
    launches: LaunchTime[];
  };
  /** A run in three parts, for measurements. */
  bind(inputs: Record<string, TensorData | Tensor>): void;
  repeat(runs: number): void;
  outputs(): Record<string, Tensor>;
  poison(): void;
  readonly stateLength: number;
  resetState(length?: number): void;
}

export interface SessionOptions {
  /** What the session's memory may hold at most, at least 2 MiB; 4 GiB without it. */
  memoryLimitBytes?: number;
}

export interface Module {
  readonly name: string;
  readonly inputs: TensorType[];
  readonly outputs: TensorType[];
  readonly sizeVars: SizeVar[];
  createSession(options?: SessionOptions): Promise<Session>;
}

export interface LoadOptions {
  /** SHA-256 of the whole file, 64 hex digits: any other module is refused. */
  digest?: string;
}

export function loadModule(bytes: ArrayBuffer | Uint8Array, options?: LoadOptions): Promise<Module>;
