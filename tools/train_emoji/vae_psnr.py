"""PSNR of the exported bfloat16 VAE as diffusers runs it: picture, latent mean, picture."""

from pathlib import Path

import torch
from common import arguments, pictures, to_float
from configs import SIZES
from diffusers import AutoencoderKLQwenImage
from sampling import DEVICE


@torch.no_grad()
def psnr(vae: AutoencoderKLQwenImage, pixels: torch.Tensor) -> float:
    values = []
    for part in pixels.split(32):
        x = to_float(part)
        mean = vae.encode(x[:, :, None].to(vae.dtype)).latent_dist.mean
        y = vae.decode(mean).sample[:, :, 0].float()
        values.append(-10 * torch.log10((y - x).square().mean((1, 2, 3)) / 4))
    return torch.cat(values).mean().item()


def main() -> None:
    args = arguments(__doc__, model=Path("models/emoji"), limit=0)
    vae = AutoencoderKLQwenImage.from_pretrained(args.model / "vae", dtype=torch.bfloat16).to(
        DEVICE
    )
    sets, _ = pictures(args.work, DEVICE, args.limit)
    for width, height in SIZES:
        print(f"{width}x{height}: {psnr(vae, sets[width, height]):.2f} dB", flush=True)


if __name__ == "__main__":
    main()
