// Random changes of JSON, for tests of readers: the same ones for the same seed.

// Every place of a value inside: [owner, key].
function placesIn(json, found = []) {
  for (const key of Object.keys(json)) {
    found.push([json, key]);
    if (typeof json[key] === "object" && json[key] !== null) placesIn(json[key], found);
  }
  return found;
}

export class Mutator {
  #state;
  #values;

  // `values`: what places get.
  constructor(values, seed = Number(process.env.SEED ?? 1)) {
    this.#state = seed;
    this.#values = values;
  }

  below(limit) {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * limit);
  }

  // Gives a place in `json` another value: three times of four one of the same type, which readers
  // refuse later.
  change(json) {
    const places = placesIn(json);
    if (places.length === 0) return;
    const [owner, key] = places[this.below(places.length)];
    const same = this.#values.filter((value) => typeof value === typeof owner[key]);
    const from = same.length > 0 && this.below(4) > 0 ? same : this.#values;
    owner[key] = structuredClone(from[this.below(from.length)]);
  }
}
