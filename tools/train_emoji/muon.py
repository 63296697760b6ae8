"""Muon for the hidden matrices, batched by shape: orthogonalised momentum learns rare facts evenly.

A model that must know 1844 pictures by name is all rare facts. AdamW takes the other parameters.
"""

import torch


def orthogonalise(g: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz towards the nearest semi-orthogonal matrices of a stack [n, rows, columns]."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + torch.baddbmm(a, a, a, beta=-4.775, alpha=2.0315) @ x
    return x.mT if tall else x


class Muon:
    def __init__(self, params: list[torch.nn.Parameter], lr: float, momentum: float, decay: float):
        self.lr, self.momentum, self.decay = lr, momentum, decay
        shapes = {}
        for p in params:
            shapes.setdefault(tuple(p.shape), []).append(p)
        self.groups = [
            (ps, torch.zeros(len(ps), *shape, device=ps[0].device)) for shape, ps in shapes.items()
        ]

    @torch.no_grad()
    def step(self, scale: torch.Tensor) -> None:
        """`scale` is a scalar on the device, so that a captured step follows the schedule."""
        lr = self.lr * scale
        for params, velocity in self.groups:
            # The last block's text output feeds nothing, so its matrices may have no gradient.
            grads = torch.stack([torch.zeros_like(p) if p.grad is None else p.grad for p in params])
            velocity.lerp_(grads, 1 - self.momentum)
            update = orthogonalise(grads.lerp(velocity, self.momentum)).float()
            rows, columns = update.shape[-2:]
            torch._foreach_mul_(params, 1 - lr * self.decay)
            update *= -lr * max(1.0, rows / columns) ** 0.5
            torch._foreach_add_(params, list(update.unbind()))
