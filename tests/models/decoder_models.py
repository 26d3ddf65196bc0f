#!/usr/bin/env python3
"""Small language models as exporters write them: decoders of the Llama kind, with a cache as inputs and outputs.

decoder_models.py FILE.onnx [--form plain|grouped] [--bits 32|4] [--width N --layers N --heads N --kv-heads N --vocab N] writes one,
seeded. The form plain has MatMul, Softmax and Concat (Optimum); grouped has GroupQueryAttention and its relatives of com.microsoft
(ONNX Runtime's model builder). `Decoder.logits` computes the same in float64 NumPy from the weights alone, without any cache."""

import argparse
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
BLOCK = 32  # weights of 4 bits that share a scale
EPSILON = 1e-5


@dataclass(frozen=True)
class Config:
    form: str = "plain"
    bits: int = 32
    width: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    vocab: int = 96
    positions: int = 1024  # rows of the tables of angles; form grouped
    seed: int = 1

    @property
    def head(self):
        return self.width // self.heads

    @property
    def inner(self):
        return 3 * self.width


def rounded_to_4_bits(matrix):
    """[n, k] → numbers of 0 to 15, scales per BLOCK of k, and the matrix that they stand for."""
    n, k = matrix.shape
    blocks = matrix.reshape(n, k // BLOCK, BLOCK)
    scales = (np.abs(blocks).max(axis=2) / 7).astype(np.float32)
    numbers = np.clip(np.round(blocks / scales[:, :, None]) + 8, 0, 15).astype(np.uint8)
    stands_for = ((numbers.astype(np.float64) - 8) * scales[:, :, None]).reshape(n, k)
    return numbers, scales, stands_for


class Decoder:
    """The weights of a model, its ONNX form, and what it computes."""

    def __init__(self, config):
        self.config = c = config
        rng = np.random.default_rng(c.seed)
        draw = lambda n, k: (rng.standard_normal((n, k)) / np.sqrt(k)).astype(np.float32)
        near_one = lambda: rng.uniform(0.8, 1.2, c.width).astype(np.float32)
        self.embedding = rng.standard_normal((c.vocab, c.width)).astype(np.float32)
        self.norms, self.dense, self.quantized = {}, {}, {}
        kv = c.kv_heads * c.head
        for i in range(c.layers):
            self.norms[f"{i}.attention"], self.norms[f"{i}.mlp"] = near_one(), near_one()
            for name, n, k in (("q", c.width, c.width), ("k", kv, c.width), ("v", kv, c.width), ("o", c.width, c.width),
                               ("gate", c.inner, c.width), ("up", c.inner, c.width), ("down", c.width, c.inner)):
                self._add_dense(f"{i}.{name}", draw(n, k))
        self.norms["last"] = near_one()
        self._add_dense("head", draw(c.vocab, c.width) * 4)

    def _add_dense(self, name, matrix):
        self.dense[name] = matrix
        if self.config.bits == 4:
            numbers, scales, self.dense[name] = rounded_to_4_bits(matrix)
            self.quantized[name] = (numbers, scales)

    # ---- what it computes

    def angles(self, positions):
        half = self.config.head // 2
        return np.outer(positions, 10000.0 ** (-np.arange(half) / half))

    def logits(self, tokens):
        """[batch, length] → [batch, length, vocab]."""
        c = self.config
        batch, length = tokens.shape
        angles = self.angles(np.arange(length))
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]

        def norm(x, name):
            return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * self.norms[name]

        def product(x, name):
            return x @ self.dense[name].T.astype(np.float64)

        def turned(x):
            a, b = np.split(x, 2, axis=-1)
            return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)

        x = self.embedding[tokens].astype(np.float64)
        barred = np.triu(np.full((length, length), -np.inf), 1)
        for i in range(c.layers):
            h = norm(x, f"{i}.attention")
            apart = lambda name, heads: product(h, f"{i}.{name}").reshape(batch, length, heads, c.head)
            q, k, v = turned(apart("q", c.heads)), turned(apart("k", c.kv_heads)), apart("v", c.kv_heads)
            k, v = (np.repeat(t, c.heads // c.kv_heads, axis=2) for t in (k, v))
            scores = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(c.head) + barred
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            x = x + product(np.einsum("bhst,bthd->bshd", weights, v).reshape(batch, length, c.width), f"{i}.o")
            h = norm(x, f"{i}.mlp")
            gate = product(h, f"{i}.gate")
            x = x + product(gate / (1 + np.exp(-gate)) * product(h, f"{i}.up"), f"{i}.down")
        return product(norm(x, "last"), "head")

    # ---- the ONNX form

    def model(self):
        return (_Grouped if self.config.form == "grouped" else _Plain)(self).model()

    def empty_cache(self, batch=1):
        shape = (batch, self.config.kv_heads, 0, self.config.head)
        return {name: np.zeros(shape, np.float32) for name, _ in self.cache_names()}

    def cache_names(self):
        """(input, output) of each part of the cache."""
        return [(f"past_key_values.{i}.{part}", f"present.{i}.{part}") for i in range(self.config.layers) for part in ("key", "value")]

    def feeds(self, tokens, past):
        """The inputs of a run but for the cache, which has `past` entries."""
        batch, length = tokens.shape
        feeds = {"input_ids": tokens, "attention_mask": np.ones((batch, past + length), np.int64)}
        if self.config.form == "plain":
            feeds["position_ids"] = np.tile(np.arange(past, past + length, dtype=np.int64), (batch, 1))
        return feeds

    def shape_flags(self, past, sequence, batch="1"):
        """Values of --shape: ranges for the open dimensions."""
        total = f"1..{int(past.split('..')[-1]) + int(sequence.split('..')[-1])}"
        name = "total_sequence_length" if self.config.form == "grouped" else "past_sequence_length + sequence_length"
        return [f"batch_size={batch}", f"sequence_length={sequence}", f"past_sequence_length={past}", f"{name}={total}"]


class _Form:
    """The nodes that both forms have."""

    opset, domains = 17, []

    def __init__(self, decoder):
        self.decoder, self.c = decoder, decoder.config
        self.nodes, self.weights, self.inputs, self.outputs = [], {}, [], []

    def node(self, op, *inputs, outputs=None, domain="", **attributes):
        names = outputs or [f"{op}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return names[0]

    def constant(self, value, name=None):
        value = np.asarray(value)
        name = name or f"constant_{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(value, name)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def product(self, x, name):
        if self.c.bits == 4:
            numbers, scales = self.decoder.quantized[name]
            packed = (numbers[:, :, 0::2] | numbers[:, :, 1::2] << 4).astype(np.uint8)
            n, k = self.decoder.dense[name].shape
            return self.node("MatMulNBits", x, self.constant(packed, name + ".packed"), self.constant(scales.reshape(-1), name + ".scales"),
                             domain=MICROSOFT, K=k, N=n, bits=4, block_size=BLOCK)
        return self.node("MatMul", x, self.constant(np.ascontiguousarray(self.decoder.dense[name].T), name))

    def silu_gate(self, h, i):
        gate = self.product(h, f"{i}.gate")
        return self.product(self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), self.product(h, f"{i}.up")), f"{i}.down")

    def input(self, name, element, shape):
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def model(self):
        self.build()
        c = self.c
        for i in range(c.layers):
            for part in ("key", "value"):
                self.outputs.append(helper.make_tensor_value_info(
                    f"present.{i}.{part}", TensorProto.FLOAT, ["batch_size", c.kv_heads, self.total, c.head]))
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", c.vocab])
        graph = helper.make_graph(self.nodes, f"decoder_{c.form}", self.inputs, [logits, *self.outputs], list(self.weights.values()))
        opsets = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid(MICROSOFT, 1)] if self.domains or c.bits == 4 else [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def caches(self, i):
        c = self.c
        return [self.input(f"past_key_values.{i}.{part}", TensorProto.FLOAT, ["batch_size", c.kv_heads, "past_sequence_length", c.head])
                for part in ("key", "value")]


class _Plain(_Form):
    total = "past_sequence_length + sequence_length"

    def norm(self, x, name):
        mean = self.node("ReduceMean", self.node("Pow", x, self.constant(np.float32(2))), axes=[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(np.float32(EPSILON))))
        return self.node("Mul", self.constant(self.decoder.norms[name], name + ".norm"), self.node("Div", x, root))

    def turned(self, x, cosine, sine):
        half, whole = self.c.head // 2, self.c.head
        first = self.node("Slice", x, self.ints(0), self.ints(half), self.ints(3), self.ints(1))
        second = self.node("Slice", x, self.ints(half), self.ints(whole), self.ints(3), self.ints(1))
        other = self.node("Concat", self.node("Neg", second), first, axis=3)
        return self.node("Add", self.node("Mul", x, cosine), self.node("Mul", other, sine))

    def size(self, x, axis):
        return self.node("Gather", self.node("Shape", x), self.ints(axis))

    def mask(self, ids, mask, past):
        """[batch, 1, length, total]: the lowest float where a query does not see a key."""
        length, before = (self.node("Squeeze", self.size(x, axis)) for x, axis in ((ids, 1), (past, 2)))
        total = self.node("Add", before, length)
        one, zero = self.constant(np.int64(1)), self.constant(np.int64(0))
        rows = self.node("Unsqueeze", self.node("Range", before, total, one), self.ints(1))
        columns = self.node("Unsqueeze", self.node("Range", zero, total, one), self.ints(0))
        causal = self.node("Unsqueeze", self.node("LessOrEqual", columns, rows), self.ints(0, 1))
        given = self.node("Unsqueeze", self.node("Cast", mask, to=TensorProto.BOOL), self.ints(1, 2))
        lowest = self.constant(np.float32(np.finfo(np.float32).min))
        return self.node("Where", self.node("And", causal, given), self.constant(np.float32(0)), lowest)

    def repeated(self, x):
        """Every key head for each of its query heads."""
        c = self.c
        shape = self.node("Shape", x)
        at = lambda axis: self.node("Gather", shape, self.ints(axis))
        wide = self.node("Concat", at(0), self.ints(c.kv_heads), self.ints(c.heads // c.kv_heads), at(2), self.ints(c.head), axis=0)
        flat = self.node("Concat", at(0), self.ints(c.heads), at(2), self.ints(c.head), axis=0)
        return self.node("Reshape", self.node("Expand", self.node("Unsqueeze", x, self.ints(2)), wide), flat)

    def build(self):
        c = self.c
        ids = self.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        given = self.input("attention_mask", TensorProto.INT64, ["batch_size", self.total])
        positions = self.input("position_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        pasts = [self.caches(i) for i in range(c.layers)]
        mask = self.mask(ids, given, pasts[0][0])
        frequencies = self.constant(self.decoder.angles(np.ones(1)).astype(np.float32).reshape(1, -1, 1))
        at = self.node("Cast", self.node("Unsqueeze", positions, self.ints(1)), to=TensorProto.FLOAT)
        angles = self.node("Transpose", self.node("MatMul", frequencies, at), perm=[0, 2, 1])
        angles = self.node("Unsqueeze", self.node("Concat", angles, angles, axis=2), self.ints(1))
        cosine, sine = self.node("Cos", angles), self.node("Sin", angles)
        x = self.node("Gather", self.constant(self.decoder.embedding, "embedding"), ids)
        batch, length = self.size(ids, 0), self.size(ids, 1)
        for i in range(c.layers):
            h = self.norm(x, f"{i}.attention")
            heads = {}
            for name, count in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
                shape = self.node("Concat", batch, length, self.ints(count), self.ints(c.head), axis=0)
                heads[name] = self.node("Transpose", self.node("Reshape", self.product(h, f"{i}.{name}"), shape), perm=[0, 2, 1, 3])
            q, k, v = self.turned(heads["q"], cosine, sine), self.turned(heads["k"], cosine, sine), heads["v"]
            k = self.node("Concat", pasts[i][0], k, axis=2, outputs=[f"present.{i}.key"])
            v = self.node("Concat", pasts[i][1], v, axis=2, outputs=[f"present.{i}.value"])
            scores = self.node("MatMul", q, self.node("Transpose", self.repeated(k), perm=[0, 1, 3, 2]))
            scores = self.node("Add", self.node("Div", scores, self.constant(np.float32(np.sqrt(c.head)))), mask)
            mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), self.repeated(v))
            flat = self.node("Concat", batch, length, self.ints(c.width), axis=0)
            mixed = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
            x = self.node("Add", x, self.product(mixed, f"{i}.o"))
            x = self.node("Add", x, self.silu_gate(self.norm(x, f"{i}.mlp"), i))
        self.product_to(self.norm(x, "last"))

    def product_to(self, x):
        self.node("Identity", self.product(x, "head"), outputs=["logits"])


class _Grouped(_Form):
    total, domains = "total_sequence_length", [MICROSOFT]

    def build(self):
        c = self.c
        ids = self.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        given = self.input("attention_mask", TensorProto.INT64, ["batch_size", self.total])
        lengths = self.node("Sub", self.node("ReduceSum", given, self.ints(1), keepdims=0), self.ints(1))
        lengths = self.node("Cast", lengths, to=TensorProto.INT32)
        total = self.node("Cast", self.node("Gather", self.node("Shape", given), self.constant(np.int64(1))), to=TensorProto.INT32)
        angles = self.decoder.angles(np.arange(c.positions))
        cosine, sine = (self.constant(f(angles).astype(np.float32), name) for f, name in ((np.cos, "cos_cache"), (np.sin, "sin_cache")))
        x = self.node("Gather", self.constant(self.decoder.embedding, "embedding"), ids)
        norm = lambda name: self.constant(self.decoder.norms[name], name + ".norm")
        h = self.node("SimplifiedLayerNormalization", x, norm("0.attention"), axis=-1, epsilon=EPSILON, stash_type=1)

        def skip(x, y, name, i):
            names = [f"norm_{name}_{i}", "", "", f"sum_{name}_{i}"]
            scale = norm("last" if i == c.layers else f"{i}.{name}")
            self.node("SkipSimplifiedLayerNormalization", x, y, scale, outputs=names, domain=MICROSOFT, epsilon=EPSILON)
            return names[0], names[3]

        for i in range(c.layers):
            past = self.caches(i)
            q, k, v = (self.product(h, f"{i}.{name}") for name in "qkv")
            mixed = self.node("GroupQueryAttention", q, k, v, *past, lengths, total, cosine, sine, domain=MICROSOFT,
                              outputs=[f"attention_{i}", f"present.{i}.key", f"present.{i}.value"], num_heads=c.heads,
                              kv_num_heads=c.kv_heads, do_rotary=1, rotary_interleaved=0)
            h, x = skip(x, self.product(mixed, f"{i}.o"), "mlp", i)
            h, x = skip(x, self.silu_gate(h, i), "attention", i + 1)
        self.node("Identity", self.product(h, "head"), outputs=["logits"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--form", choices=["plain", "grouped"], default="plain")
    parser.add_argument("--bits", type=int, choices=[4, 32], default=32)
    for name in ("width", "layers", "heads", "kv_heads", "vocab", "seed"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Config, name))
    options = vars(parser.parse_args())
    file = options.pop("file")
    onnx.save(Decoder(Config(**options)).model(), file)
