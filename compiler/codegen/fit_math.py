#!/usr/bin/env python3
"""Fits the polynomials of math_tables.h and prints them as its tables.

    compiler/codegen/fit_math.py

Minimax in the weighted error by Lawson's iteration (reweighted least squares on a dense grid), in long
double; then the coefficients are rounded to f32 from the lowest up, each time fitting the rest again, so
that the rounding of one is made good by the others.
"""
import math

import numpy as np


def lawson(x, y, weight, degree, fixed):
    """Coefficients c[len(fixed)..degree] of the polynomial whose first ones are `fixed`."""
    rest = y - sum(c * x**i for i, c in enumerate(fixed))
    powers = range(len(fixed), degree + 1)
    scale = np.max(np.abs(x))
    basis = np.stack([(x / scale) ** i for i in powers], axis=1) * weight[:, None]
    target = rest * weight
    w = np.full(len(x), 1.0 / len(x))
    best, least = None, math.inf
    for _ in range(400):
        root = np.sqrt(w)[:, None]
        c = np.linalg.lstsq((basis * root).astype(float), (target * root[:, 0]).astype(float), rcond=None)[0]
        error = np.abs(basis @ c - target)
        if error.max() < least:
            best, least = c, error.max()
        w = w * (error + 1e-30)
        w /= w.sum()
    return [float(v) / float(scale) ** i for i, v in zip(powers, best)], least


def fit(name, function, weight, low, high, degree, points=3001):
    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, points))
    y = np.array([function(v) for v in x])
    w = np.array([weight(v) for v in x])
    fixed = []
    for _ in range(degree + 1):
        rest, least = lawson(x, y, w, degree, fixed)
        fixed.append(float(np.float32(rest[0])))
    error = np.max(np.abs(sum(c * x**i for i, c in enumerate(fixed)) - y) * w)
    print(f"// {name}: degree {degree}, largest error {error:.1e} on [{low:.4g}, {high:.4g}]")
    print(", ".join(float(c).hex() + "f" for c in fixed))


def erfc_log(t):
    return math.log(math.erfc(t))


def series(f, x0, small):
    return lambda v: small(v) if abs(v) < x0 else f(v)


LN2 = math.log(2)
# e^r = 1 + r + r^2 P(r); the error relative to e^r.
fit("exp", series(lambda r: (math.expm1(r) - r) / r**2, 0.02, lambda r: 0.5 + r / 6 + r**2 / 24 + r**3 / 120 + r**4 / 720 + r**5 / 5040),
    lambda r: r * r / math.exp(r), -LN2 / 2 * 1.001, LN2 / 2 * 1.001, 4)
# log(1 + f) = f - f^2 / 2 + f^3 P(f); relative to log(1 + f).
fit("log", series(lambda f: (math.log1p(f) - f + f * f / 2) / f**3, 0.02,
                  lambda f: sum((-1) ** k * f**k / (k + 3) for k in range(12))),
    lambda f: f * f * abs(f / math.log1p(f)) if f else 0.0, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 7)
# tanh x = x + x^3 P(x^2), x^2 in [0, 0.4].
fit("tanh", series(lambda z: (math.tanh(math.sqrt(z)) / math.sqrt(z) - 1) / z, 0.002, lambda z: -1 / 3 + 2 * z / 15 - 17 * z * z / 315 + 62 * z**3 / 2835),
    lambda z: z, 0.0, 0.4, 4)
# erf x = x + x P(x^2), x^2 in [0, 1].
fit("erf", series(lambda z: math.erf(math.sqrt(z)) / math.sqrt(z) - 1, 1e-4,
                  lambda z: 2 / math.sqrt(math.pi) * (1 - z / 3 + z * z / 10 - z**3 / 42) - 1),
    lambda z: 1.0, 0.0, 1.0, 6)
# erfc t = exp(P(t)), t in [1, 4]; the error of erf.
fit("erfc", erfc_log, lambda t: math.erfc(t), 1.0, 4.0, 6)
fit("erfc", erfc_log, lambda t: math.erfc(t), 1.0, 4.0, 7)
