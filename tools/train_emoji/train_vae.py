"""Stage 3: train the VAE in its exact 2-D collapse. Run again to go on from the saved weights.

Each run warms up, then lowers the learning rate to zero over its --seconds.
"""

import math
import time
from functools import partial

import torch
import torch.nn.functional as F
from autoencoder import DEVICE, Autoencoder
from common import Ema, arguments, graphed, load_state, pictures, save_state, to_float
from configs import SIZES

SHARES = [0.25, 0.25, 0.35, 0.15]  # of the steps, per size
KL = 1e-4  # small: it only keeps the scale of the latents finite
NOISE = 0.15  # at most, of the latents' spread: the decoder must forgive what the DiT gets wrong


def autocast():
    return torch.autocast(DEVICE, torch.bfloat16)


def loss_of(vae: Autoencoder, x: torch.Tensor) -> torch.Tensor:
    with autocast():
        mean, logvar = vae.encode(x)
        logvar = logvar.clamp(-30, 20)
        level = NOISE * torch.rand(len(x), 1, 1, 1, device=x.device) * mean.std().detach()
        spread = torch.sqrt(logvar.exp() + level**2)
        y = vae.decode(mean + spread * torch.randn_like(mean)).float()
    d = y - x
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
    return d.abs().mean() + 2 * d.square().mean() + 0.5 * edges + KL * kl


def rate(progress: float, step: int) -> float:
    return min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def train(
    vae: Autoencoder, sets: dict, seconds: float, batch: int, peak: float
) -> tuple[dict, int]:
    params = dict(vae.named_parameters())
    lr = torch.zeros((), device=DEVICE)
    optimizer = torch.optim.AdamW(
        params.values(),
        lr=lr,
        betas=(0.9, 0.99),
        weight_decay=0.0,
        fused=True,
        capturable=DEVICE == "cuda",
    )

    def one(pixels: torch.Tensor) -> torch.Tensor:
        rows = torch.randint(len(pixels), (batch,), device=DEVICE)
        x = to_float(pixels[rows]).contiguous(memory_format=torch.channels_last)
        for p in params.values():
            p.grad = None
        loss = loss_of(vae, x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        optimizer.step()
        return loss.detach()

    steps = [graphed(partial(one, sets[size])) for size in SIZES]
    ema, picks = (
        Ema(params, 0.99),
        torch.multinomial(torch.tensor(SHARES), 1 << 20, replacement=True).tolist(),
    )
    start, step = time.time(), 0
    while (passed := time.time() - start) < seconds:
        lr.fill_(peak * rate(passed / seconds, step))
        loss = steps[picks[step]]()
        step += 1
        if step % 10 == 0:
            ema.update()
        if step % 1000 == 0:
            print(f"{passed:6.1f} s  step {step}  loss {loss.item():.4f}", flush=True)
    return ema.mean, step


@torch.no_grad()
def encode_all(vae: Autoencoder, pixels: torch.Tensor) -> torch.Tensor:
    with autocast():
        return torch.cat([vae.encode(to_float(p))[0] for p in pixels.split(64)])


@torch.no_grad()
def psnr(vae: Autoencoder, pixels: torch.Tensor) -> float:
    """Of the decoded means, averaged over the pictures, in dB."""
    values = []
    for part in pixels.split(64):
        x = to_float(part)
        with autocast():
            y = vae.decode(vae.encode(x)[0]).float().clamp(-1, 1)
        values.append(-10 * torch.log10(F.mse_loss(y, x, reduction="none").mean((1, 2, 3)) / 4))
    return torch.cat(values).mean().item()


def main() -> None:
    args = arguments(__doc__, seconds=240.0, batch=64, lr=1.5e-3, limit=0)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    sets, _ = pictures(args.work, DEVICE, args.limit)
    vae = Autoencoder().to(DEVICE, memory_format=torch.channels_last)
    if state := load_state(args.work, "vae"):
        vae.load_state_dict(state[0])
    before = state[1]["steps"] if state else 0
    weights, steps = train(vae, sets, args.seconds, args.batch, args.lr)
    vae.load_state_dict(weights)
    latents = [encode_all(vae, pixels) for pixels in sets.values()]
    flat = torch.cat([z.permute(1, 0, 2, 3).flatten(1) for z in latents], 1)
    meta = dict(
        steps=before + steps,
        psnr={f"{w}x{h}": round(psnr(vae, pixels), 2) for (w, h), pixels in sets.items()},
        mean=[round(v, 4) for v in flat.mean(1).tolist()],
        std=[round(v, 4) for v in flat.std(1).tolist()],
    )
    save_state(args.work, "vae", weights, meta)
    print(meta)


if __name__ == "__main__":
    main()
