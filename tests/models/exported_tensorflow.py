#!/usr/bin/env python3
"""Keras applications and layers with random weights, functions of TensorFlow and TFLite files, as tf2onnx exports them, and
what ONNX Runtime says of them. Runs under a Python that has these packages; ../long/exported_models.py calls it.

    exported_tensorflow.py FOLDER [NAME:FORM ...]    without names: prints them

A form is `tf` (a batch of fixed size) or `tfopen` (open). Writes FOLDER/NAME.FORM/ as exported_zoo.py does."""

import os
import pathlib
import sys

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

import exported_facts

OPSET = 17
BATCH = 4  # of the open form
keras, layers = tf.keras, tf.keras.layers


def spread(model):
    """Batch norms get statistics and scales of their own: zeros and ones would hide mistakes."""
    rng = np.random.default_rng(1)
    for layer in getattr(model, "layers", []):
        spread(layer)
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([rng.uniform(0.5, 1.5, w.shape) if i in (0, 3) else rng.normal(0, 0.2, w.shape)
                               for i, w in enumerate(layer.get_weights())] if len(layer.get_weights()) == 4 else layer.get_weights())
    return model


def application(name, side=96, **options):
    def make():
        model = spread(getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10, **options))
        return lambda x: model(x, training=False), [(side, side, 3)]
    return make


def stack(shape, *parts, dtype=tf.float32):
    """A Sequential of these layers on inputs of this shape."""
    def make():
        model = spread(keras.Sequential([keras.Input(shape, dtype=dtype), *[part() for part in parts]]))
        return lambda x: model(x, training=False), [shape if dtype == tf.float32 else (shape, dtype)]
    return make


def function(body, *shapes):
    return lambda: (body, list(shapes))


def attention():
    layer = layers.MultiHeadAttention(num_heads=4, key_dim=8)
    layer.build((None, 12, 32), (None, 12, 32))
    return lambda x: layer(x, x), [(12, 32)]


def masked(cell):
    def make():
        model = keras.Sequential([keras.Input((10,), dtype=tf.int32), layers.Embedding(20, 16, mask_zero=True), cell()])
        return lambda x: model(x, training=False), [((10,), tf.int32)]
    return make


def applications():
    return {
        "mobilenet": application("MobileNet"), "mobilenet_v2": application("MobileNetV2"),
        "mobilenet_v3_small": application("MobileNetV3Small"), "mobilenet_v3_large": application("MobileNetV3Large"),
        "efficientnet_b0": application("EfficientNetB0"), "efficientnet_v2_b0": application("EfficientNetV2B0"),
        "nasnet_mobile": application("NASNetMobile"), "densenet121": application("DenseNet121"), "xception": application("Xception"),
        "inception_v3": application("InceptionV3"), "resnet50_v2": application("ResNet50V2"), "convnext_tiny": application("ConvNeXtTiny"),
        "vgg16": application("VGG16", 32),
    }


def layer_models():
    words = ((10,), tf.int32)
    return {
        "lstm": stack((12, 8), lambda: layers.LSTM(16, return_sequences=True), lambda: layers.LSTM(8)),
        "gru": stack((12, 8), lambda: layers.GRU(16, return_sequences=True), lambda: layers.GRU(8, reset_after=False)),
        "bidirectional": stack((12, 8), lambda: layers.Bidirectional(layers.LSTM(16, return_sequences=True))),
        "simple_rnn": stack((12, 8), lambda: layers.SimpleRNN(16, return_sequences=True)),
        "unrolled_lstm": stack((6, 8), lambda: layers.LSTM(16, unroll=True)),
        "masked_lstm": masked(lambda: layers.LSTM(8)), "masked_gru": masked(lambda: layers.GRU(8, return_sequences=True)),
        "conv_lstm": stack((5, 16, 16, 3), lambda: layers.ConvLSTM2D(4, 3, padding="same")),
        "attention": attention,
        "embedding": stack((10,), lambda: layers.Embedding(50, 16), lambda: layers.Conv1D(8, 3, padding="causal"),
                           lambda: layers.GlobalMaxPooling1D(), dtype=tf.int32),
        "norms": stack((8, 8, 16), lambda: layers.LayerNormalization(), lambda: layers.GroupNormalization(4),
                       lambda: layers.UnitNormalization()),
        "separable": stack((16, 16, 6), lambda: layers.SeparableConv2D(8, 3, strides=2, padding="same"),
                           lambda: layers.DepthwiseConv2D(3, depth_multiplier=2)),
        "volumes": stack((6, 8, 8, 2), lambda: layers.Conv3D(4, 3), lambda: layers.MaxPooling3D(2), lambda: layers.Conv3DTranspose(2, 2, strides=2)),
        "transposed": stack((8, 8, 4), lambda: layers.Conv2DTranspose(6, 3, strides=2, padding="same"),
                            lambda: layers.Conv2DTranspose(3, 4, strides=3, padding="valid", output_padding=1)),
        "upsampled": stack((8, 8, 4), lambda: layers.UpSampling2D(2), lambda: layers.UpSampling2D(2, interpolation="bilinear"),
                           lambda: layers.Cropping2D(3), lambda: layers.ZeroPadding2D(((1, 0), (2, 3)))),
        "dilated": stack((20, 20, 3), lambda: layers.Conv2D(4, 3, dilation_rate=2), lambda: layers.AveragePooling2D(3, 2, padding="same")),
        "activations": stack((33,), *[lambda a=a: layers.Activation(a) for a in ("elu", "selu", "softplus", "softsign", "swish", "gelu",
                                                                                "mish", "hard_sigmoid", "tanh", "relu6")]),
        "prelu": stack((9, 9, 3), lambda: layers.PReLU(shared_axes=[1, 2], alpha_initializer="uniform"), lambda: layers.LeakyReLU(0.2)),
        "categories": stack(words[0], lambda: layers.CategoryEncoding(20, output_mode="multi_hot"), dtype=tf.int32),
        "reshaped": stack((12, 5), lambda: layers.TimeDistributed(layers.Dense(7, activation="relu")), lambda: layers.Permute((2, 1)),
                         lambda: layers.Reshape((4, 21)), lambda: layers.Flatten(), lambda: layers.RepeatVector(3)),
    }


def functions():
    image = (24, 20, 3)
    boxes = [(30, 4), (30,)]

    def suppress(box, score):
        keep = tf.image.non_max_suppression(box[0], score[0], 10, 0.5, 0.2)
        return tf.gather(box[0], keep)

    def loop(x):
        return tf.while_loop(lambda i, y: tf.reduce_sum(tf.abs(y)) > 1.0, lambda i, y: (i + 1, y * 0.5), (tf.constant(0), x))[1]

    def walk(x):
        return tf.map_fn(lambda row: tf.cumsum(tf.nn.softmax(row)), x)

    def scan(x):
        return tf.scan(lambda a, b: a * 0.5 + b, tf.transpose(x, [1, 0]))
    return {
        "prepared": function(lambda x: tf.image.central_crop(tf.image.resize(x, (17, 31)), 0.5) / 255.0, image),
        "nearest": function(lambda x: tf.image.resize(x, (48, 10), method="nearest"), image),
        "padded": function(lambda x: tf.pad(x, [[0, 0], [1, 2], [3, 0], [0, 0]], "REFLECT"), image),
        "suppressed": function(suppress, *boxes),
        "top": function(lambda x: tf.math.top_k(x, 5)[0] + tf.sort(x, direction="DESCENDING")[:, :5], (16,)),
        "gathered": function(lambda x: tf.gather_nd(x, [[[0, 2], [0, 1]]]), (4, 6)),
        "scattered": function(lambda x: tf.tensor_scatter_nd_update(x, [[0, 1], [0, 3]], [5.0, 7.0]), (6,)),
        "strided": function(lambda x: x[:, ::-2, 1:, tf.newaxis, -1], image),
        "einsum": function(lambda x: tf.einsum("bij,bkj->bik", x, x), (5, 7)),
        "chosen": function(lambda x: tf.boolean_mask(x, x > 0), (12,)),
        "places": function(lambda x: tf.where(x > 0), (12,)),
        "segments": function(lambda x: tf.math.segment_sum(tf.transpose(x), [0, 0, 1, 1, 1, 2]), (6,)),
        "unique": function(lambda x: tf.unique(tf.round(tf.reshape(x, [-1]) * 2))[0], (12,)),
        "cumulative": function(lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True) + tf.math.cumprod(x, 1), (9,)),
        "while": function(loop, (8,)), "mapped": function(walk, (8,)), "scanned": function(scan, (8,)),
        "conditional": function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: -x), (8,)),
        "blocks": function(lambda x: tf.nn.space_to_depth(x, 2) + tf.reshape(tf.nn.depth_to_space(tf.nn.space_to_depth(x, 4), 2), [-1, 12, 10, 12]), (24, 20, 3)),
        "batches": function(lambda x: tf.batch_to_space(tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]), [2, 2], [[0, 0], [1, 0]]), image),
        "local": function(lambda x: tf.nn.local_response_normalization(x, 2, 1.0, 0.5, 0.75), (6, 6, 8)),
        "fill": function(lambda x: tf.one_hot(tf.argmax(x, 1), 6, on_value=2.0, off_value=-1.0) + tf.ones_like(x) * tf.cast(tf.shape(x)[1], tf.float32), (6,)),
    }


def tflite_models():
    """Small networks in TFLite's files: floats, and bytes with ranges of seeded inputs."""
    def network():
        return spread(keras.Sequential([
            keras.Input((24, 24, 3)), layers.Conv2D(8, 3, strides=2, activation="relu"), layers.DepthwiseConv2D(3, padding="same"),
            layers.BatchNormalization(), layers.ReLU(6), layers.Conv2D(16, 1), layers.AveragePooling2D(2), layers.Flatten(), layers.Dense(10)]))

    def converter(quantised):
        def make():
            model = network()
            traced = tf.function(lambda x: model(x, training=False)).get_concrete_function(tf.TensorSpec((1, 24, 24, 3), tf.float32))
            frozen = convert_to_constants.convert_variables_to_constants_v2(traced)  # the converter dies of Keras 3's variables
            made = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
            if quantised:
                rng = np.random.default_rng(2)
                made.optimizations = [tf.lite.Optimize.DEFAULT]
                made.representative_dataset = lambda: ([rng.uniform(-1, 1, (1, 24, 24, 3)).astype(np.float32)] for _ in range(8))
                made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            return made.convert(), [(24, 24, 3)]
        return make
    return {"tflite_float": converter(False), "tflite_int8": converter(True)}


def every():
    return {**applications(), **layer_models(), **functions(), **tflite_models()}


def rows():
    fixed = [f"{name}:tf" for name in every()]
    return fixed + [f"{name}:tfopen" for name in ("mobilenet_v2", "efficientnet_b0", "lstm", "gru", "bidirectional", "attention",
                                                  "masked_lstm", "norms", "transposed", "prepared", "einsum", "mapped", "top", "fill")]


def export(made, shapes, form, path):
    import tf2onnx
    if isinstance(made, bytes):
        model = path.with_suffix(".tflite")
        model.write_bytes(made)
        tf2onnx.convert.from_tflite(str(model), opset=OPSET, output_path=str(path))
        return
    batch = None if form == "tfopen" else 1
    specs = [tf.TensorSpec((batch, *shape), dtype) for shape, dtype in shapes]
    tf2onnx.convert.from_function(tf.function(made, input_signature=specs), specs, opset=OPSET, output_path=str(path))


def feed(shape, dtype, batch, rng):
    if dtype == tf.int32:
        return rng.integers(0, 15, (batch, *shape)).astype(np.int32)
    return rng.uniform(-1, 1, (batch, *shape)).astype(np.float32)


def make(name, form, folder):
    with exported_facts.exporting(folder, name, form) as facts:
        keras.utils.set_random_seed(0)
        made, shapes = every()[name]()
        shapes = [shape if isinstance(shape[-1], tf.DType) else (shape, tf.float32) for shape in shapes]
        export(made, shapes, form, folder / "model.onnx")
        facts |= exported_facts.about(folder / "model.onnx")
        rng = np.random.default_rng(0)
        sets = {"": [feed(shape, dtype, 1 if form == "tf" else 2, rng) for shape, dtype in shapes]}
        if form == "tfopen":
            sets["_other"] = [feed(shape, dtype, BATCH, rng) for shape, dtype in shapes]
            facts["open"] = {i["shape"][0]: [1, 8] for i in facts["inputs"] if isinstance(i["shape"][0], str)}
        facts["sets"] = list(sets)
        facts["onnxruntime_us"] = exported_facts.runtime(folder / "model.onnx", folder, sets)
    return facts


def main():
    if len(sys.argv) < 3:
        print("\n".join(rows()))
        return
    exported_facts.export_rows(sys.argv[2:], pathlib.Path(sys.argv[1]), make)


if __name__ == "__main__":
    main()
