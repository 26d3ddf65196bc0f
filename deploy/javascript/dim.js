// A dimension: a number, or an expression over size variables as deploy/support/dim.h writes it
// ("N", "2*N + 1", "(N + 1) / 2", quotients rounded down). Equal expressions have equal text.

import { fail, quote } from "./error.js";

const MOST_TEXT = 1024;
const MOST_DEPTH = 16;

export class Dim {
  // `value` is a member of the manifest; `where` says which, for messages.
  constructor(value, where) {
    this.variables = new Set();
    if (Number.isSafeInteger(value)) {
      this.constant = value;
      this.text = String(value);
      return;
    }
    if (typeof value !== "string") {
      fail("module.manifest.type", `${where}: expected an integer or an expression`);
    }
    if (value.length > MOST_TEXT) {
      fail("module.manifest.expression", `${where}: expected a shorter one`);
    }
    this.constant = null;
    this.text = value;
    this.tree = new Parser(value, where, this.variables).whole();
  }

  // The variable that the dimension is; null for all others.
  get variable() {
    return this.tree?.name ?? null;
  }

  // The expression in another algebra, which makes its values of a number and of a variable's name,
  // and knows `add`, `subtract`, `multiply`, and `divide` by a number.
  fold(algebra) {
    return this.constant === null ? folded(this.tree, algebra) : algebra.number(this.constant);
  }

  // REQUIRES: `sizes` (a Map) has all variables.
  evaluate(sizes) {
    return this.constant ?? folded(this.tree, { ...NUMBERS, variable: (name) => sizes.get(name) });
  }

  // A number that the dimension does not exceed where each variable is in `range(name)`, which is
  // [least, most].
  most(range) {
    return this.fold({ ...INTERVALS, variable: range })[1];
  }
}

function folded(node, algebra) {
  if (node.number !== undefined) return algebra.number(node.number);
  if (node.name !== undefined) return algebra.variable(node.name);
  if (node.divisor !== undefined) return algebra.divide(folded(node.of, algebra), node.divisor);
  if (node.factors !== undefined) {
    return node.factors.map((factor) => folded(factor, algebra)).reduce(algebra.multiply);
  }
  return node.terms.reduce((sum, { sign, of }) => {
    const term = folded(of, algebra);
    if (sum === null && sign > 0) return term;
    return sign > 0
      ? algebra.add(sum, term)
      : algebra.subtract(sum ?? algebra.number(0), term);
  }, null);
}

function exact(value) {
  if (!Number.isSafeInteger(value)) {
    fail("module.sizes.dimension", "expected sizes below 2^53, found a larger one");
  }
  return value;
}

const NUMBERS = {
  number: (value) => value,
  add: (a, b) => exact(a + b),
  subtract: (a, b) => exact(a - b),
  multiply: (a, b) => exact(a * b),
  divide: (a, divisor) => Math.floor(a / divisor),
};

// [least, most]. Each occurrence of a variable counts for itself.
const INTERVALS = {
  number: (value) => [value, value],
  add: (a, b) => [exact(a[0] + b[0]), exact(a[1] + b[1])],
  subtract: (a, b) => [exact(a[0] - b[1]), exact(a[1] - b[0])],
  multiply: (a, b) => {
    const products = a.flatMap((x) => b.map((y) => exact(x * y)));
    return [Math.min(...products), Math.max(...products)];
  },
  divide: (a, divisor) => a.map((end) => Math.floor(end / divisor)),
};

// Sum := ['-'] Product {('+'|'-') Product}; Product := Factor {'*' Factor};
// Factor := (number | name | '(' Sum ')') ['/' number]
class Parser {
  constructor(text, where, variables) {
    this.text = text;
    this.at = 0;
    this.where = where;
    this.variables = variables;
  }

  whole() {
    const tree = this.sum(0);
    this.skip();
    if (this.at !== this.text.length) this.bad("the end of the expression");
    return tree;
  }

  bad(expected) {
    const found = quote(this.text.slice(this.at, this.at + 20));
    fail("module.manifest.expression", `${this.where}: expected ${expected}, found ${found}`);
  }

  skip() {
    while (this.text[this.at] === " ") ++this.at;
  }

  accept(character) {
    this.skip();
    if (this.text[this.at] !== character) return false;
    ++this.at;
    return true;
  }

  // What `pattern` (sticky) matches here; null if it does not.
  match(pattern) {
    this.skip();
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found !== null) this.at = pattern.lastIndex;
    return found === null ? null : found[0];
  }

  sum(depth) {
    if (depth > MOST_DEPTH) this.bad("fewer parentheses");
    const terms = [{ sign: this.accept("-") ? -1 : 1, of: this.product(depth) }];
    for (;;) {
      const sign = this.accept("+") ? 1 : this.accept("-") ? -1 : 0;
      if (sign === 0) break;
      terms.push({ sign, of: this.product(depth) });
    }
    return terms.length === 1 && terms[0].sign === 1 ? terms[0].of : { terms };
  }

  product(depth) {
    const factors = [this.factor(depth)];
    while (this.accept("*")) factors.push(this.factor(depth));
    return factors.length === 1 ? factors[0] : { factors };
  }

  factor(depth) {
    let of;
    if (this.accept("(")) {
      of = this.sum(depth + 1);
      if (!this.accept(")")) this.bad("a closing parenthesis");
    } else {
      const number = this.match(/[0-9]{1,12}/y);
      const name = number === null ? this.match(/[A-Za-z0-9_]{1,64}/y) : null;
      if (number === null && name === null) this.bad("a number, a name or a parenthesis");
      if (name !== null) this.variables.add(name);
      of = number !== null ? { number: Number(number) } : { name };
    }
    if (!this.accept("/")) return of;
    const divisor = Number(this.match(/[0-9]{1,12}/y) ?? 0);
    if (divisor < 1) this.bad("a divisor above zero");
    return { of, divisor };
  }
}
