"""A random checkpoint with sizes nobody would choose, in the real layout.

What it covers that models/emoji does not: head widths that are no multiple of 8, odd extents in
every network, grouped-query attention with a ratio of three, weights in float32, float16 and
bfloat16 (mixed within a component), three shards with an index, the flat text configuration and
the `model.` and `visual.` prefixes of transformers 4, a tokenizer given as vocab.json and
merges.txt only, five latent channels with their own mean and deviation, temporal upsamplers at
other levels, one residual block a level, another noise schedule.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from tokenizers import Regex

import token_strings

TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
PREFIX_IDS = 34
SUFFIX_IDS = 5

TRANSFORMER = dict(
    patch_size=2,
    in_channels=20,
    out_channels=5,
    num_layers=3,
    attention_head_dim=14,
    num_attention_heads=3,
    joint_attention_dim=60,
    guidance_embeds=False,
    axes_dims_rope=[2, 4, 8],
)
VAE = dict(
    base_dim=3,
    z_dim=5,
    dim_mult=[1, 2, 2, 4],
    num_res_blocks=1,
    attn_scales=[],
    temperal_downsample=[True, False, True],
    dropout=0.0,
    latents_mean=[-0.25, 0.5, 0.125, -0.75, 0.3],
    latents_std=[1.5, 0.75, 2.1, 1.1, 0.9],
)
SCHEDULER = {
    "_class_name": "FlowMatchEulerDiscreteScheduler",
    "_diffusers_version": "0.42.1",
    "base_image_seq_len": 100,
    "base_shift": 0.45,
    "invert_sigmas": False,
    "max_image_seq_len": 3000,
    "max_shift": 1.05,
    "num_train_timesteps": 1000,
    "shift": 1.0,
    "shift_terminal": 0.05,
    "stochastic_sampling": False,
    "time_shift_type": "exponential",
    "use_beta_sigmas": False,
    "use_dynamic_shifting": True,
    "use_exponential_sigmas": False,
    "use_karras_sigmas": False,
}
MODEL_INDEX = {
    "_class_name": "QwenImagePipeline",
    "_diffusers_version": "0.42.1",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
    "tokenizer": ["transformers", "Qwen2Tokenizer"],
    "transformer": ["diffusers", "QwenImageTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLQwenImage"],
}
SEGUE = {"size": "80x48", "steps": 20, "guidance": 4.0, "negative_prompt": " "}

VOCAB_ROWS = 701  # rows of the embedding: more than the tokenizer has ids, as in the real model
BPE_TOKENS = 640


def text_config(special):
    """The flat configuration transformers 4 wrote; `special` maps special tokens to ids."""
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "float16",
        "vocab_size": VOCAB_ROWS,
        "hidden_size": 60,
        "intermediate_size": 75,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 2]},
        "max_position_embeddings": 4096,
        "max_window_layers": 3,
        "sliding_window": 2048,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": False,
        "bos_token_id": special["<|endoftext|>"],
        "eos_token_id": special["<|im_end|>"],
        "image_token_id": special["<|image_pad|>"],
        "video_token_id": special["<|video_pad|>"],
        "vision_start_token_id": special["<|vision_start|>"],
        "vision_end_token_id": special["<|vision_end|>"],
        "vision_token_id": special["<|vision_pad|>"],
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "in_chans": 3,
            "out_hidden_size": 60,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "spatial_patch_size": 4,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
            "window_size": 32,
            "fullatt_block_indexes": [0],
            "hidden_act": "silu",
        },
    }


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer(folder):
    """Trains the BPE on the template and a few words; returns {special token: id}."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    template = TEMPLATE.replace("<|im_start|>", "").replace("<|im_end|>", "")
    corpus = [template] * 1000  # each word of it becomes one token before any other word does
    for repeat, text in enumerate(token_strings.PLAIN + token_strings.LANGUAGES
                                  + token_strings.EMOJI + [" ".join(token_strings.WORDS)]):
        corpus += [text] * (2 + repeat % 7)
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=BPE_TOKENS,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    assert sorted(vocab.values()) == list(range(len(vocab)))
    folder.mkdir(parents=True)
    vocab_lines = sorted(vocab.items(), key=lambda item: item[1])
    (folder / "vocab.json").write_text(
        json.dumps(dict(vocab_lines), ensure_ascii=False), encoding="utf-8"
    )
    merges = [" ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text(
        "\n".join(["#version: 0.2"] + merges) + "\n", encoding="utf-8"
    )
    special = {token: len(vocab) + i for i, token in enumerate(token_strings.SPECIAL_TOKENS)}
    write_json(folder / "added_tokens.json", special)
    named = [token for token in special if token.startswith("<|") and "fim" not in token]
    named = [t for t in named if t not in ("<|repo_name|>", "<|file_sep|>", "<|endoftext|>")]
    write_json(
        folder / "special_tokens_map.json",
        {
            "additional_special_tokens": named,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
        },
    )
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(number): {
                    "content": token,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": token in named or token == "<|endoftext|>",
                }
                for token, number in special.items()
            },
            "additional_special_tokens": named,
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    return special


def randomise(module, rng):
    """Random weights under which every path carries signal: no zero gate, no unit norm weight."""
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            shape = tuple(parameter.shape)
            value = rng.standard_normal(shape)
            if "norm" in name and (parameter.ndim == 1 or name.endswith("gamma")):
                value = 1.0 + 0.2 * value
            elif parameter.ndim == 1:
                value = 0.1 * value
            elif "embed_tokens" in name:
                pass
            elif "_mod." in name or "norm_out.linear" in name:
                value = 0.4 * value / np.sqrt(shape[1])
            else:
                value = value / np.sqrt(np.prod(shape[1:]))
                if parameter.ndim == 5:
                    value *= 1.7  # one of three temporal taps sees a single frame
            parameter.copy_(torch.from_numpy(np.asarray(value, dtype=np.float32)))


def save_sharded(state, folder, stem, shards):
    """`state` in `shards` files of about equal bytes and an index, or one file without index."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.contiguous() for name, tensor in sorted(state.items())}
    if shards == 1:
        save_file(state, folder / f"{stem}.safetensors", metadata={"format": "pt"})
        return
    total = sum(tensor.nbytes for tensor in state.values())
    parts = [{} for _ in range(shards)]
    done = 0
    for name, tensor in state.items():
        parts[min(shards - 1, done * shards // total)][name] = tensor
        done += tensor.nbytes
    weight_map = {}
    for number, part in enumerate(parts, 1):
        file = f"{stem}-{number:05d}-of-{shards:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / f"{stem}.safetensors.index.json", index)


def cast(state, dtype, keep_float32):
    """`state` in `dtype`, except the names for which keep_float32 is true."""
    return {n: t.float() if keep_float32(n) else t.to(dtype) for n, t in state.items()}


def write_nested_config(checkpoint, path):
    """The text encoder's configuration as transformers 5 itself saves it."""
    Qwen2_5_VLConfig.from_pretrained(Path(checkpoint) / "text_encoder").to_json_file(path)


def write(folder):
    """Writes the whole checkpoint to `folder`, which is replaced."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.Generator(np.random.PCG64(20260103))
    write_json(folder / "model_index.json", MODEL_INDEX)
    write_json(folder / "segue.json", SEGUE)
    write_json(folder / "scheduler/scheduler_config.json", SCHEDULER)
    special = write_tokenizer(folder / "tokenizer")

    transformer = QwenImageTransformer2DModel(**TRANSFORMER)
    randomise(transformer, rng)
    # The float32 tensors hold bfloat16 values, so that the reference in bfloat16 has these weights.
    transformer.to(torch.bfloat16).to(torch.float32)
    save_sharded(
        cast(transformer.state_dict(), torch.bfloat16, lambda name: "txt_norm" in name
             or "norm_added_k" in name or name == "proj_out.bias"),
        folder / "transformer",
        "diffusion_pytorch_model",
        shards=3,
    )
    write_json(
        folder / "transformer/config.json",
        {
            "_class_name": "QwenImageTransformer2DModel",
            "_diffusers_version": "0.35.0.dev0",
            **TRANSFORMER,
            "pooled_projection_dim": 768,
        },
    )

    vae = AutoencoderKLQwenImage(**VAE)
    randomise(vae, rng)
    save_sharded(
        cast(vae.state_dict(), torch.bfloat16, lambda name: not name.startswith("encoder")),
        folder / "vae",
        "diffusion_pytorch_model",
        shards=1,
    )
    write_json(
        folder / "vae/config.json",
        {"_class_name": "AutoencoderKLQwenImage", "_diffusers_version": "0.35.0.dev0", **VAE},
    )

    config = text_config(special)
    text_encoder = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**config))
    randomise(text_encoder, rng)
    state = {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): tensor
        for name, tensor in text_encoder.state_dict().items()
    }
    save_sharded(
        cast(state, torch.float16, lambda name: "norm" in name and "visual" not in name),
        folder / "text_encoder",
        "model",
        shards=2,
    )
    write_json(folder / "text_encoder/config.json", config)
