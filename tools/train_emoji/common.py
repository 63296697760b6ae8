"""What the stages share: the work folder, resumable state, pictures in every size."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from configs import SIZES
from PIL import Image
from safetensors.torch import load_file, save_file

PART = 14 << 20  # bytes; keeps every state file small enough to move about


def arguments(doc: str, **extra) -> argparse.Namespace:
    """--work plus one option a keyword; the default's type is the option's type."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/emoji"))
    for name, default in extra.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def save_state(folder: Path, name: str, tensors: dict, meta: dict) -> None:
    """Writes NAME.0.safetensors, NAME.1.safetensors, ... and last NAME.json, which seals them."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, room = [{}], PART
    for key, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if parts[-1] and value.nbytes > room:
            parts.append({})
            room = PART
        parts[-1][key] = value
        room -= value.nbytes
    for i, part in enumerate(parts):
        save_file(part, folder / f"{name}.{i}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps({**meta, "parts": len(parts)}, indent=2) + "\n")


def load_state(folder: Path, name: str) -> tuple[dict, dict] | None:
    if not (folder / f"{name}.json").exists():
        return None
    meta = json.loads((folder / f"{name}.json").read_text())
    tensors = {}
    for i in range(meta["parts"]):
        tensors.update(load_file(folder / f"{name}.{i}.safetensors"))
    return tensors, meta


def fit(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The square picture shrunk into width x height, centred on white."""
    side = min(size)
    small = Image.fromarray(picture).resize((side, side), Image.LANCZOS)
    canvas = Image.new("RGB", size, "white")
    canvas.paste(small, ((size[0] - side) // 2, (size[1] - side) // 2))
    return np.asarray(canvas)


def pictures(work: Path, device: str, limit: int = 0) -> tuple[dict, list[str]]:
    """Per size a uint8 tensor [N, 3, height, width] on the device, and the captions."""
    data = np.load(work / "pictures.npz")
    square = data["pictures"][: limit or None]
    sets = {}
    for size in SIZES:
        stack = square if size == (128, 128) else np.stack([fit(p, size) for p in square])
        sets[size] = torch.from_numpy(stack).permute(0, 3, 1, 2).contiguous().to(device)
    return sets, [str(c) for c in data["captions"][: limit or None]]


def to_float(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float() / 127.5 - 1


def graphed(step: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The whole training step as one CUDA graph: a small model is launch-bound otherwise.

    `step` takes nothing and must neither wait for the device nor read changing host values. Without
    a GPU it is returned as it is.
    """
    if not torch.cuda.is_available():
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return loss

    return replay


class Ema:
    """A running mean of the weights whose horizon grows with the updates made, up to `decay`."""

    def __init__(self, tensors: dict, decay: float):
        self.decay, self.steps = decay, 0
        self.live = list(tensors.values())
        self.mean = {k: v.detach().float().clone() for k, v in tensors.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 10))
        torch._foreach_lerp_(list(self.mean.values()), [p.detach() for p in self.live], 1 - decay)
