// What every failure of this package throws. `slug` is one of deploy/docs/reference/errors.md, so
// that programs need not read the text.

export class TilewrightError extends Error {
  constructor(slug, detail) {
    super(`${slug}: ${detail}`);
    this.name = "TilewrightError";
    this.slug = slug;
    this.detail = detail;
  }
}

export function fail(slug, detail) {
  throw new TilewrightError(slug, detail);
}

// Text of a file that may be hostile, short enough for a message.
export function quote(text, most = 64) {
  const shown = String(text);
  return `'${shown.length > most ? `${shown.slice(0, most)}…` : shown}'`;
}

// What is wrong in the place `where` of a manifest.
export function failManifest(reason, where, detail) {
  fail(`module.manifest.${reason}`, `${where}: ${detail}`);
}
