"""The engine's random weights (`segue generate --random-weights`), bit for bit.

See src/kernels/random_weights.h and TensorTable::Random: the sum of four 16-bit numbers of a
SplitMix64 hash of the element's index, scaled.
"""

import math

import numpy as np
import torch

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
SUM_DEVIATION = np.float32(37837.2275)


def signed(value):
    """A 64-bit pattern as the integer that torch's int64 has for it."""
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def key_of(seed, name):
    key = 0xCBF29CE484222325 ^ (seed * GOLDEN & MASK)
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & MASK
    return key


def shift_right(x, bits):
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def sums(key, first, count, device):
    """int64 sums of elements first .. first + count."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    x = (index + 1) * signed(GOLDEN) + signed(key)
    x = (x ^ shift_right(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shift_right(x, 27)) * signed(0x94D049BB133111EB)
    x = x ^ shift_right(x, 31)
    return sum((x >> bits) & 0xFFFF for bits in (0, 16, 32, 48)) - 131070


def statistics(name, shape):
    """(mean, deviation) by what a tensor's name and shape say it is."""
    if name.endswith(".bias"):
        return 0.0, 0.02
    if len(shape) < 2 or name.endswith(".gamma"):
        return 1.0, 0.05
    return 0.0, 1 / math.sqrt(math.prod(shape[1:]))


def tensor(seed, name, shape, device="cpu"):
    """bfloat16; `name` begins with the component's, as "transformer.img_in.weight"."""
    mean, deviation = statistics(name, shape)
    scale = float(np.float32(deviation) / SUM_DEVIATION)
    key = key_of(seed, name)
    count = math.prod(shape)
    values = torch.empty(count, dtype=torch.bfloat16, device=device)
    block = 1 << 24
    for first in range(0, count, block):
        part = sums(key, first, min(block, count - first), device).float()
        values[first : first + len(part)] = part * scale + mean
    return values.reshape(shape)
