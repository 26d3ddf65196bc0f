#!/usr/bin/env python3
"""Language models: one module reads prompts of any length and decodes token by token, with its cache as inputs and outputs or as
state; every run equals what float64 NumPy makes of all tokens at once, without any cache. With --long each form of the model meets each way
to compile it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BINDINGS = ROOT.parent / "deploy" / "bindings"
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models"), str(BINDINGS / "python"), str(BINDINGS / "examples")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from decoder_models import Config, Decoder  # noqa: E402
from fleet import BIN, run_checks  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BIN.parent / "lib" / "libtilewright_runtime.so"))
import generate  # noqa: E402
import tilewright_runtime as tw  # noqa: E402

FORMS = [Config(form=form, bits=bits) for form in ("plain", "grouped") for bits in (32, 4)]
MOST = 48  # tokens
TOLERANCE = 2e-5  # of the largest logit
LONG = "--long" in sys.argv


def tilewright(*words, code=0):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


class Compiled:
    """A decoder and its module, in a folder that lasts as long."""

    def __init__(self, config, *flags, past=f"0..{MOST}", sequence=f"1..{MOST}", batch="1..2", threads=1):
        self.decoder = Decoder(config)
        self.folder = tempfile.TemporaryDirectory(prefix="tilewright-decoder-")
        self.model, self.path = (Path(self.folder.name) / name for name in ("model.onnx", "model.tw"))
        onnx.save(self.decoder.model(), str(self.model))
        sizes = [word for flag in self.decoder.shape_flags(past, sequence, batch) for word in ("--shape", flag)]
        tilewright("compile", self.model, "--target", f"native,threads={threads}", "--effort", 0, "-o", self.path, *sizes, *flags)
        self.module = tw.Module(self.path)

    def session(self):
        return tw.Session(self.module, 1)


def tokens_of(config, batch, length, seed=3):
    return np.random.default_rng(seed).integers(0, config.vocab, (batch, length)).astype(np.int64)


def check(found, wanted, what):
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert found.shape == wanted.shape and error <= TOLERANCE, (what, found.shape, wanted.shape, error)


def parts_of(length, sizes):
    """(start, end) of runs that read `length` tokens: these many, then one by one."""
    start = 0
    for size in sizes:
        yield start, start + size
        start += size
    for at in range(start, length):
        yield at, at + 1


def one_module_reads_and_decodes():
    """The cache is what the run before gave out; at first it has no entries."""
    for config in FORMS:
        compiled = Compiled(config)
        decoder, session = compiled.decoder, compiled.session()
        for batch in (1, 2):
            tokens = tokens_of(config, batch, 24)
            wanted = decoder.logits(tokens)
            for sizes in ((1,), (7,), (16, 3, 1, 2), (24,)):
                cache = decoder.empty_cache(batch)
                for start, end in parts_of(24, sizes):
                    found = session.run({**decoder.feeds(tokens[:, start:end], start), **cache})
                    check(found["logits"], wanted[:, start:end], (config, batch, sizes, start))
                    cache = {past: found[present] for past, present in decoder.cache_names()}
                    assert cache["past_key_values.0.key"].shape == (batch, config.kv_heads, end, config.head)


def sequences_of_a_batch_differ_in_length():
    """GroupQueryAttention says how many entries each sequence has: prompts are padded behind, new entries lie behind a sequence's own."""
    lengths, steps = (9, 4), 7
    for config in (config for config in FORMS if config.form == "grouped"):
        compiled = Compiled(config)
        decoder, session = compiled.decoder, compiled.session()
        tokens = tokens_of(config, 2, max(lengths) + steps)
        wanted = [decoder.logits(tokens[i:i + 1, :length + steps])[0] for i, length in enumerate(lengths)]

        def run(part, past, more, cache):
            feeds = decoder.feeds(part, past)
            feeds["attention_mask"] = (np.arange(past + part.shape[1]) < np.array(lengths)[:, None] + more).astype(np.int64)
            found = session.run({**feeds, **cache})
            return found["logits"], {past: found[present] for past, present in decoder.cache_names()}

        logits, cache = run(tokens[:, :max(lengths)], 0, 0, decoder.empty_cache(2))
        for i, length in enumerate(lengths):
            check(logits[i, :length], wanted[i][:length], (config, i))
        for step in range(steps):
            part = np.stack([tokens[i, length + step:length + step + 1] for i, length in enumerate(lengths)])
            logits, cache = run(part, max(lengths) + step, step + 1, cache)
            for i, length in enumerate(lengths):
                check(logits[i], wanted[i][length + step:length + step + 1], (config, i, step))


def the_module_keeps_the_cache():
    for i, config in enumerate(FORMS):
        for threads in (1, 2) if LONG else (1 + i % 2,):
            compiled = Compiled(config, "--state", "known", threads=threads)
            decoder, session = compiled.decoder, compiled.session()
            assert not any("past" in info.name for info in compiled.module.inputs), compiled.module.inputs
            assert [info.name for info in compiled.module.outputs] == ["logits"], compiled.module.outputs
            assert session.state_capacity == MOST
            symbols = [launch["symbol"] for launch in json.loads(compiled.module.manifest)["functions"][0]["launches"]]
            assert any("packed_dense" in symbol for symbol in symbols) == (config.bits == 4), "weights stay integers"
            assert not any("expand" in symbol for symbol in symbols), "no copy of a head for each query head"
            assert sum("attention" in symbol for symbol in symbols) == config.layers, "one kernel reads the cache in place"
            assert not any("softmax" in symbol for symbol in symbols), symbols
            for batch in (1, 2):
                tokens = tokens_of(config, batch, MOST)
                wanted = decoder.logits(tokens)
                for sizes in ((1,), (5,), (16, 3, 1, 2), (MOST - 1,)):
                    session.reset()
                    for start, end in parts_of(MOST, sizes):
                        assert session.state_length == start
                        found = session.run(decoder.feeds(tokens[:, start:end], start))
                        check(found["logits"], wanted[:, start:end], (config, threads, batch, sizes, start))


def a_function_for_single_tokens_shares_the_cache():
    """A prompt goes through kernels for any length, each token behind it through those for one."""
    for i, config in enumerate(FORMS):
        for flags in ({}, {"batch": "1"}) if LONG else ({"batch": "1"} if i in (1, 2) else {},):
            compiled = Compiled(config, "--state", "known", "--specialise", "sequence_length=1", **flags)
            decoder, session = compiled.decoder, compiled.session()
            functions = json.loads(compiled.module.manifest)["functions"]
            assert [function.get("at") for function in functions] == [None, {"sequence_length": 1}], functions
            for batch in (1,) if flags else (1, 2):
                tokens = tokens_of(config, batch, MOST)
                wanted = decoder.logits(tokens)
                for sizes in ((1,), (5,), (16, 3, 1, 2)):
                    session.reset()
                    for start, end in parts_of(MOST, sizes):
                        found = session.run(decoder.feeds(tokens[:, start:end], start))
                        check(found["logits"], wanted[:, start:end], (config, batch, sizes, start))


def reading_n_and_one_more_is_reading_n_plus_1():
    config = Config()
    compiled = Compiled(config, "--state", "known")
    decoder, whole, steps = compiled.decoder, compiled.session(), compiled.session()
    for batch in (1, 2):
        tokens = tokens_of(config, batch, MOST, seed=batch)
        for n in range(1, MOST):
            whole.reset()
            at_once = whole.run(decoder.feeds(tokens[:, :n + 1], 0))["logits"][:, -1]
            steps.reset()
            steps.run(decoder.feeds(tokens[:, :n], 0))
            check(steps.run(decoder.feeds(tokens[:, n:n + 1], n))["logits"][:, 0], at_once, (batch, n))


def refused(session, feeds, status, *words):
    before = session.state_length
    try:
        session.run(feeds)
    except tw.Error as error:
        assert error.status == status and all(word in str(error) for word in words), (error.status, str(error))
        assert session.state_length == before, "a refused run changes nothing"
        return
    raise AssertionError(f"expected {status}")


def the_state_is_bounded():
    config = Config()
    compiled = Compiled(config, "--state", "known", past="0..8", sequence="1..16")
    decoder, session = compiled.decoder, compiled.session()
    tokens = tokens_of(config, 2, 9)
    wanted = decoder.logits(tokens)
    refused(session, decoder.feeds(tokens[:1], 0), "resource_exhausted", "state_full", "8", "9")
    session.run(decoder.feeds(tokens[:1, :7], 0))
    refused(session, decoder.feeds(tokens[:1, 7:9], 7), "resource_exhausted", "state_full", "7 and 2")
    refused(session, decoder.feeds(tokens[:, 7:8], 7), "invalid_argument", "state_sizes", "batch_size")
    refused(session, decoder.feeds(tokens[:1, 7:8], 6), "invalid_argument", "attention_mask")
    check(session.run(decoder.feeds(tokens[:1, 7:8], 7))["logits"], wanted[:1, 7:8], "the last entry")
    refused(session, decoder.feeds(tokens[:1, 8:9], 8), "resource_exhausted", "state_full", "8 and 1")
    session.reset(3)  # the first three tokens stay
    check(session.run(decoder.feeds(tokens[:1, 3:6], 3))["logits"], wanted[:1, 3:6], "after a step back")
    session.reset()
    check(session.run(decoder.feeds(tokens[:, :4], 0))["logits"], wanted[:, :4], "another batch")


def what_cannot_be_state_says_so():
    with tempfile.TemporaryDirectory(prefix="tilewright-decoder-") as where:
        decoder = Decoder(Config())
        model, module = Path(where) / "model.onnx", Path(where) / "model.tw"
        onnx.save(decoder.model(), str(model))

        def compile_with(past, *states, code=1):
            sizes = [word for flag in decoder.shape_flags(past, "1..8") for word in ("--shape", flag)]
            flags = [word for state in states for word in ("--state", state)]
            return tilewright("compile", model, "--target", "native", "-o", module, "--effort", 0, *sizes, *flags, code=code)

        assert "past_key" in compile_with("0..8", "past_key=present.0.key")
        assert "another form" in compile_with("0..8", "past_key_values.0.key=present.0.value")
        assert "from 0 on" in compile_with("1..8", "known")
        assert "--state" in compile_with("0..8", "=present.0.key", code=2)
        compile_with("0..8", *(f"{past}={present}" for past, present in decoder.cache_names()), code=0)
        assert len(tw.Module(module).outputs) == 1


def the_example_generates():
    config = Config(form="grouped", bits=4)
    compiled = Compiled(config, "--state", "known", past="0..24", batch="1")
    tokens, wanted = [5, 17, 2], []
    for _ in range(12):
        wanted.append(int(compiled.decoder.logits(np.array([tokens + wanted]))[0, -1].argmax()))
    words = [sys.executable, BINDINGS / "examples" / "generate.py", compiled.path, *map(str, tokens), "--count", "12"]
    environment = {**os.environ, "PYTHONPATH": str(BINDINGS / "python")}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    assert [int(word) for word in said.split()] == wanted, (said, wanted)
    generator = generate.Generator(compiled.path, 1)
    assert list(generator.generate(tokens, 12, stop=wanted[4])) == wanted[:wanted.index(wanted[4]) + 1]
    assert len(list(generator.generate(tokens, 1000))) == 24 - 3 + 1, "ends when the state is full"


if __name__ == "__main__":
    run_checks(one_module_reads_and_decodes, sequences_of_a_batch_differ_in_length, the_module_keeps_the_cache,
               a_function_for_single_tokens_shares_the_cache, reading_n_and_one_more_is_reading_n_plus_1,
               the_state_is_bounded, what_cannot_be_state_says_so, the_example_generates)
