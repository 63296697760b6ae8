"""Pictures as a user of diffusers gets them: QwenImagePipeline at the defaults of segue.json."""

import json
from pathlib import Path

import torch
from diffusers import QwenImagePipeline
from PIL import Image

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Sampler:
    def __init__(self, model: Path, guidance: float = 0.0):
        self.pipeline = QwenImagePipeline.from_pretrained(model, dtype=torch.bfloat16).to(DEVICE)
        self.pipeline.set_progress_bar_config(disable=True)
        self.defaults = json.loads((model / "segue.json").read_text())
        self.guidance = guidance or self.defaults["guidance"]

    def __call__(self, captions: list[str], seeds: list[int], size: str = "") -> list[Image.Image]:
        width, height = map(int, (size or self.defaults["size"]).split("x"))
        pictures = [None] * len(captions)
        for rows in self.batches(captions):
            result = self.pipeline(
                prompt=[captions[i] for i in rows],
                negative_prompt=[self.defaults["negative_prompt"]] * len(rows),
                width=width,
                height=height,
                num_inference_steps=self.defaults["steps"],
                true_cfg_scale=self.guidance,
                generator=[torch.Generator("cpu").manual_seed(seeds[i]) for i in rows],
            )
            for i, picture in zip(rows, result.images):
                pictures[i] = picture
        return pictures

    def batches(self, captions: list[str], most: int = 25) -> list[list[int]]:
        """Captions of one length in ids together: no padding, each sampled as if alone."""
        by_length = {}
        for i, caption in enumerate(captions):
            by_length.setdefault(len(self.pipeline.tokenizer(caption).input_ids), []).append(i)
        return [
            rows[i : i + most] for rows in by_length.values() for i in range(0, len(rows), most)
        ]


def grid(pictures: list[Image.Image], columns: int) -> Image.Image:
    width, height = (max(p.size[i] for p in pictures) for i in (0, 1))
    sheet = Image.new("RGB", (columns * width, -(-len(pictures) // columns) * height), "white")
    for i, picture in enumerate(pictures):
        sheet.paste(picture, (i % columns * width, i // columns * height))
    return sheet
