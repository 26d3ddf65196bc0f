"""Layers and functions of torch that networks are made of, one by one: name → a function that makes the module and its inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *values):
        return self.function(*values)


class First(nn.Module):
    """A recurrent layer's sequence and last states."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y, state = self.layer(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


def randn(*shape):
    return torch.randn(*shape)


def call(function, *shapes):
    return lambda: (Call(function), tuple(randn(*shape) for shape in shapes))


def layer(make, *shapes):
    return lambda: (make(), tuple(randn(*shape) for shape in shapes))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)


def written(x, index, value):
    y = x.clone()
    y[index] = value
    return y


LAYERS = {
    "lstm_bidirectional": lambda: (First(nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True)), (randn(2, 5, 8),)),
    "lstm_projected": lambda: (First(nn.LSTM(8, 16)), (randn(5, 2, 8),)),
    "gru_batch_first": lambda: (First(nn.GRU(8, 16, batch_first=True)), (randn(2, 5, 8),)),
    "gru_bidirectional": lambda: (First(nn.GRU(8, 16, bidirectional=True)), (randn(5, 2, 8),)),
    "rnn_relu": lambda: (First(nn.RNN(8, 16, nonlinearity="relu")), (randn(5, 2, 8),)),
    "transformer_encoder": layer(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), (2, 7, 32)),
    "transformer": layer(lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True), (2, 7, 32), (2, 5, 32)),
    "multihead_attention": layer(SelfAttention, (2, 7, 32)),
    "sdpa_causal": call(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(2, 4, 8, 16)] * 3),
    "conv_transpose2d": layer(lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), (1, 4, 7, 9)),
    "conv_transpose1d": layer(lambda: nn.ConvTranspose1d(4, 6, 4, 2, 1, dilation=2), (1, 4, 9)),
    "conv3d": layer(lambda: nn.Conv3d(3, 4, 3, padding=1), (1, 3, 4, 8, 8)),
    "conv_reflect": layer(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (1, 3, 8, 8)),
    "conv_circular": layer(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (1, 3, 8, 8)),
    "instance_norm": layer(lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 6, 6)),
    "group_norm": layer(lambda: nn.GroupNorm(2, 4), (2, 4, 6, 6)),
    "rms_norm": layer(lambda: nn.RMSNorm(16), (2, 4, 16)),
    "local_response": layer(lambda: nn.LocalResponseNorm(3), (2, 8, 5, 5)),
    "pixel_shuffle": layer(lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(4)), (1, 16, 8, 8)),
    "grid_sample": call(lambda x, g: F.grid_sample(x, torch.tanh(g), align_corners=False, padding_mode="reflection"), (1, 3, 8, 8), (1, 5, 6, 2)),
    "grid_sample_bicubic": call(lambda x, g: F.grid_sample(x, torch.tanh(g), "bicubic", align_corners=True), (1, 3, 8, 8), (1, 5, 6, 2)),
    "affine_grid": call(lambda x, t: F.grid_sample(x, F.affine_grid(t, [1, 3, 6, 6], align_corners=False), align_corners=False), (1, 3, 8, 8), (1, 2, 3)),
    "interpolate_nearest": call(lambda x: F.interpolate(x, scale_factor=2.5), (1, 3, 7, 9)),
    "interpolate_exact": call(lambda x: F.interpolate(x, size=(5, 11), mode="nearest-exact"), (1, 3, 7, 9)),
    "interpolate_bilinear": call(lambda x: F.interpolate(x, size=(13, 5), mode="bilinear", align_corners=True), (1, 3, 7, 9)),
    "interpolate_bicubic": call(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), (1, 3, 7, 9)),
    "interpolate_antialias": call(lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True), (1, 3, 9, 11)),
    "interpolate_trilinear": call(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (1, 2, 3, 4, 5)),
    "index_put": lambda: (Call(lambda x, v: written(x, torch.tensor([0, 2]), v)), (randn(4, 5), randn(2, 5))),
    "index_put_mask": call(lambda x: x.masked_fill(x > 0.5, -1.0), (4, 5)),
    "slice_put": call(lambda x, v: written(x, (slice(1, 3), slice(None, None, 2)), v), (4, 6), (2, 3)),
    "scatter_add": lambda: (Call(lambda x, i, v: x.scatter_add(1, i, v)), (randn(3, 6), torch.randint(0, 6, (3, 4)), randn(3, 4))),
    "scatter_reduce": lambda: (Call(lambda x, i, v: x.scatter_reduce(1, i, v, "amax")), (randn(3, 6), torch.randint(0, 6, (3, 4)), randn(3, 4))),
    "index_add": lambda: (Call(lambda x, v: x.index_add(0, torch.tensor([0, 2, 0]), v)), (randn(4, 5), randn(3, 5))),
    "gather": lambda: (Call(lambda x, i: x.gather(1, i)), (randn(3, 6), torch.randint(0, 6, (3, 4)))),
    "take_along": call(lambda x: torch.take_along_dim(x, x.argsort(1), 1), (3, 6)),
    "cumsum": call(lambda x: x.cumsum(1), (3, 6)),
    "cumprod": call(lambda x: x.cumprod(1), (3, 6)),
    "logcumsumexp": call(lambda x: x.logcumsumexp(1), (3, 6)),
    "topk": call(lambda x: x.topk(3, 1), (4, 9)),
    "sort": call(lambda x: x.sort(1, descending=True), (4, 9)),
    "kthvalue_max": call(lambda x: (x.max(1), x.argmin(0)), (4, 9)),
    "einsum": call(lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), (2, 3, 4, 5), (2, 3, 6, 5)),
    "einsum_bilinear": call(lambda a, w, b: torch.einsum("bi,oij,bj->bo", a, w, b), (2, 3), (4, 3, 5), (2, 5)),
    "rfft": call(lambda x: torch.view_as_real(torch.fft.rfft(x)), (2, 16)),
    "fft2_real": call(lambda x: torch.fft.fft2(x).real, (2, 8, 8)),
    "irfft": call(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), (2, 16)),
    "stft": call(lambda x: torch.view_as_real(torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)), (2, 64)),
    "unfold": call(lambda x: F.unfold(x, 3, padding=1), (1, 3, 6, 6)),
    "fold": call(lambda x: F.fold(x, (6, 6), 2, stride=2), (1, 12, 9)),
    "tensor_unfold": call(lambda x: x.unfold(1, 4, 2), (2, 10)),
    "max_pool_indices": call(lambda x: F.max_pool2d(x, 2, return_indices=True), (1, 3, 6, 6)),
    "max_pool_ceil": call(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (1, 3, 8, 8)),
    "avg_pool_ceil": call(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 3, 8, 8)),
    "adaptive_avg": call(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (1, 3, 6, 6)),
    "adaptive_uneven": call(lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (1, 3, 7, 9)),
    "adaptive_max": call(lambda x: F.adaptive_max_pool2d(x, 1), (1, 3, 6, 6)),
    "lp_pool": call(lambda x: F.lp_pool2d(x, 2, 3, 2), (1, 3, 8, 8)),
    "activations": call(lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.mish(x) + F.hardswish(x) + F.elu(x)
                        + F.selu(x) + F.celu(x, 0.7) + F.softplus(x, 2) + F.softsign(x) + F.relu6(x) + F.logsigmoid(x) + F.hardtanh(x)
                        + F.hardsigmoid(x) + F.softshrink(x) + F.hardshrink(x) + F.tanhshrink(x) + F.threshold(x, .1, .2), (3, 40)),
    "glu_prelu": layer(lambda: nn.Sequential(nn.GLU(1), nn.PReLU(4)), (2, 8, 5)),
    "special": call(lambda x: torch.erf(x) + torch.special.expit(x) + torch.atan2(x, x + 3) + torch.log1p(x.abs()) + torch.expm1(x)
                    + torch.rsqrt(x.abs() + 1) + torch.fmod(x, 0.7) + torch.remainder(x, 0.7) + torch.trunc(x) + torch.round(x)
                    + torch.sinh(x) + torch.asinh(x) + torch.frac(x), (3, 40)),
    "reductions": call(lambda x: (x.std(1), x.var(0, unbiased=False), x.norm(dim=1), x.logsumexp(1), x.prod(1), x.amax(0), x.any(1),
                                  x.mean((0, 1))), (4, 6)),
    "integers": lambda: (Call(lambda a, b: (a // b, a % b, a & b, a << 1, torch.div(a, b, rounding_mode="trunc"), a.bitwise_not())),
                         (torch.randint(-50, 50, (20,)), torch.randint(1, 9, (20,)))),
    "where_tril": call(lambda x: torch.where(torch.tril(torch.ones(5, 5, dtype=torch.bool)), x, x.triu(1) * 2), (2, 5, 5)),
    "roll_flip": call(lambda x: x.roll((1, -2), (0, 1)).flip(1).rot90(1, (0, 1)), (4, 5)),
    "repeat": call(lambda x: (x.repeat(2, 3), x.repeat_interleave(2, 1), x.tile(2)), (4, 5)),
    "meshgrid": call(lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij")), (4,), (5,)),
    "cdist": call(lambda a, b: torch.cdist(a, b), (2, 4, 3), (2, 5, 3)),
    "addmm": call(lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2) + torch.addcmul(a, a, a, value=2) + torch.baddbmm(a[None], b[None], c[None])[0],
                  (4, 5), (4, 3), (3, 5)),
    "embedding_bag": lambda: (nn.EmbeddingBag(20, 8, mode="mean"), (torch.randint(0, 20, (3, 4)),)),
    "one_hot": lambda: (Call(lambda i: F.one_hot(i, 6)), (torch.randint(0, 6, (3, 4)),)),
    "nonzero": call(lambda x: (x > 0).nonzero(), (4, 5)),
    "masked_select": call(lambda x: x[x > 0], (4, 5)),
    "unique": lambda: (Call(lambda i: torch.unique(i)), (torch.randint(0, 6, (12,)),)),
    "bucketize": call(lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (4, 5)),
    "histc_bincount": lambda: (Call(lambda i: torch.bincount(i, minlength=7)), (torch.randint(0, 7, (20,)),)),
    "triangular": call(lambda x: torch.tril(x, -1) + torch.diag_embed(x.diagonal()) + x.trace(), (5, 5)),
    "linalg_norm": call(lambda x: torch.linalg.norm(x, dim=(0, 1)) + torch.linalg.vector_norm(x, 3), (5, 5)),
    "det": call(lambda x: torch.linalg.det(x), (3, 4, 4)),
    "cross": call(lambda a, b: torch.linalg.cross(a, b), (4, 3), (4, 3)),
    "quantized_fake": call(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), (4, 5)),
    "losses": lambda: (Call(lambda x, t: (F.cross_entropy(x, t), F.nll_loss(F.log_softmax(x, 1), t))), (randn(4, 5), torch.randint(0, 5, (4,)))),
    "half": lambda: (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()).half(), (randn(2, 16).half(),)),
    "double": lambda: (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.SiLU()).double(), (randn(2, 16).double(),)),
}
