"""Stage 5: write the checkpoint as the public classes read it, in bfloat16 and small shards.

Without trained state (--untrained 1) it writes random weights in the same layout.
"""

import json
import shutil
from pathlib import Path

import torch
from autoencoder import Autoencoder, expand
from common import arguments, load_state
from configs import DEFAULTS, SCHEDULER, VAE, text_encoder
from denoiser import build, trained
from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler

# Real shards and an index, as the large checkpoint has, at a size that any host of git takes.
SHARD, TEXT_SHARD = "10MB", "3MB"


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def export_vae(work: Path, out: Path) -> None:
    flat, meta = load_state(work, "vae") or (
        Autoencoder().state_dict(),
        {"mean": [0.0] * 16, "std": [1.0] * 16},
    )
    vae = AutoencoderKLQwenImage(**VAE, latents_mean=meta["mean"], latents_std=meta["std"])
    flat = {k: v.float() for k, v in flat.items()}
    vae.load_state_dict(expand(flat, {k: v.shape for k, v in vae.state_dict().items()}))
    vae.to(torch.bfloat16).save_pretrained(out / "vae")


def export_text_and_dit(work: Path, out: Path, untrained: bool) -> None:
    vocab = json.loads((work / "tokenizer" / "vocab.json").read_text())
    vocab |= json.loads((work / "tokenizer" / "added_tokens.json").read_text())
    text, dit = build(vocab)
    if not untrained:
        weights, _ = load_state(work, "dit")
        targets = trained(text, dit)
        assert targets.keys() == {k[4:] for k in weights if k.startswith("ema.")}
        for name, p in targets.items():
            p.data.copy_(weights[f"ema.{name}"])
    else:
        for p in dit.parameters():  # zeros would hide mistakes
            if p.ndim == 2 and not p.any():
                torch.nn.init.xavier_uniform_(p.data)
    text.to(torch.bfloat16).save_pretrained(out / "text_encoder", max_shard_size=TEXT_SHARD)
    dit.to(torch.bfloat16).save_pretrained(out / "transformer", max_shard_size=SHARD)
    # transformers saves a nested config; the real checkpoint has the flat one, and it reads both.
    write_json(
        out / "text_encoder" / "config.json",
        text_encoder(vocab, text.config.text_config.vocab_size),
    )
    (out / "text_encoder" / "generation_config.json").unlink(
        missing_ok=True
    )  # nothing is generated


def main() -> None:
    args = arguments(__doc__, out=Path("models/emoji"), untrained=0)
    out = args.out
    torch.manual_seed(0)
    for part in ("vae", "text_encoder", "transformer", "tokenizer", "scheduler"):
        shutil.rmtree(out / part, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    export_vae(args.work, out)
    export_text_and_dit(args.work, out, bool(args.untrained))
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    shutil.copytree(args.work / "tokenizer", out / "tokenizer")
    write_json(
        out / "model_index.json",
        {
            "_class_name": "QwenImagePipeline",
            "_diffusers_version": "0.42.1",
            "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
            "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
            "tokenizer": ["transformers", "Qwen2Tokenizer"],
            "transformer": ["diffusers", "QwenImageTransformer2DModel"],
            "vae": ["diffusers", "AutoencoderKLQwenImage"],
        },
    )
    write_json(out / "segue.json", DEFAULTS)
    for file in out.rglob("*.safetensors"):
        file.chmod(0o644)
    size = sum(f.stat().st_size for f in out.rglob("*.safetensors"))
    print(f"{out}: {size / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()
