"""Writing golden files: safetensors of float32, bfloat16, int32 and uint8 tensors."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


def text_lists(strings, name):
    """A list of strings as two tensors: UTF-8 bytes end to end, and where each begins."""
    encoded = [s.encode("utf-8") for s in strings]
    offsets = np.cumsum([0] + [len(e) for e in encoded], dtype=np.int32)
    data = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
    return {f"{name}.bytes": data, f"{name}.offsets": offsets}


def int_lists(lists, name):
    """A list of lists of ints as two int32 tensors: `name` end to end, and `name.offsets`."""
    offsets = np.cumsum([0] + [len(values) for values in lists], dtype=np.int32)
    flat = np.array([v for values in lists for v in values], dtype=np.int32)
    return {name: flat, f"{name}.offsets": offsets}


def weights_checksum(directory):
    """Of all safetensors files of a checkpoint, as two int32 halves (tests/parity/golden.h).

    The sum over the files' little-endian 64-bit words w_i of (2 i + 1) w_i, modulo 2^64, files in
    the order of their paths, a file's odd tail bytes padded with zeros.
    """
    total = np.uint64(0)
    index = 0
    with np.errstate(over="ignore"):
        for path in sorted(Path(directory).glob("*/*.safetensors")):
            data = path.read_bytes()
            data += b"\0" * (-len(data) % 8)
            words = np.frombuffer(data, dtype="<u8")
            factors = np.arange(index, index + len(words), dtype=np.uint64) * np.uint64(2)
            total += np.sum(words * (factors + np.uint64(1)), dtype=np.uint64)
            index += len(words)
    return np.array([int(total)], dtype=np.uint64).view(np.int32)


def write(path, tensors):
    """Writes named tensors (numpy or torch; scalars become one-element tensors)."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    converted = {}
    for name, value in tensors.items():
        if isinstance(value, (int, np.integer)):
            value = np.array([value], dtype=np.int32)
        elif isinstance(value, float):
            value = np.array([value], dtype=np.float32)
        elif isinstance(value, (list, tuple)):
            value = np.array(value, dtype=np.int32)
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
        converted[name] = value.detach().contiguous().clone()
    save_file(converted, path)
    path.chmod(0o644)
    print(f"{path}: {path.stat().st_size} bytes")
