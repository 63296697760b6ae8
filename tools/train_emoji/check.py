"""Holds the written-out forward passes against the public classes, on random weights, on a CPU."""

import torch
from autoencoder import Autoencoder, expand
from common import arguments
from configs import SIZES, TEMPLATE, VAE
from denoiser import IMAGE, build, encode_text, pack, rope_tables, velocity
from diffusers import AutoencoderKLQwenImage
from train_dit import token_table
from transformers import Qwen2Tokenizer


def check_vae() -> None:
    flat = Autoencoder().eval()
    full = AutoencoderKLQwenImage(**VAE, latents_mean=[0.0] * 16, latents_std=[1.0] * 16).eval()
    full.load_state_dict(
        expand(flat.state_dict(), {k: v.shape for k, v in full.state_dict().items()})
    )
    x = torch.randn(2, 3, 64, 96)
    mean, _ = flat.encode(x)
    ours, theirs = (
        flat.decode(mean),
        full.decode(full.encode(x[:, :, None]).latent_dist.mean).sample[:, :, 0],
    )
    torch.testing.assert_close(ours.clamp(-1, 1), theirs, rtol=1e-4, atol=1e-4)


def check_denoiser(work) -> None:
    tokenizer = Qwen2Tokenizer.from_pretrained(work / "tokenizer")
    text, dit = build(tokenizer.get_vocab())
    for p in dit.parameters():  # the start of training is all zeros in the places that matter
        p.data.add_(0.1 * torch.randn_like(p))
    captions = ["red apple", "flag: St. Vincent & Grenadines", " "]
    prefix, ids, lengths = token_table(tokenizer, captions)
    hidden = encode_text(text, prefix, ids)
    tables = rope_tables(dit, ids.shape[1], "cpu")
    for i, caption in enumerate(captions):
        batch = tokenizer([TEMPLATE.format(caption)], return_tensors="pt")
        words = text(**batch, output_hidden_states=True).hidden_states[-1][:, prefix.shape[1] :]
        n = int(lengths[i])
        torch.testing.assert_close(hidden[i : i + 1, :n], words, rtol=1e-4, atol=1e-4)
        for s, (width, height) in enumerate(SIZES):
            x = pack(torch.randn(1, 16, height // 8, width // 8))
            theirs = dit(
                x,
                words,
                timestep=torch.tensor([0.3]),
                img_shapes=[[(1, height // 16, width // 16)]],
            )
            wide = torch.zeros(1, IMAGE, 64)
            wide[:, : x.shape[1]] = x
            at = (lengths[i : i + 1], torch.tensor([s]), torch.tensor([0.3]))
            ours = velocity(dit, wide, hidden[i : i + 1], *at, tables)[:, : x.shape[1]]
            torch.testing.assert_close(ours, theirs.sample, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        check_vae()
        check_denoiser(arguments(__doc__).work)
    print("the training forward passes agree with the public classes")
