"""Stage 4: train text encoder and DiT together on the VAE's latents. Run again to go on.

A run starts from the saved mean weights, warms up, and over the last --decay share of its --seconds
lowers the learning rate to zero: the last run of a training decays, the ones before it need not.
"""

import time

import denoiser as net
import torch
from autoencoder import DEVICE, Autoencoder
from common import Ema, arguments, graphed, load_state, pictures, save_state
from configs import PREFIX, SIZES, TEMPLATE
from muon import Muon
from train_vae import autocast, encode_all
from transformers import Qwen2Tokenizer

SHARES = [0.12, 0.13, 0.6, 0.15]  # of the samples, per size
DROP = {
    " ": 0.1,
    "": 0.02,
}  # captions replaced, for guidance: the default negative prompt, and none
SHIFT = 1.64  # the sampler's exp(mu) at 16 to 64 image tokens
ROWS = 16  # caption and suffix ids, padded; with 64 image tokens a multiple of 8


def token_table(tokenizer, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Template prefix [1, 34], ids after it [N, ROWS] right-padded, and their lengths [N]."""
    full = [tokenizer(TEMPLATE.format(c)).input_ids for c in captions]
    tails = [ids[PREFIX:] for ids in full]
    table = torch.full((len(tails), ROWS), tokenizer.pad_token_id)
    for row, tail in zip(table, tails):
        row[: len(tail)] = torch.tensor(tail)
    return torch.tensor([full[0][:PREFIX]]), table, torch.tensor([len(t) for t in tails])


def latent_table(work, limit: int) -> tuple[torch.Tensor, list[str]]:
    """Normalised packed latents [size, picture, token, 64], zero past a size's own tokens."""
    sets, captions = pictures(work, DEVICE, limit)
    weights, meta = load_state(work, "vae")
    vae = Autoencoder().to(DEVICE, memory_format=torch.channels_last)
    vae.load_state_dict(weights)
    mean, std = (torch.tensor(meta[k], device=DEVICE)[:, None, None] for k in ("mean", "std"))
    table = torch.zeros(len(SIZES), len(captions), net.IMAGE, 64, device=DEVICE)
    for i, pixels in enumerate(sets.values()):
        packed = net.pack((encode_all(vae, pixels) - mean) / std)
        table[i, :, : packed.shape[1]] = packed
    return table, captions


def draw_sigma(n: int) -> torch.Tensor:
    """Half even, half crowded round the middle where pictures form; shifted as sampling is."""
    even, middle = torch.rand(n, device=DEVICE), torch.randn(n, device=DEVICE).sigmoid()
    u = torch.where(torch.rand(n, device=DEVICE) < 0.5, even, middle)
    return (SHIFT * u / (1 + (SHIFT - 1) * u)).clamp(0.004, 1.0)


class Trainer:
    def __init__(self, args):
        self.latents, captions = latent_table(args.work, args.limit)
        tokenizer = Qwen2Tokenizer.from_pretrained(args.work / "tokenizer")
        table = token_table(tokenizer, captions + list(DROP))
        self.prefix, self.ids, self.lengths = (t.to(DEVICE) for t in table)
        self.text, self.dit = (m.to(DEVICE) for m in net.build(tokenizer.get_vocab()))
        self.params = net.trained(self.text, self.dit)
        self.rope = net.rope_tables(self.dit, ROWS, DEVICE)
        self.batch, self.count = args.batch, len(captions)
        self.done = 0
        if state := load_state(args.work, "dit"):
            for name, p in self.params.items():
                p.data.copy_(state[0][f"ema.{name}"])
            self.done = state[1]["steps"]
        self.ema = Ema(self.params, 0.99)
        self.split(args)

    def split(self, args) -> None:
        matrices, rest, words = [], [], []
        for name, p in self.params.items():
            hidden = p.ndim == 2 and any(
                k in name for k in (".attn.", "_mlp.", "self_attn.", ".mlp.")
            )
            (matrices if hidden else words if "embed_tokens" in name else rest).append(p)
        self.muon = Muon(matrices, lr=args.muon_lr, momentum=0.95, decay=0.01)
        groups = [dict(params=rest, peak=args.lr), dict(params=words, peak=3 * args.lr)]
        self.adam = torch.optim.AdamW(
            groups, betas=(0.9, 0.99), weight_decay=0.0, fused=True, capturable=DEVICE == "cuda"
        )
        self.scale = torch.zeros((), device=DEVICE)
        for group in self.adam.param_groups:
            group["lr"] = torch.zeros((), device=DEVICE)
        self.shares = torch.tensor(SHARES, device=DEVICE).cumsum(0)[:-1]

    def sample(self) -> tuple:
        n = self.batch
        # Inside a step no picture comes twice before each came once.
        passes = -(-n // self.count)
        rows = torch.rand(passes, self.count, device=DEVICE).argsort(1).flatten()[:n]
        sizes = torch.bucketize(torch.rand(n, device=DEVICE), self.shares)
        chance, words, floor = torch.rand(n, device=DEVICE), rows, 0.0
        for i, share in enumerate(DROP.values()):
            hit = (chance >= floor) & (chance < floor + share)
            words, floor = words.masked_fill(hit, self.count + i), floor + share
        return self.latents[sizes, rows], sizes, self.ids[words], self.lengths[words], draw_sigma(n)

    def loss(self) -> torch.Tensor:
        clean, sizes, ids, lengths, sigma = self.sample()
        noise = torch.randn_like(clean)
        mixed = torch.lerp(clean, noise, sigma[:, None, None])
        with autocast():
            hidden = net.encode_text(self.text, self.prefix, ids)
            v = net.velocity(self.dit, mixed, hidden, lengths, sizes, sigma, self.rope)
        own = self.rope[2][sizes][..., None]
        error = ((v.float() - noise + clean).square() * own).mean(-1).sum(1)
        return (error / own.sum((1, 2))).mean()

    def step(self) -> torch.Tensor:
        for p in self.params.values():
            p.grad = None
        loss = self.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params.values(), 1.0)
        self.muon.step(self.scale)
        self.adam.step()
        return loss.detach()

    def set_rate(self, scale: float) -> None:
        self.scale.fill_(scale)
        for group in self.adam.param_groups:
            group["lr"].fill_(scale * group["peak"])

    def save(self, work, losses: list[float]) -> None:
        tensors = {f"ema.{k}": v.half() for k, v in self.ema.mean.items()}
        save_state(work, "dit", tensors, dict(steps=self.done, losses=losses))


def scale_at(progress: float, step: int, decay: float) -> float:
    fall = min(1.0, (1 - progress) / decay) if decay > 0 else 1.0
    return max(0.0, fall) * min(1.0, (step + 1) / 300)


def main() -> None:
    args = arguments(
        __doc__,
        seconds=480.0,
        decay=0.5,
        batch=1024,
        lr=1e-3,
        muon_lr=0.01,
        limit=0,
        compile=1,
        log=500,
    )
    torch.manual_seed(int(time.time()))
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(args)
    if args.compile:
        # One compiled block serves all blocks: seconds of compilation instead of minutes.
        net.block = torch.compile(net.block, dynamic=False)
        net.text_layer = torch.compile(net.text_layer, dynamic=False)
    one = graphed(trainer.step)  # its trial steps run at rate zero
    start, step, total, losses = time.time(), 0, 0.0, []
    saved = start
    while (passed := time.time() - start) < args.seconds:
        trainer.set_rate(scale_at(passed / args.seconds, step, args.decay))
        total = total + one()
        step, trainer.done = step + 1, trainer.done + 1
        if step % 10 == 0:
            trainer.ema.update()
        if step % args.log == 0:
            losses.append(round(total.item() / args.log, 5))
            total = 0.0
            print(f"{passed:6.1f} s  step {trainer.done}  loss {losses[-1]:.5f}", flush=True)
        if time.time() - saved > 120:
            trainer.save(args.work, losses)
            saved = time.time()
    trainer.save(args.work, losses)
    print(f"{step} steps, {step / args.seconds:.1f} a second")


if __name__ == "__main__":
    main()
