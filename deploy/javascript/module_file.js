// The file `model.tw` (deploy/module/module_file.h has the layout): its sections, after every byte
// of it was checked against a digest.

import { fail } from "./error.js";

const MAGIC = "TWMODULE";
const VERSION = 1;
const HEADER_BYTES = 64;
const ENTRY_BYTES = 64;
const DIGEST_BYTES = 32;
const MOST_SECTIONS = 65536;
const MANIFEST = 1;
const CODE = 2;
const CONSTANTS = 3;
const PAGE = 4096;

// Returns { manifest: text, code: [Uint8Array], constants: Uint8Array, digests: {code, constants} },
// views of `bytes`. Throws module.file.* if the file is not intact. `digest`, 64 hex digits: of the
// whole file, as `tilewright modules` shows it.
export async function readModuleFile(bytes, { digest = null } = {}) {
  const subtle = await findSubtle();
  const sha256 = async (data) => hex(new Uint8Array(await subtle.digest("SHA-256", data)));
  if (digest !== null && (await sha256(bytes)) !== digest.toLowerCase()) {
    fail("module.file.digest", `expected the module ${digest}, found another one`);
  }
  const sections = await decodeTable(bytes, sha256);
  checkLayout(bytes, sections);
  for (const section of sections) {
    section.contents = bytes.subarray(section.offset, section.offset + section.size);
    if ((await sha256(section.contents)) === section.digest) continue;
    fail(`module.file.${section.what}_digest`, "the contents do not match their digest");
  }
  const code = sections.filter((section) => section.kind === CODE);
  const constants = sections.find((section) => section.kind === CONSTANTS);
  return {
    manifest: decodeText(sections[0].contents),
    code: code.map((section) => section.contents),
    constants: constants?.contents ?? new Uint8Array(0),
    digests: { code: code.map((section) => section.digest), constants: constants?.digest ?? "" },
  };
}

// Node.js 18 has it in a module only; pages have it where they came by a safe way.
async function findSubtle() {
  if (globalThis.crypto?.subtle !== undefined) return globalThis.crypto.subtle;
  try {
    return (await import("node:crypto")).webcrypto.subtle;
  } catch {
    return fail("runtime.load.digests",
      "expected crypto.subtle, with which modules are checked, found none; serve the page by https " +
      "or from localhost");
  }
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function decodeText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return fail("module.manifest.utf8", "expected UTF-8 in all texts");
  }
}

function allZero(bytes) {
  return bytes.every((byte) => byte === 0);
}

function alignUp(value, alignment) {
  return Math.ceil(value / alignment) * alignment;
}

// A number of 64 bits; one that is not exact is larger than any file.
function take64(view, at) {
  return view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
}

async function decodeTable(bytes, sha256) {
  const magic = String.fromCharCode(...bytes.subarray(0, MAGIC.length));
  if (bytes.length < HEADER_BYTES || magic !== MAGIC) {
    fail("module.file.magic", "expected a Tilewright module, found something else");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.getUint32(8, true);
  if (version > VERSION) {
    fail("module.file.version", `expected at most ${VERSION}, found ${version}`);
  }
  const count = view.getUint32(12, true);
  if (version === 0 || count === 0 || count > MOST_SECTIONS || !allZero(bytes.subarray(56, 64))) {
    fail("module.file.header", "impossible version, section count or reserved bytes");
  }
  const tableEnd = HEADER_BYTES + ENTRY_BYTES * count;
  const fileSize = take64(view, 16);
  if (fileSize !== bytes.length || tableEnd > bytes.length) {
    fail("module.file.truncated", `expected ${fileSize} bytes, found ${bytes.length}`);
  }
  const table = bytes.subarray(HEADER_BYTES, tableEnd);
  if ((await sha256(table)) !== hex(bytes.subarray(24, 24 + DIGEST_BYTES))) {
    fail("module.file.table_digest", "the section table does not match its digest");
  }
  const sections = [];
  for (let at = HEADER_BYTES; at < tableEnd; at += ENTRY_BYTES) {
    if (!allZero(bytes.subarray(at + 56, at + ENTRY_BYTES))) {
      fail("module.file.table", "reserved bytes are not zero");
    }
    const kind = view.getUint32(at, true);
    sections.push({
      kind,
      index: view.getUint32(at + 4, true),
      offset: take64(view, at + 8),
      size: take64(view, at + 16),
      digest: hex(bytes.subarray(at + 24, at + 24 + DIGEST_BYTES)),
      what: kind === MANIFEST ? "manifest" : kind === CODE ? "code" : "constants",
    });
  }
  return sections;
}

// Order, places and padding: sections follow each other exactly as the writer lays them out.
function checkLayout(bytes, sections) {
  let end = HEADER_BYTES + ENTRY_BYTES * sections.length;
  sections.forEach((section, i) => {
    const last = i + 1 === sections.length;
    const expected = i === 0
      ? section.kind === MANIFEST && section.index === 0
      : (section.kind === CODE && section.index === i - 1) ||
        (section.kind === CONSTANTS && last && section.index === 0);
    if (!expected) fail("module.file.table", `unexpected section ${i}`);
    const start = alignUp(end, section.kind === MANIFEST ? HEADER_BYTES : PAGE);
    if (section.offset !== start || section.size > bytes.length - start) {
      fail("module.file.section_bounds", `section ${i} is not where it belongs`);
    }
    if (!allZero(bytes.subarray(end, start))) {
      fail("module.file.padding", `bytes before section ${i} are not zero`);
    }
    end = start + section.size;
  });
  if (end !== bytes.length) fail("module.file.trailing", "bytes after the last section");
}
