"""Pictures of three pipelines from the same noise, side by side in one PNG.

    python tools/accuracy/side_by_side.py --segue build/segue --out docs/images/gpu_side_by_side.png

Rows: ours in float32 on the CPU, ours on the GPU, diffusers in bfloat16 on the GPU. Prints each
picture's PSNR to the first row's. Needs tools/make_goldens/requirements.txt. With --device cpu the
second row is the engine's bfloat16 mode, and all of it runs on the CPU.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "make_goldens"))
import reference  # noqa: E402

PROMPTS = ["red apple", "cat face", "rocket", "octopus", "sunflower", "snowflake"]
SIDE = 128
STEPS = 20
GUIDANCE = 4.0
LABELS = 112  # pixels left of the pictures
HEADING = 20
GAP = 6


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--segue", type=Path, default=Path("build/segue"))
    parser.add_argument("--model", type=Path, default=Path("models/emoji"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def ours(arguments, prompt, noise, output, *device):
    command = [str(arguments.segue), "generate", "--quiet", "--model", str(arguments.model)]
    command += ["--prompt", prompt, "--size", f"{SIDE}x{SIDE}", "--steps", str(STEPS)]
    command += ["--guidance", str(GUIDANCE), "--latents", str(noise), "--output", str(output)]
    subprocess.run([*command, *device], check=True, stdout=subprocess.DEVNULL)
    return Image.open(output).convert("RGB")


@torch.inference_mode()
def theirs(pipe, prompt, noise):
    return pipe(
        prompt=prompt,
        negative_prompt=" ",
        true_cfg_scale=GUIDANCE,
        width=SIDE,
        height=SIDE,
        num_inference_steps=STEPS,
        latents=noise[None].to(pipe.transformer.device, torch.bfloat16),
    ).images[0]


def psnr(picture, wanted):
    difference = np.asarray(picture, np.float64) - np.asarray(wanted, np.float64)
    mean = np.mean(difference**2)
    return float("inf") if mean == 0 else 10 * np.log10(255**2 / mean)


def sheet(rows):
    """rows: (label, pictures)."""
    width = LABELS + len(PROMPTS) * (SIDE + GAP)
    canvas = Image.new("RGB", (width, HEADING + len(rows) * (SIDE + GAP)), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=12)
    for column, prompt in enumerate(PROMPTS):
        draw.text((LABELS + column * (SIDE + GAP), 3), prompt, "black", font)
    for number, (label, pictures) in enumerate(rows):
        top = HEADING + number * (SIDE + GAP)
        draw.multiline_text((4, top + SIDE // 2 - 16), label, "black", font)
        for column, picture in enumerate(pictures):
            canvas.paste(picture, (LABELS + column * (SIDE + GAP), top))
    return canvas


def main():
    arguments = parse()
    on_gpu = arguments.device != "cpu"
    pipe = reference.load(arguments.model, torch.bfloat16)
    pipe.to(arguments.device)
    place = "GPU" if on_gpu else "CPU"
    rows = [
        ("segue\nfloat32, CPU", []),
        (f"segue\nbfloat16, {place}", []),
        (f"diffusers\nbfloat16, {place}", []),
    ]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for number, prompt in enumerate(PROMPTS):
            generator = torch.Generator().manual_seed(number)
            shape = ((SIDE // 16) ** 2, pipe.transformer.config.in_channels)
            # Rounded, so that all three start from the same values.
            noise = torch.randn(shape, generator=generator).to(torch.bfloat16).float()
            latents = scratch / f"{number}.safetensors"
            save_file({"latents": noise}, latents)
            device = ("--device", arguments.device) if on_gpu else ("--bf16",)
            rows[0][1].append(ours(arguments, prompt, latents, scratch / f"{number}-0.png"))
            rows[1][1].append(
                ours(arguments, prompt, latents, scratch / f"{number}-1.png", *device)
            )
            rows[2][1].append(theirs(pipe, prompt, noise))
            values = [psnr(row[1][-1], rows[0][1][-1]) for row in rows[1:]]
            print(f"{prompt}: ours {values[0]:.1f} dB, diffusers {values[1]:.1f} dB")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    sheet(rows).save(arguments.out, optimize=True)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
