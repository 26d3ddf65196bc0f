#!/usr/bin/env python3
"""Models of torchvision, timm, transformers and torch.nn with random weights, as torch.onnx exports them, and what ONNX
Runtime says of them. Runs under a Python that has these packages; ../long/exported_models.py calls it.

    exported_zoo.py FOLDER [NAME:FORM ...]    without names, or with --list: prints them

A form is `dynamo` (the default exporter), `script` (dynamo=False) or `open` (the default one, with sizes left open). Writes
FOLDER/NAME.FORM/: model.onnx, input_N.npy, expected_N.npy and facts.json, which has `failure` where the export failed."""

import contextlib
import io
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from torch import nn

import exported_facts
from exported_layers import LAYERS

FORMS = ("dynamo", "script", "open")


class Flat(nn.Module):
    """A model whose arguments have names and whose result may be nested: the result's tensors of floats, one after the other."""

    def __init__(self, model, names=(), first=3):
        super().__init__()
        self.model, self.names, self.first = model, names, first

    def forward(self, *values):
        result = self.model(**dict(zip(self.names, values))) if self.names else self.model(*values)
        return tuple(self.tensors(result))[:self.first]

    def tensors(self, value):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            for one in value.values():
                yield from self.tensors(one)
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield from self.tensors(one)


def image(side=64, batch=1, channels=3):
    return torch.randn(batch, channels, side, side)


def tokens(length=16, batch=2, words=100):
    return torch.randint(3, words, (batch, length))


def torchvision(family, name, inputs, **options):
    import torchvision.models as models
    module = getattr(models, family) if family else models
    return Flat(getattr(module, name)(weights=None, **options), first=5 if family == "detection" else 3), inputs


def timm(name, side, **options):
    import timm as library
    return library.create_model(name, pretrained=False, **options), (image(side),)


TINY = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=100,
            max_position_embeddings=64)
TINY_VOCABULARY = dict(vocab_size=100)
TINY_VISION = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8)


def transformer(name, inputs, config, part=lambda model: model, **options):
    """The model class `name` of transformers with a small config."""
    import transformers
    settings = getattr(transformers, config)(**options)
    if hasattr(settings, "initializer_range"):
        settings.initializer_range = 0.1
    settings.use_cache = False
    settings.return_dict = True
    model = part(getattr(transformers, name)(settings))
    return Flat(model, tuple(inputs)), tuple(inputs.values())


def text(name, config, base=TINY, **options):
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    return lambda: transformer(name, {"input_ids": ids, "attention_mask": mask}, config, **{**base, **options})


def vision(name, config, side=32, **options):
    return lambda: transformer(name, {"pixel_values": image(side)}, config, **options)


def vision_models():
    """name → a function that makes the model and its inputs."""
    one = lambda name, side=64, family=None, **options: (lambda: torchvision(family, name, (image(side),), **options))
    found = {name: one(name) for name in (
        "resnet18", "resnext50_32x4d", "densenet121", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
        "efficientnet_v2_s", "regnet_y_400mf", "regnet_x_400mf", "shufflenet_v2_x0_5", "squeezenet1_1", "vgg11_bn", "alexnet",
        "convnext_tiny", "swin_t", "swin_v2_t")}
    found |= {
        "googlenet": one("googlenet", 96, init_weights=False, aux_logits=False),
        "inception_v3": one("inception_v3", 139, init_weights=False, aux_logits=False),
        "vit_b_16": one("vit_b_16", 64, image_size=64),
        "maxvit_t": one("maxvit_t", 224),
        "deeplabv3_mobilenet": one("deeplabv3_mobilenet_v3_large", 64, "segmentation", weights_backbone=None),
        "lraspp_mobilenet": one("lraspp_mobilenet_v3_large", 64, "segmentation", weights_backbone=None),
        "fcn_resnet50": one("fcn_resnet50", 64, "segmentation", weights_backbone=None),
        "r3d_18": lambda: torchvision("video", "r3d_18", (torch.randn(1, 3, 4, 32, 32),)),
        "s3d": lambda: torchvision("video", "s3d", (torch.randn(1, 3, 14, 64, 64),)),
        "mvit_v2_s": lambda: torchvision("video", "mvit_v2_s", (torch.randn(1, 3, 16, 224, 224),)),
        "raft_small": lambda: torchvision("optical_flow", "raft_small", (image(128), image(128)), num_flow_updates=2),
    }
    detect = lambda name, **options: (lambda: torchvision("detection", name, ([torch.rand(3, 96, 96)],),
                                                          weights_backbone=None, num_classes=5, **options))
    # Few boxes, so that hardly two have scores that are equal but for rounding.
    few = dict(min_size=96, max_size=96, rpn_pre_nms_top_n_test=60, rpn_post_nms_top_n_test=30, box_detections_per_img=3)
    found |= {
        "ssdlite": detect("ssdlite320_mobilenet_v3_large"),
        "retinanet": detect("retinanet_resnet50_fpn", min_size=96, max_size=96),
        "fasterrcnn": detect("fasterrcnn_mobilenet_v3_large_320_fpn", min_size=96, max_size=96),
        "maskrcnn": detect("maskrcnn_resnet50_fpn", **few),
        "keypointrcnn": detect("keypointrcnn_resnet50_fpn", **few),
        "fcos": detect("fcos_resnet50_fpn", min_size=96, max_size=96),
    }
    return found


def timm_models():
    sides = {"mixer_s32_224": 224, "resmlp_12_224": 224, "ghostnet_050": 64, "tf_efficientnet_lite0": 64, "coatnet_0_rw_224": 224,
             "poolformer_s12": 64, "edgenext_xx_small": 64, "efficientformer_l1": 224, "levit_128s": 224, "mobileone_s0": 64,
             "repvgg_a0": 64, "hrnet_w18_small": 64, "cait_xxs24_224": 224, "crossvit_tiny_240": 240, "xcit_nano_12_p16_224": 224,
             "fastvit_t8": 64, "mobilevitv2_050": 64, "botnet26t_256": 256, "eca_halonext26ts": 256, "volo_d1_224": 224,
             "nfnet_l0": 64, "dla34": 64, "res2net50_14w_8s": 64, "skresnet18": 64, "vovnet39a": 64, "gcresnet33ts": 64,
             "tiny_vit_5m_224": 224, "pit_ti_224": 224, "convmixer_768_32": 64, "mobilenetv4_conv_small": 64, "focalnet_tiny_srf": 64,
             "davit_tiny": 64, "inception_next_tiny": 64, "gmlp_s16_224": 224}
    return {f"timm_{name}": (lambda name=name, side=side: timm(name, side)) for name, side in sides.items()}


def text_models():
    gqa = dict(num_key_value_heads=2, head_dim=16)
    both = {"input_ids": tokens(), "decoder_input_ids": tokens(8)}
    encoder_decoder = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                           encoder_ffn_dim=96, decoder_ffn_dim=96, vocab_size=100, max_position_embeddings=64)
    t5 = dict(d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, vocab_size=100)
    return {
        "bert": text("BertModel", "BertConfig"),
        "distilbert": text("DistilBertModel", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=96),
        "roberta": text("RobertaForSequenceClassification", "RobertaConfig", pad_token_id=1),
        "albert": text("AlbertModel", "AlbertConfig", embedding_size=32),
        "electra": text("ElectraModel", "ElectraConfig", embedding_size=32),
        "deberta_v2": text("DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"],
                           position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True),
        "mpnet": text("MPNetModel", "MPNetConfig"),
        "xlnet": text("XLNetModel", "XLNetConfig", TINY_VOCABULARY, d_model=64, n_layer=2, n_head=4, d_inner=96),
        "funnel": text("FunnelModel", "FunnelConfig", TINY_VOCABULARY, d_model=64, n_head=4, d_head=16, d_inner=96,
                       block_sizes=[1, 1]),
        "longformer": text("LongformerModel", "LongformerConfig", attention_window=8),
        "big_bird": text("BigBirdModel", "BigBirdConfig", attention_type="original_full"),
        "modernbert": text("ModernBertModel", "ModernBertConfig", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                           sep_token_id=2),
        "gpt2": text("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, n_positions=64),
        "gpt_neo": text("GPTNeoForCausalLM", "GPTNeoConfig", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
                        window_size=8),
        "gpt_neox": text("GPTNeoXForCausalLM", "GPTNeoXConfig"),
        "gptj": text("GPTJForCausalLM", "GPTJConfig", n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=64),
        "bloom": text("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4),
        "opt": text("OPTForCausalLM", "OPTConfig", ffn_dim=96, word_embed_proj_dim=64),
        "llama": text("LlamaForCausalLM", "LlamaConfig", **gqa),
        "mistral": text("MistralForCausalLM", "MistralConfig", sliding_window=8, **gqa),
        "mixtral": text("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, experts_implementation="eager", **gqa),
        "qwen2": text("Qwen2ForCausalLM", "Qwen2Config", **gqa),
        "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", **gqa),
        "phi": text("PhiForCausalLM", "PhiConfig"),
        "phi3": text("Phi3ForCausalLM", "Phi3Config", pad_token_id=0),
        "gemma": text("GemmaForCausalLM", "GemmaConfig", **gqa),
        "gemma2": text("Gemma2ForCausalLM", "Gemma2Config", sliding_window=8, **gqa),
        "falcon": text("FalconForCausalLM", "FalconConfig"),
        "mamba": lambda: transformer("MambaForCausalLM", {"input_ids": tokens()}, "MambaConfig", hidden_size=64, state_size=8,
                                     num_hidden_layers=2, vocab_size=100),
        "t5": lambda: transformer("T5ForConditionalGeneration", both, "T5Config", **t5),
        "t5_encoder": lambda: transformer("T5EncoderModel", {"input_ids": tokens()}, "T5Config", **t5),
        "bart": lambda: transformer("BartModel", both, "BartConfig", **encoder_decoder),
        "marian": lambda: transformer("MarianModel", both, "MarianConfig", pad_token_id=0, **encoder_decoder),
        "pegasus": lambda: transformer("PegasusModel", both, "PegasusConfig", **encoder_decoder),
        "whisper": lambda: transformer("WhisperForConditionalGeneration",
                                       {"input_features": torch.randn(1, 16, 64), "decoder_input_ids": tokens(8, 1)},
                                       "WhisperConfig", num_mel_bins=16, max_source_positions=32, max_target_positions=64,
                                       pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                                       suppress_tokens=[], begin_suppress_tokens=[],
                                       **{k: v for k, v in encoder_decoder.items() if k != "max_position_embeddings"}),
    }


def sound_and_image_models():
    conv = dict(conv_dim=[32, 32, 32], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 2], num_feat_extract_layers=3,
                num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
    sound = {**TINY, **conv, "vocab_size": 32}
    wave = {"input_values": torch.randn(1, 1600)}
    text_part = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=100,
                     max_position_embeddings=32)
    pair = {"input_ids": tokens(16, 2), "pixel_values": image(32, 2)}
    detr = dict(use_timm_backbone=False, use_pretrained_backbone=False, d_model=64, encoder_layers=1, decoder_layers=1,
                encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, num_queries=10)
    small_resnet = lambda: __import__("transformers").ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[1] * 4,
                                                                   layer_type="basic", out_features=["stage4"])
    return {
        "wav2vec2": lambda: transformer("Wav2Vec2ForCTC", wave, "Wav2Vec2Config", **sound),
        "hubert": lambda: transformer("HubertModel", wave, "HubertConfig", **sound),
        "wavlm": lambda: transformer("WavLMModel", wave, "WavLMConfig", **sound),
        "ast": lambda: transformer("ASTModel", {"input_values": torch.randn(1, 64, 32)}, "ASTConfig", hidden_size=64,
                                   num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_length=64, num_mel_bins=32),
        "clip": lambda: transformer("CLIPModel", pair, "CLIPConfig", text_config={**text_part, "eos_token_id": 99},
                                    vision_config=TINY_VISION, projection_dim=32),
        "siglip": lambda: transformer("SiglipModel", pair, "SiglipConfig", text_config={**text_part, "max_position_embeddings": 16},
                                      vision_config=TINY_VISION),
        "vit": vision("ViTForImageClassification", "ViTConfig", **TINY_VISION),
        "deit": vision("DeiTModel", "DeiTConfig", **TINY_VISION),
        "beit": vision("BeitModel", "BeitConfig", use_relative_position_bias=True, **TINY_VISION),
        "dinov2": vision("Dinov2Model", "Dinov2Config", **{**TINY_VISION, "mlp_ratio": 2}),
        "hf_swin": vision("SwinModel", "SwinConfig", 64, image_size=64, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        "segformer": vision("SegformerForSemanticSegmentation", "SegformerConfig", 64, depths=[1, 1, 1, 1],
                            hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=32),
        "yolos": vision("YolosForObjectDetection", "YolosConfig", 32, **{**TINY_VISION, "image_size": [32, 32]},
                        num_detection_tokens=5),
        "detr": vision("DetrForObjectDetection", "DetrConfig", 64, backbone_config=small_resnet(), **detr),
        "dpt": vision("DPTForDepthEstimation", "DPTConfig", 32, **TINY_VISION, backbone_out_indices=[0, 0, 1, 1],
                      neck_hidden_sizes=[16, 16, 32, 32], fusion_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5]),
        "mobilevit": vision("MobileViTModel", "MobileViTConfig", 64, image_size=64),
        "poolformer": vision("PoolFormerModel", "PoolFormerConfig", 64, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64]),
        "upernet": vision("UperNetForSemanticSegmentation", "UperNetConfig", 64, hidden_size=32, auxiliary_in_channels=32,
                          backbone_config=__import__("transformers").ResNetConfig(
                              embedding_size=16, hidden_sizes=[16, 32, 32, 32], depths=[1] * 4, layer_type="basic",
                              out_features=["stage1", "stage2", "stage3", "stage4"])),
        "vits": lambda: transformer("VitsModel", {"input_ids": tokens(8, 1, 30)}, "VitsConfig", hidden_size=32, num_hidden_layers=2,
                                    ffn_dim=64, flow_size=32, upsample_initial_channel=64, spectrogram_bins=33),
        "vilt": lambda: transformer("ViltModel", {"input_ids": tokens(8, 1), "pixel_values": image(32)}, "ViltConfig",
                                    **{**TINY, **TINY_VISION, "vocab_size": 100}),
    }


def open_sizes():
    """name → for each input: axis → the name of its size, the largest one and, where it is not 1, the least."""
    batch = {0: ("batch", 8)}
    words = {0: ("batch", 8), 1: ("length", 32)}
    found = {name: [batch] for name in ("resnet18", "mobilenet_v3_small", "swin_t", "vit", "shufflenet_v2_x0_5", "densenet121",
                                        "hf_swin", "lstm_bidirectional", "gru_batch_first", "transformer_encoder")}
    found |= {name: [words, words] for name in ("bert", "distilbert", "roberta", "gpt2", "llama", "mistral", "deberta_v2", "gemma2",
                                                "bloom", "opt")}
    found |= {"t5_encoder": [words], "wav2vec2": [{1: ("samples", 3200, 400)}],
              "segformer": [{0: ("batch", 8)}], "fcn_resnet50": [{2: ("height", 128), 3: ("width", 128)}],
              "deeplabv3_mobilenet": [{2: ("height", 128), 3: ("width", 128)}],
              "t5": [words, {0: ("batch", 8), 1: ("decoded", 32)}], "bart": [words, {0: ("batch", 8), 1: ("decoded", 32)}]}
    return found


def calibrate(model, inputs):
    """Batch norms get the statistics of noise, so that what they give has unit variance."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    kept = [(m, m.momentum) for m in norms]
    for m in norms:
        m.train()
        m.momentum = 1.0
    doubled = [torch.cat([x, torch.randn_like(x)]) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    with contextlib.suppress(Exception):
        model(*doubled)
    for m, momentum in kept:
        m.momentum = momentum
        m.eval()
        m.running_mean.nan_to_num_()
        m.running_var.nan_to_num_(1.0).clamp_(min=1e-3)


def export(model, inputs, form, path, name):
    options = {}
    if form == "open":
        axes = [{axis: label for axis, (label, *_) in one.items()} for one in open_sizes()[name]]
        options["dynamic_shapes"] = (tuple(axes),) if isinstance(model, Flat) else tuple(axes)
    torch.onnx.export(model, inputs, str(path), dynamo=form != "script", external_data=False, verbose=False,
                      **({"opset_version": 18} if form == "script" else options))


def other_sizes(facts, feeds):
    """The inputs once more, with three quarters of the largest size of each open axis."""
    for declared, value in zip(facts["inputs"], feeds):
        yield np.resize(value, [facts["open"][name][1] * 3 // 4 if name in facts["open"] else size
                                for name, size in zip(declared["shape"], value.shape)])


def tensors_of(inputs):
    for one in inputs:
        yield from (tensors_of(one) if isinstance(one, (list, tuple)) else [one])


def make(models, name, form, folder):
    with exported_facts.exporting(folder, name, form) as facts:
        torch.manual_seed(0)
        np.random.seed(0)
        model, inputs = models[name]()
        model.eval()
        with torch.no_grad():
            calibrate(model, inputs)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                export(model, inputs, form, folder / "model.onnx", name)
        facts |= exported_facts.about(folder / "model.onnx")
        feeds = [x.numpy() for x in tensors_of(inputs)]
        feeds = feeds[:len(facts["inputs"])]
        if form == "open":
            facts["open"] = {i["shape"][axis]: [*least, 1][:1] + [largest] for i, one in zip(facts["inputs"], open_sizes()[name])
                             for axis, (_, largest, *least) in one.items() if isinstance(i["shape"][axis], str)}
        sets = {"": feeds} | ({"_other": list(other_sizes(facts, feeds))} if form == "open" else {})
        facts["sets"] = list(sets)
        facts["onnxruntime_us"] = exported_facts.runtime(folder / "model.onnx", folder, sets)
    return facts


def every():
    return {**vision_models(), **timm_models(), **text_models(), **sound_and_image_models(), **LAYERS}


def rows():
    models = every()
    return [f"{name}:{form}" for name in models for form in FORMS if form != "open" or name in open_sizes()]


def main():
    import logging
    import warnings
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if len(sys.argv) < 3:
        print("\n".join(rows()))
        return
    models = every()
    torch.set_num_threads(1)
    exported_facts.export_rows(sys.argv[2:], pathlib.Path(sys.argv[1]),
                               lambda name, form, folder: make(models, name, form, folder))


if __name__ == "__main__":
    main()
