"""The VAE as it is for one frame: AutoencoderKLQwenImage, its 3-D convolutions collapsed to 2-D.

A causal 3-D convolution pads time with two empty frames on the left, so one frame meets the last
temporal tap only, and the temporal resamplers are skipped. Parameter names are those of the 3-D
class; `expand` puts the kernels back into it.
"""

import torch
import torch.nn.functional as F
from configs import VAE
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def norm(rows: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """rows [pixels, channels]; the class's x / |x| * sqrt(channels), as x over its own RMS."""
    x = rows.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-24) * gamma


def norm_silu(rows: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return F.silu(norm(rows, gamma)).to(rows.dtype)


# Fused, this costs one pass over the picture instead of eight. Only the number of rows is dynamic:
# one compilation for each channel count, with and without gradients, serves all sizes.
torch._dynamo.config.recompile_limit = 32
norm_silu_fast = torch.compile(norm_silu, dynamic=True) if DEVICE == "cuda" else norm_silu


class Norm(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        n, c, h, w = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(-1, c)
        return norm_silu_fast(rows, self.gamma).view(n, h, w, c).permute(0, 3, 1, 2)


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.norm1, self.conv1 = Norm(inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.norm2, self.conv2 = Norm(outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x):
        return self.conv_shortcut(x) + self.conv2(self.norm2(self.conv1(self.norm1(x))))


class Attention(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.norm = Norm(dim)
        self.to_qkv, self.proj = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        y = norm(x.permute(0, 2, 3, 1), self.norm.gamma).permute(0, 3, 1, 2).to(x.dtype)
        q, k, v = self.to_qkv(y).flatten(2).transpose(1, 2)[:, None].chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous())
        return x + self.proj(y[:, 0].transpose(1, 2).reshape(x.shape))


class Middle(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.resnets = nn.ModuleList([Residual(dim, dim), Residual(dim, dim)])
        self.attentions = nn.ModuleList([Attention(dim)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Pad(nn.Module):
    def forward(self, x):
        return F.pad(x, (0, 1, 0, 1))


class Double(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=2.0, mode="nearest-exact")


class Resample(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.resample = nn.Sequential(*layers)

    def forward(self, x):
        return self.resample(x)


class Up(nn.Module):
    def __init__(self, inner: int, outer: int, blocks: int, grow: bool):
        super().__init__()
        widths = [inner] + [outer] * blocks
        self.resnets = nn.ModuleList([Residual(a, b) for a, b in zip(widths, widths[1:])])
        double = [Resample(Double(), nn.Conv2d(outer, outer // 2, 3, padding=1))]
        self.upsamplers = nn.ModuleList(double if grow else [])

    def forward(self, x):
        for layer in [*self.resnets, *self.upsamplers]:
            x = layer(x)
        return x


class Encoder(nn.Module):
    def __init__(self, dims: list[int], blocks: int, latent: int):
        super().__init__()
        self.conv_in = nn.Conv2d(3, dims[0], 3, padding=1)
        layers, width = [], dims[0]
        for i, dim in enumerate(dims):
            for _ in range(blocks):
                layers.append(Residual(width, dim))
                width = dim
            if i + 1 < len(dims):
                layers.append(Resample(Pad(), nn.Conv2d(dim, dim, 3, stride=2)))
        self.down_blocks = nn.ModuleList(layers)
        self.mid_block, self.norm_out = Middle(width), Norm(width)
        self.conv_out = nn.Conv2d(width, 2 * latent, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for layer in self.down_blocks:
            x = layer(x)
        return self.conv_out(self.norm_out(self.mid_block(x)))


class Decoder(nn.Module):
    def __init__(self, dims: list[int], blocks: int, latent: int):
        super().__init__()
        dims = dims[::-1]
        self.conv_in, self.mid_block = nn.Conv2d(latent, dims[0], 3, padding=1), Middle(dims[0])
        ups, width = [], dims[0]
        for i, dim in enumerate(dims):
            grow = i + 1 < len(dims)
            ups.append(Up(width, dim, blocks + 1, grow))
            width = dim // 2 if grow else dim
        self.up_blocks, self.norm_out = nn.ModuleList(ups), Norm(width)
        self.conv_out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = self.mid_block(self.conv_in(x))
        for layer in self.up_blocks:
            x = layer(x)
        return self.conv_out(self.norm_out(x))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        latent, blocks = VAE["z_dim"], VAE["num_res_blocks"]
        dims = [VAE["base_dim"] * m for m in VAE["dim_mult"]]
        self.encoder, self.decoder = Encoder(dims, blocks, latent), Decoder(dims, blocks, latent)
        self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1)
        self.post_quant_conv = nn.Conv2d(latent, latent, 1)

    def encode(self, x):
        """Mean and log-variance of the latents."""
        return self.quant_conv(self.encoder(x)).float().chunk(2, dim=1)

    def decode(self, z):
        return self.decoder(self.post_quant_conv(z))


def expand(flat: dict, shapes: dict) -> dict:
    """The 2-D weights as those of the 3-D class: last temporal tap, zeros in the rest."""
    full = {}
    for key, shape in shapes.items():
        value = torch.zeros(shape)
        if key in flat and len(shape) == 5:
            value[:, :, -1] = flat[key]
        elif key in flat:
            value = flat[key].reshape(shape)
        elif "time_conv" not in key:
            raise KeyError(key)
        full[key] = value
    return full
