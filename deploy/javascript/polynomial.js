// Dimensions as polynomials over size variables, which are equal where the expressions are equal at
// all sizes (deploy/support/dim.h). Quotients that are rounded down are variables of their own.

import { fail } from "./error.js";

const MOST_TERMS = 64;

export class Polynomial {
  // By its text: { atoms, coefficient }, without those of coefficient 0.
  #terms = new Map();

  static #number(value) {
    return new Polynomial().#plus([], BigInt(value));
  }

  static #variable(name) {
    return new Polynomial().#plus([name], 1n);
  }

  static #ALGEBRA = {
    number: Polynomial.#number,
    variable: Polynomial.#variable,
    add: (a, b) => a.#sum(b, 1n),
    subtract: (a, b) => a.#sum(b, -1n),
    multiply: (a, b) => a.#times(b),
    divide: (a, divisor) => a.#quotient(BigInt(divisor)),
  };

  // The product of the dimensions. Throws module.manifest.expression if it has too many terms.
  static product(dims) {
    return dims.map((dim) => dim.fold(Polynomial.#ALGEBRA)).reduce(
      Polynomial.#ALGEBRA.multiply, Polynomial.#number(1));
  }

  get text() {
    return [...this.#terms].map(([atoms, { coefficient }]) => `${coefficient}*${atoms}`).sort()
      .join(" + ");
  }

  equals(other) {
    return this.text === other.text;
  }

  // Whether it is a multiple of `other`, which is one term above zero.
  isMultipleOf(other) {
    if (other.#terms.size !== 1) return false;
    const [{ atoms: divisor, coefficient: factor }] = other.#terms.values();
    if (factor < 1n) return false;
    return [...this.#terms.values()].every(({ atoms, coefficient }) => {
      const rest = [...atoms];
      return coefficient % factor === 0n && divisor.every((atom) => {
        const at = rest.indexOf(atom);
        if (at >= 0) rest.splice(at, 1);
        return at >= 0;
      });
    });
  }

  // Adds a term to this one.
  #plus(atoms, coefficient) {
    const text = atoms.join("*");
    const sum = (this.#terms.get(text)?.coefficient ?? 0n) + coefficient;
    this.#terms.delete(text);
    if (sum !== 0n) this.#terms.set(text, { atoms, coefficient: sum });
    if (this.#terms.size <= MOST_TERMS) return this;
    return fail("module.manifest.expression", `expected at most ${MOST_TERMS} terms in a size`);
  }

  #sum(other, sign) {
    const result = new Polynomial();
    for (const { atoms, coefficient } of this.#terms.values()) result.#plus(atoms, coefficient);
    for (const { atoms, coefficient } of other.#terms.values()) {
      result.#plus(atoms, sign * coefficient);
    }
    return result;
  }

  #times(other) {
    const result = new Polynomial();
    for (const a of this.#terms.values()) {
      for (const b of other.#terms.values()) {
        result.#plus([...a.atoms, ...b.atoms].sort(), a.coefficient * b.coefficient);
      }
    }
    return result;
  }

  // Terms that the divisor divides leave the quotient; of the rest only the remainder stays inside.
  #quotient(divisor) {
    const outside = new Polynomial();
    const inside = new Polynomial();
    for (const { atoms, coefficient } of this.#terms.values()) {
      const remainder = ((coefficient % divisor) + divisor) % divisor;
      const stays = atoms.length === 0 ? remainder : remainder === 0n ? 0n : coefficient;
      outside.#plus(atoms, (coefficient - stays) / divisor);
      inside.#plus(atoms, stays);
    }
    const fixed = [...inside.#terms.values()].every(({ atoms }) => atoms.length === 0);
    return fixed ? outside : outside.#plus([`(${inside.text}) / ${divisor}`], 1n);
  }
}
