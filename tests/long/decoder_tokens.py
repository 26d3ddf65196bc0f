#!/usr/bin/env python3
"""A decoder of 108 M parameters with weights of 4 bits, one token after the other: its next token against float64 NumPy.

    TILEWRIGHT_BUILD_DIR=build/release tests/long/decoder_tokens.py [--tokens 1000] [--form plain|grouped ...]

Reads seeded tokens one by one with the cache as state. The largest logit must be that of the reference, which computes all tokens at
once, wherever its margin exceeds twice the error of floats (TOLERANCE of the largest logit); no logit may be off by more. Writes
tests/results/decoder_tokens.json: of each form the tokens, those within the error, the largest error and the least margin that was told
apart. Exit code 1 when one is wrong."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lane import ROOT, commit

sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from decode_race import BIN, LARGE, tw  # noqa: E402
from decoder_models import Config, Decoder  # noqa: E402

RESULT = ROOT / "tests/results/decoder_tokens.json"
TOLERANCE = 4e-6  # of the largest logit


def decoded(decoder, tokens, folder):
    """Logits [token, vocab] of a session that reads one token at a time."""
    model, module, length = folder / "model.onnx", folder / "model.tw", tokens.shape[1]
    onnx.save(decoder.model(), str(model))
    sizes = [word for flag in decoder.shape_flags(f"0..{length}", "1..8") for word in ("--shape", flag)]
    subprocess.run([BIN / "tilewright", "compile", model, "--target", "native,threads=2", "--effort", "0", "--state", "known", "-o", module,
                    *sizes], check=True, capture_output=True)
    session = tw.Session(tw.Module(module), 2)
    session.reset()
    return np.stack([session.run(decoder.feeds(tokens[:, i:i + 1], i))["logits"][0, -1] for i in range(length)])


def compared(form, length):
    config = Config(form=form, bits=4, **LARGE)
    decoder = Decoder(config)
    tokens = np.random.default_rng(5).integers(0, config.vocab, (1, length)).astype(np.int64)
    start = time.time()
    with tempfile.TemporaryDirectory(prefix="tilewright-tokens-") as folder:
        found = decoded(decoder, tokens, Path(folder))
    wanted = decoder.logits(tokens)[0]
    largest = np.abs(wanted).max()
    error = np.abs(found - wanted).max(axis=1) / largest
    second, first = np.sort(wanted, axis=1)[:, -2:].T
    margin = (first - second) / largest
    told = margin > 2 * TOLERANCE
    same = found.argmax(axis=1) == wanted.argmax(axis=1)
    wrong = np.flatnonzero(told & ~same) if error.max() <= TOLERANCE else np.flatnonzero(error > TOLERANCE)
    return {"form": form, "tokens": length, "equal": int(same.sum()), "within_the_error": int((~told).sum()), "wrong": wrong.tolist(),
            "largest_error": float(f"{error.max():.3g}"), "least_margin": float(f"{margin[told].min():.3g}"),
            "seconds": round(time.time() - start, 1)}


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--tokens", type=int, default=1000)
    flags.add_argument("--form", choices=("plain", "grouped"), nargs="*", default=["plain", "grouped"])
    options = flags.parse_args()
    rows = []
    for form in options.form:
        rows.append(compared(form, options.tokens))
        print(rows[-1], flush=True)
    RESULT.write_text(json.dumps({"commit": commit(RESULT), "date": time.strftime("%Y-%m-%d"), "tolerance": TOLERANCE, "rows": rows},
                                 indent=1) + "\n")
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
