"""Runs diffusers on a checkpoint and writes every stage under `segue generate --dump`'s names.

    python dump_reference.py MODEL --prompt "red apple" --size 128x128 --steps 20 --seed 1 \
        --out reference.safetensors --write-latents noise.safetensors
    segue generate --model MODEL --prompt "red apple" --size 128x128 --steps 20 \
        --latents noise.safetensors --dump segue-stages
    segue compare segue-stages/given-noise.safetensors reference.safetensors

Works on any checkpoint in QwenImagePipeline's layout, the 20 B one included (--device cuda
--dtype bfloat16). Needs tools/make_goldens/requirements.txt.
"""

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "make_goldens"))
import reference  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="checkpoint directory")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--negative-prompt", default=" ", help="used when --guidance is above 1")
    parser.add_argument("--size", required=True, help="WIDTHxHEIGHT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=4.0)
    noise = parser.add_mutually_exclusive_group(required=True)
    noise.add_argument("--seed", type=int, help="of torch's CPU generator")
    noise.add_argument("--latents", type=Path, help="packed noise, as segue's --latents reads it")
    parser.add_argument("--write-latents", type=Path, help="write the noise here")
    parser.add_argument("--out", type=Path, required=True, help="safetensors file of the stages")
    parser.add_argument("--picture", type=Path, help="write the PNG here")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def initial_noise(pipe, arguments, rows):
    """[rows, channels] float32 on the CPU."""
    channels = pipe.transformer.config.in_channels
    if arguments.seed is not None:
        generator = torch.Generator().manual_seed(arguments.seed)
        return torch.randn((rows, channels), generator=generator)
    tensors = load_file(arguments.latents)
    noise = tensors["latents"] if "latents" in tensors else next(iter(tensors.values()))
    return noise.float().reshape(rows, channels)


class Recorder:
    """Collects what the pipeline's parts are given and give back."""

    def __init__(self, pipe, guided):
        self.stages = {}
        self.branches = ["prompt", "negative"] if guided else ["prompt"]
        self.step = 0
        self.forwards = 0
        self.encoded = 0
        pipe.transformer.register_forward_hook(self.after_forward)
        self.wrap(pipe, "encode_prompt", self.after_encode)
        self.wrap(pipe.scheduler, "step", self.after_step)

    @staticmethod
    def wrap(owner, name, after):
        inner = getattr(owner, name)

        def wrapped(*args, **kwargs):
            result = inner(*args, **kwargs)
            after(args, result)
            return result

        setattr(owner, name, wrapped)

    def keep(self, name, tensor):
        self.stages[name] = tensor.detach().float().cpu().clone().contiguous()

    def after_encode(self, _, result):
        self.keep(f"{self.branches[self.encoded]}.embeddings", result[0][0])
        self.encoded += 1

    def after_forward(self, _, __, output):
        branch = self.branches[self.forwards % len(self.branches)]
        self.keep(f"step.{self.step:03d}.velocity.{branch}", output[0][0])
        self.forwards += 1

    def after_step(self, args, result):
        self.keep(f"step.{self.step:03d}.velocity", args[0][0])
        self.keep(f"step.{self.step:03d}.latents", result[0][0])
        self.step += 1


def main():
    arguments = parse()
    width, height = (int(side) for side in arguments.size.split("x"))
    pipe = reference.load(arguments.model, getattr(torch, arguments.dtype))
    pipe.to(arguments.device)
    dtype = getattr(torch, arguments.dtype)
    # What the pipeline starts from in this dtype; both sides get the rounded values.
    noise = initial_noise(pipe, arguments, (width // 16) * (height // 16)).to(dtype).float()
    if arguments.write_latents:
        save_file({"latents": noise}, arguments.write_latents)

    guided = arguments.guidance > 1
    recorder = Recorder(pipe, guided)
    prompts = {"prompt": arguments.prompt}
    if guided:
        prompts["negative"] = arguments.negative_prompt
    kept = reference.MAX_ROWS + pipe.prompt_template_encode_start_idx
    for branch, prompt in prompts.items():
        ids = reference.prompt_ids(pipe, prompt)[:kept]  # the encoder is causal: the rest is unused
        recorder.keep(f"{branch}.ids", torch.tensor(ids))
    latents = noise.to(dtype)
    recorder.keep("noise", latents)
    final = pipe(
        prompt=arguments.prompt,
        negative_prompt=prompts.get("negative"),
        true_cfg_scale=arguments.guidance,
        width=width,
        height=height,
        num_inference_steps=arguments.steps,
        latents=latents[None].to(arguments.device),
        max_sequence_length=reference.MAX_ROWS,
        output_type="latent",
    ).images[0]
    recorder.keep("sigmas", pipe.scheduler.sigmas)
    recorder.keep("timesteps", pipe.scheduler.timesteps)
    recorder.keep("final_latents", final)
    image, pixels = reference.decode(pipe, final, width, height)
    recorder.keep("image", image.permute(1, 2, 0))
    save_file(recorder.stages, arguments.out)
    print(f"{arguments.out}: {len(recorder.stages)} stages")
    if arguments.picture:
        from PIL import Image

        Image.fromarray(pixels).save(arguments.picture)


if __name__ == "__main__":
    main()
