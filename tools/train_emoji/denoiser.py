"""Text encoder and DiT as training runs them, on the modules of the public classes.

The forward passes are written out here for two reasons: the 34 template ids that all prompts share
run through the text encoder once a step instead of once a caption, and one fixed shape serves
pictures of all sizes, so that everything compiles once. `check.py` holds them against the public
classes.
"""

import math

import torch
import torch.nn.functional as F
from configs import HEADS, HIDDEN, PREFIX, SIZES, TRANSFORMER, text_encoder
from diffusers import QwenImageTransformer2DModel
from torch import nn
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

IMAGE = max(w * h for w, h in SIZES) // 256  # image tokens of the largest size
HEAD = HIDDEN // HEADS
KEEP = ("model.language_model.",)


def build(vocab: dict) -> tuple[nn.Module, nn.Module]:
    rows = -(-len(vocab) // 64) * 64
    text = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**text_encoder(vocab, rows)))
    return text.float(), initialise(QwenImageTransformer2DModel(**TRANSFORMER))


def initialise(dit: nn.Module) -> nn.Module:
    """Blocks start as the identity and the output as zero, the usual start of a DiT."""
    for name, p in dit.named_parameters():
        if p.ndim == 2:
            nn.init.xavier_uniform_(p)
        elif name.endswith("bias"):
            nn.init.zeros_(p)
    for name, p in dit.named_parameters():
        if "_mod." in name or name.startswith(("norm_out", "proj_out")):
            nn.init.zeros_(p)
    return dit


def trained(text: nn.Module, dit: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn: the DiT and the language half of the text encoder."""
    return {
        **{f"text.{k}": p for k, p in text.named_parameters() if k.startswith(KEEP)},
        **{f"dit.{k}": p for k, p in dit.named_parameters()},
    }


# ---- text encoder


def rms(x, weight, eps=1e-6):
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)


def text_tables(length: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    inverse = torch.exp(torch.arange(0, HEAD, 2, device=device) * (-math.log(1e6) / HEAD))
    angle = torch.arange(length, device=device)[:, None] * inverse
    return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()


def half_rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)


def text_layer(layer, x, cos, sin, past):
    """One layer over the rows x; `past` holds the keys and values of the rows before them."""
    att, n = layer.self_attn, x.shape[1]
    y = rms(x, layer.input_layernorm.weight)
    q, k, v = (
        p(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for p in (att.q_proj, att.k_proj, att.v_proj)
    )
    q, k = half_rope(q, cos, sin), half_rope(k, cos, sin)
    full_k, full_v = k, v
    if past is not None:
        full_k, full_v = (
            torch.cat([p.expand(len(x), -1, -1, -1), t], 2) for p, t in zip(past, (k, v))
        )
    total = full_k.shape[2]
    causal = torch.ones(n, total, dtype=torch.bool, device=x.device).tril(total - n)
    full_k, full_v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (full_k, full_v))
    y = F.scaled_dot_product_attention(q, full_k, full_v, attn_mask=causal)
    x = x + att.o_proj(y.transpose(1, 2).flatten(2))
    y = rms(x, layer.post_attention_layernorm.weight)
    return x + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(y)) * layer.mlp.up_proj(y)), (k, v)


def encode_text(text: nn.Module, prefix: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """prefix [1, 34], ids [B, T] right-padded -> states [B, T, HIDDEN] after the last norm."""
    lm = text.model.language_model
    cos, sin = text_tables(PREFIX + ids.shape[1], ids.device)
    # index_select and not the module: its gradient sorts nothing, so a captured step can hold it.
    head, x = (
        lm.embed_tokens.weight.index_select(0, t.flatten()).unflatten(0, t.shape)
        for t in (prefix, ids)
    )
    for layer in lm.layers:
        head, past = text_layer(layer, head, cos[:PREFIX], sin[:PREFIX], None)
        x, _ = text_layer(layer, x, cos[PREFIX:], sin[PREFIX:], past)
    return rms(x, lm.norm.weight)


# ---- DiT


def rope_tables(
    dit: nn.Module, length: int, device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per size: cos and sin of [text; image] rows [S, length + IMAGE, HEAD / 2]; image masks."""
    tables, masks = [], []
    for width, height in SIZES:
        image, words = dit.pos_embed(
            [[(1, height // 16, width // 16)]], max_txt_seq_len=length, device="cpu"
        )
        rest = torch.ones(IMAGE - len(image), image.shape[1], dtype=image.dtype)
        tables.append(torch.cat([words, image, rest]))
        masks.append(torch.arange(IMAGE) < len(image))
    table = torch.stack(tables).to(device)
    return table.real.contiguous(), table.imag.contiguous(), torch.stack(masks).to(device)


def pair_rope(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def modulate(x, shift, scale):
    y = F.layer_norm(x.float(), (x.shape[-1],), eps=1e-6)
    return (y * (1 + scale[:, None].float()) + shift[:, None].float()).to(x.dtype)


def block(b: nn.Module, h, e, temb, cos, sin, mask):
    """One double-stream block; h image rows, e text rows, mask [B, 1, 1, T + IMAGE] over keys."""
    mi, mt = b.img_mod(temb).chunk(6, -1), b.txt_mod(temb).chunk(6, -1)
    xi, xt = modulate(h, mi[0], mi[1]), modulate(e, mt[0], mt[1])
    a, words = b.attn, e.shape[1]

    def joint(text_proj, image_proj, text_norm=None, image_norm=None):
        t, i = (p(x).unflatten(-1, (HEADS, HEAD)) for p, x in ((text_proj, xt), (image_proj, xi)))
        if text_norm is not None:
            t, i = rms(t, text_norm.weight), rms(i, image_norm.weight)
        return torch.cat([t, i], 1).transpose(1, 2)

    q = pair_rope(joint(a.add_q_proj, a.to_q, a.norm_added_q, a.norm_q), cos, sin)
    k = pair_rope(joint(a.add_k_proj, a.to_k, a.norm_added_k, a.norm_k), cos, sin)
    v = joint(a.add_v_proj, a.to_v)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
    h = h + mi[2][:, None] * a.to_out[0](o[:, words:])
    e = e + mt[2][:, None] * a.to_add_out(o[:, :words])
    h = h + mi[5][:, None] * b.img_mlp(modulate(h, mi[3], mi[4]))
    return h, e + mt[5][:, None] * b.txt_mlp(modulate(e, mt[3], mt[4]))


def velocity(dit, latents, words, lengths, sizes, sigma, tables):
    """Packed latents [B, IMAGE, 64] of any sizes (a size ignores rows past its own) -> velocity."""
    cos, sin, image = tables
    cos, sin = cos[sizes][:, None], sin[sizes][:, None]
    known = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    mask = torch.cat([known, image[sizes]], 1)[:, None, None]
    temb = dit.time_text_embed(sigma, latents)
    h, e = dit.img_in(latents), dit.txt_in(rms(words, dit.txt_norm.weight))
    for b in dit.transformer_blocks:
        h, e = block(b, h, e, temb, cos, sin, mask)
    scale, shift = dit.norm_out.linear(F.silu(temb)).chunk(2, -1)
    return dit.proj_out(modulate(h, shift, scale))


def pack(z: torch.Tensor) -> torch.Tensor:
    """[N, 16, H, W] -> [N, H/2 * W/2, 64], channel = latent channel * 4 + row * 2 + column."""
    n, c, h, w = z.shape
    return z.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * 4)
