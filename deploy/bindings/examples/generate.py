#!/usr/bin/env python3
"""Generates tokens with a language model, greedily.

    generate.py MODULE.tw TOKEN ... [--count N] [--stop TOKEN]

The module keeps the keys and values of all tokens itself: it was compiled with `--state known`, its input input_ids is
[batch, length], its output logits [batch, length, words]. The first run reads the prompt, each later one the token before."""

import argparse

import numpy as np
import tilewright_runtime as tw


class Generator:
    """A session of a decoder. `next_logits` gives what follows all tokens that it was given since the last reset."""

    def __init__(self, path, num_threads=0):
        self.session = tw.Session(tw.Module(path), num_threads)
        self.inputs = {info.name: info.dtype for info in self.session.module.inputs}

    def next_logits(self, tokens):
        past, length = self.session.state_length, len(tokens)
        values = {
            "input_ids": np.array([tokens]),
            "attention_mask": np.ones((1, past + length)),
            "position_ids": np.arange(past, past + length)[None],
        }
        feeds = {name: values[name].astype(dtype) for name, dtype in self.inputs.items()}
        return self.session.run(feeds)["logits"][0, -1]

    def generate(self, prompt, count, stop=None):
        """Yields the likeliest token after the prompt, the likeliest after that, ...; ends after `count`, after the token
        `stop`, or when the state is full."""
        self.session.reset()
        tokens = list(prompt)
        for _ in range(min(count, self.session.state_capacity - len(tokens) + 1)):
            tokens = [int(self.next_logits(tokens).argmax())]
            yield tokens[0]
            if tokens[0] == stop:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("tokens", type=int, nargs="+", metavar="TOKEN", help="the prompt, as numbers of tokens")
    parser.add_argument("--count", type=int, default=16, help="tokens to generate (default 16)")
    parser.add_argument("--stop", type=int, help="a token that ends the text")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    for token in Generator(options.module, options.threads).generate(options.tokens, options.count, options.stop):
        print(token, flush=True)


if __name__ == "__main__":
    main()
