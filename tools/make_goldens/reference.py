"""The reference pipeline, run whole or stage by stage, with its stages recorded."""

import contextlib
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import QwenImagePipeline
from diffusers.utils import logging as diffusers_logging

warnings.filterwarnings("ignore", category=FutureWarning)
diffusers_logging.set_verbosity_error()
diffusers_logging.disable_progress_bar()

MAX_ROWS = 512  # QwenImagePipeline.__call__'s default max_sequence_length


def load(directory, dtype=torch.float32):
    """The pipeline with every component in `dtype`, on the CPU.

    Loaded in `dtype`, not moved to it: module.to(bfloat16) would round the text encoder's rotary
    frequencies as well, which loading keeps in float32.
    """
    pipe = QwenImagePipeline.from_pretrained(Path(directory), dtype=dtype)
    for component in (pipe.transformer, pipe.text_encoder, pipe.vae):
        assert {parameter.dtype for parameter in component.parameters()} == {dtype}
        component.eval()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def prompt_ids(pipe, prompt):
    """The ids the text encoder gets for a prompt: template, truncation at 1058."""
    text = pipe.prompt_template_encode.format(prompt)
    limit = pipe.tokenizer_max_length + pipe.prompt_template_encode_start_idx
    return pipe.tokenizer(text, max_length=limit, truncation=True).input_ids


@contextlib.contextmanager
def exact_sums():
    """Linear layers and convolutions sum in float64: what is left of another summation order."""

    def linear(self, x):
        bias = None if self.bias is None else self.bias.double()
        return F.linear(x.double(), self.weight.double(), bias).to(x.dtype)

    def convolution(function):
        def forward(self, x, weight, bias):
            bias = None if bias is None else bias.double()
            y = function(x.double(), weight.double(), bias, self.stride, self.padding)
            return y.to(x.dtype)

        return forward

    with (
        mock.patch.object(torch.nn.Linear, "forward", linear),
        mock.patch.object(torch.nn.Conv2d, "_conv_forward", convolution(F.conv2d)),
        mock.patch.object(torch.nn.Conv3d, "_conv_forward", convolution(F.conv3d)),
    ):
        yield


@torch.inference_mode()
def embed(pipe, prompt):
    """[rows, width] text rows the transformer sees, in the pipeline's dtype."""
    embeds, _ = pipe.encode_prompt(prompt, max_sequence_length=MAX_ROWS)
    return embeds[0]


@torch.inference_mode()
def velocity(pipe, latents, embeds, timestep, grid):
    """One transformer forward of one sequence: [rows, channels] of `latents`' dtype.

    timestep: the value in 0..1 the transformer is fed. grid: (height, width) in packed rows.
    """
    output = pipe.transformer(
        hidden_states=latents[None],
        timestep=torch.tensor([timestep], dtype=latents.dtype),
        encoder_hidden_states=embeds[None],
        encoder_hidden_states_mask=None,
        img_shapes=[[(1, *grid)]],
        return_dict=False,
    )
    return output[0][0]


def schedule(pipe, steps, width, height):
    """(sigmas [steps + 1], timesteps [steps]) as the pipeline sets them."""
    from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

    config = pipe.scheduler.config
    mu = calculate_shift(
        (height // 16) * (width // 16),
        config.get("base_image_seq_len", 256),
        config.get("max_image_seq_len", 4096),
        config.get("base_shift", 0.5),
        config.get("max_shift", 1.15),
    )
    sigmas = np.linspace(1.0, 1 / steps, steps)
    pipe.scheduler.set_timesteps(steps, sigmas=sigmas, mu=mu)
    return pipe.scheduler.sigmas.clone(), pipe.scheduler.timesteps.clone()


def fed_timesteps(timesteps, dtype):
    """What the pipeline hands the transformer: cast to the latents' dtype, then divided by 1000."""
    return torch.stack([t.expand(1).to(dtype) / 1000 for t in timesteps])[:, 0]


@torch.inference_mode()
def decode(pipe, latents, width, height):
    """Packed latents [rows, channels] to (image [3, height, width] in [-1, 1], uint8 pixels)."""
    dtype = pipe.vae.dtype
    z = pipe._unpack_latents(latents[None], height, width, pipe.vae_scale_factor).to(dtype)
    shape = (1, pipe.vae.config.z_dim, 1, 1, 1)
    mean = torch.tensor(pipe.vae.config.latents_mean).view(shape).to(z.device, dtype)
    std = 1.0 / torch.tensor(pipe.vae.config.latents_std).view(shape).to(z.device, dtype)
    image = pipe.vae.decode(z / std + mean, return_dict=False)[0][:, :, 0]
    pixels = np.array(pipe.image_processor.postprocess(image, output_type="pil")[0])
    return image[0], pixels


@torch.inference_mode()
def run(pipe, request, keep_steps):
    """Runs the pipeline on `request`; returns a dict of recorded tensors.

    request: prompt, negative_prompt (None: no second branch), width, height, steps, guidance,
    latents [rows, channels]. keep_steps: indices of the steps whose tensors are recorded:
    `step.I.latents` (after the step), `step.I.timestep` (as fed), `step.I.cond`, `step.I.uncond`
    (the two velocities) and `step.I.input` (latents before the step).
    """
    kept = {}
    calls = []

    def after_forward(module, args, kwargs, output):
        calls.append((kwargs["hidden_states"][0], kwargs["timestep"], output[0][0]))

    def after_step(pipeline, step, timestep, tensors):
        if step in keep_steps:
            kept[f"step.{step}.latents"] = tensors["latents"][0].clone()
            kept[f"step.{step}.input"] = calls[0][0].clone()
            kept[f"step.{step}.timestep"] = calls[0][1].clone()
            for name, call in zip(("cond", "uncond"), calls):
                kept[f"step.{step}.{name}"] = call[2].clone()
        kept["forwards_per_step"] = len(calls)
        calls.clear()
        return {}

    hook = pipe.transformer.register_forward_hook(after_forward, with_kwargs=True)
    try:
        latents = pipe(
            prompt=request["prompt"],
            negative_prompt=request["negative_prompt"],
            true_cfg_scale=request["guidance"],
            width=request["width"],
            height=request["height"],
            num_inference_steps=request["steps"],
            latents=request["latents"][None],
            max_sequence_length=MAX_ROWS,
            output_type="latent",
            callback_on_step_end=after_step,
        ).images[0]
    finally:
        hook.remove()
    kept["latents"] = latents
    kept["image"], kept["pixels"] = decode(pipe, latents, request["width"], request["height"])
    return kept
