"""Numbers that this generator and the C++ tests can both make, so that no file has to hold them.

Element i of stream `seed` is the upper 24 bits of splitmix64's output function at (seed << 32) + i,
as a signed integer scaled to variance 1: uniform on [-sqrt(3), sqrt(3)). Both sides multiply an
integer below 2^24 by the same float32 constant, so the values agree bit for bit
(tests/parity/golden.h).
"""

import numpy as np

SCALE = np.float32(np.sqrt(3.0) / 2**23)


def uniform(seed, shape):
    """float32 array of `shape`, row-major in the stream."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = (np.uint64(seed) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    signed = (z >> np.uint64(40)).astype(np.int64) - 2**23
    return (signed.astype(np.float32) * SCALE).reshape(shape)
