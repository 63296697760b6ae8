"""Is our bfloat16 as near to exact arithmetic as the reference's on the same GPU?

    python tools/accuracy/accuracy.py --segue build/segue --json accuracy.json

Every stage of ours gets its input from a run of ours (`segue generate --dump`), and diffusers the
same input twice: in bfloat16 on the same device, and exactly. The root mean square of our errors
over all inputs, divided by that of diffusers' bfloat16, must not exceed --limit. Stages:

- text encoder, transformer at several sigmas and picture decoder of the emoji model, eight prompts
  and sizes, against float32 on the CPU;
- one block and two blocks of Qwen-Image's size (--block) with random weights, between the layers
  around them, eight seeds, against float64 on the device.

Exit status: 0 within the limit, 1 not. Needs tools/make_goldens/requirements.txt. With --device cpu
ours is the engine's bfloat16 mode.
"""

import argparse
import contextlib
import inspect
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "make_goldens"))
import random_weights  # noqa: E402
import reference  # noqa: E402

# Prompt, size, seed.
INPUTS = [
    ("red apple", "128x128", 1),
    ("cat face", "96x96", 2),
    ("rocket", "128x96", 3),
    ("grinning face with smiling eyes", "64x64", 4),
    ("snowflake", "128x128", 5),
    ("woman astronaut", "96x96", 6),
    ("flag: Japan", "128x96", 7),
    ("octopus", "128x128", 8),
]
STEPS = 20
CHECKED_STEPS = (0, 5, 10, 15, 19)
BLOCK_SEED = 12


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--segue", type=Path, default=Path("build/segue"))
    parser.add_argument("--model", type=Path, default=Path("models/emoji"))
    parser.add_argument("--block", type=Path, default=Path("models/qwen_image"))
    parser.add_argument("--block-size", default="512x512", help="of the block's picture")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=1.1)
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser.parse_args()


class Errors:
    """Of one stage: squares of ours and of the peer's distance from the exact result."""

    def __init__(self, stage, exact):
        self.stage = stage
        self.exact = exact  # "float32", "float64"
        self.elements = 0
        self.squares = {"ours": 0.0, "peer": 0.0, "exact": 0.0}
        self.ratios = []

    def add(self, ours, peer, exact):
        exact = exact.double().cpu()
        parts = {"ours": ours.double().cpu() - exact, "peer": peer.double().cpu() - exact}
        assert parts["ours"].shape == parts["peer"].shape == exact.shape, self.stage
        squares = {name: float(part.square().sum()) for name, part in parts.items()}
        squares["exact"] = float(exact.square().sum())
        # What is no number would pass every comparison below.
        assert all(math.isfinite(value) for value in squares.values()), self.stage
        self.elements += exact.numel()
        for name, value in squares.items():
            self.squares[name] += value
        self.ratios.append(self.ratio_of(squares))

    @staticmethod
    def ratio_of(squares):
        if squares["peer"] == 0:
            return 0.0 if squares["ours"] == 0 else math.inf
        return math.sqrt(squares["ours"] / squares["peer"])

    def result(self, limit):
        rms = {name: math.sqrt(value / self.elements) for name, value in self.squares.items()}
        ratio = self.ratio_of(self.squares)
        return {
            "stage": self.stage,
            "exact": self.exact,
            "results": len(self.ratios),
            "rms": rms["exact"],
            "our_rms_error": rms["ours"],
            "peer_rms_error": rms["peer"],
            "ratio": ratio,
            "largest_ratio_of_one": max(self.ratios),
            "within": ratio <= limit,
        }


def generate(arguments, model, dump, **options):
    """Dumps of the pictures that these options make, by seed."""
    command = [str(arguments.segue), "generate", "--quiet", "--model", str(model)]
    command += ["--dump", str(dump), "--output", str(dump / "{seed}.png")]
    command += ["--device", arguments.device] if arguments.device != "cpu" else ["--bf16"]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    dump.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [load_file(path) for path in sorted(dump.glob("*.safetensors"))]


def fed_timestep(dump, step):
    """What the transformer is fed in bfloat16, as a number."""
    return float(reference.fed_timesteps(dump["timesteps"], torch.bfloat16)[step])


@torch.inference_mode()
def velocity(transformer, latents, embeddings, timestep, grid):
    device, dtype = transformer.device, transformer.dtype
    return transformer(
        hidden_states=latents[None].to(device, dtype),
        timestep=torch.tensor([timestep], device=device, dtype=dtype),
        encoder_hidden_states=embeddings[None].to(device, dtype),
        encoder_hidden_states_mask=None,
        img_shapes=[[(1, *grid)]],
        return_dict=False,
    )[0][0]


@torch.inference_mode()
def embeddings(pipe, ids, rows):
    ids = ids.long()[None].to(pipe.text_encoder.device)
    output = pipe.text_encoder(
        input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
    )
    return output.hidden_states[-1][0, -rows:]


def latents_before(dump, step):
    return dump["noise"] if step == 0 else dump[f"step.{step - 1:03d}.latents"]


def check_emoji(arguments, scratch):
    exact = reference.load(arguments.model, torch.float32)
    peer = reference.load(arguments.model, torch.bfloat16)
    peer.to(arguments.device)
    text = Errors("emoji text encoder", "float32")
    forward = Errors("emoji transformer", "float32")
    decoder = Errors("emoji picture decoder", "float32")
    for number, (prompt, size, seed) in enumerate(INPUTS):
        width, height = (int(side) for side in size.split("x"))
        grid = (height // 16, width // 16)
        options = {"prompt": prompt, "size": size, "seed": seed, "steps": STEPS, "guidance": 4}
        (dump,) = generate(arguments, arguments.model, scratch / str(number), **options)
        for branch in ("prompt", "negative"):
            ours = dump[f"{branch}.embeddings"]
            ids = dump[f"{branch}.ids"]
            rows = ours.shape[0]
            text.add(ours, embeddings(peer, ids, rows), embeddings(exact, ids, rows))
            for step in CHECKED_STEPS:
                given = (latents_before(dump, step), ours, fed_timestep(dump, step), grid)
                forward.add(
                    dump[f"step.{step:03d}.velocity.{branch}"],
                    velocity(peer.transformer, *given),
                    velocity(exact.transformer, *given),
                )
        final = dump["final_latents"]
        decoded = [
            reference.decode(pipe, final.to(pipe.vae.device), width, height)[0].permute(1, 2, 0)
            for pipe in (peer, exact)
        ]
        decoder.add(dump["image"], *decoded)
    return [text, forward, decoder]


def write_block_model(arguments, directory, layers):
    """Configurations of the network with so many blocks, and the least of the others."""
    for component in ("transformer", "text_encoder", "vae", "scheduler"):
        shutil.copytree(
            arguments.block / component,
            directory / component,
            ignore=shutil.ignore_patterns("*.safetensors*"),
        )
    shutil.copy(arguments.block / "model_index.json", directory)
    shutil.copytree(arguments.model / "tokenizer", directory / "tokenizer")
    for component, key, value in (
        ("transformer", "num_layers", layers),
        ("text_encoder", "num_hidden_layers", 1),
    ):
        path = directory / component / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))


def random_transformer(directory, device):
    """Two of them, in bfloat16 and in float64, with the engine's random weights."""
    from diffusers import QwenImageTransformer2DModel

    config = json.loads((directory / "transformer" / "config.json").read_text())
    # Published configurations have entries that the class no longer knows.
    known = inspect.signature(QwenImageTransformer2DModel.__init__).parameters
    config = {key: value for key, value in config.items() if key in known}
    with torch.device("meta"):
        model = QwenImageTransformer2DModel(**config)
    # The rotation's tables are no parameters: made anew where there is memory behind them.
    model.pos_embed = type(model.pos_embed)(10000, config["axes_dims_rope"], scale_rope=True)
    weights = {
        name: random_weights.tensor(BLOCK_SEED, f"transformer.{name}", weight.shape, device)
        for name, weight in model.named_parameters()
    }
    model.load_state_dict(weights, assign=True)
    model.eval().requires_grad_(False)
    with torch.device("meta"):
        exact = QwenImageTransformer2DModel(**config)
    exact.pos_embed = model.pos_embed
    exact.load_state_dict({name: w.double() for name, w in weights.items()}, assign=True)
    return model, exact.eval().requires_grad_(False)


@contextlib.contextmanager
def exact_rotation():
    """diffusers rotates in float32 whatever the dtype."""
    from diffusers.models.transformers import transformer_qwenimage as module

    inner = module.apply_rotary_emb_qwen

    def rotate(x, freqs, use_real=False):
        assert not use_real
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs.to(torch.complex128).unsqueeze(1)).flatten(3)

    module.apply_rotary_emb_qwen = rotate
    try:
        yield
    finally:
        module.apply_rotary_emb_qwen = inner


def check_block(arguments, scratch, layers):
    width, height = (int(side) for side in arguments.block_size.split("x"))
    grid = (height // 16, width // 16)
    directory = scratch / f"block-{layers}"
    directory.mkdir()
    write_block_model(arguments, directory, layers)
    peer, exact = random_transformer(directory, arguments.device)
    name = "one block" if layers == 1 else f"{layers} blocks"
    errors = Errors(f"{arguments.block.name} transformer, {name}", "float64")
    options = {"prompt": "a red apple on a blue table", "size": arguments.block_size, "n": 8}
    options |= {"seed": 1, "steps": 2, "guidance": 1, "random_weights": BLOCK_SEED}
    for dump in generate(arguments, directory, scratch / f"dump-{layers}", **options):
        for step in range(2):
            given = (
                latents_before(dump, step),
                dump["prompt.embeddings"],
                fed_timestep(dump, step),
                grid,
            )
            ours = dump[f"step.{step:03d}.velocity.prompt"]
            peers = velocity(peer, *given)
            with exact_rotation():
                errors.add(ours, peers, velocity(exact, *given))
    return errors


def table(stages):
    lines = [f"{'stage':<44}{'exact':<9}{'ours':>10}{'peer':>10}{'ratio':>8}{'largest':>9}"]
    for stage in stages:
        lines.append(
            f"{stage['stage']:<44}{stage['exact']:<9}{stage['our_rms_error']:>10.3g}"
            f"{stage['peer_rms_error']:>10.3g}{stage['ratio']:>8.3f}"
            f"{stage['largest_ratio_of_one']:>9.3f}{'' if stage['within'] else '  TOO FAR'}"
        )
    return "\n".join(lines)


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        errors = check_emoji(arguments, scratch)
        errors += [check_block(arguments, scratch, layers) for layers in (1, 2)]
    stages = [error.result(arguments.limit) for error in errors]
    within = all(stage["within"] for stage in stages)
    cuda = arguments.device.startswith("cuda")
    device = torch.cuda.get_device_name(arguments.device) if cuda else arguments.device
    result = {"device": device, "limit": arguments.limit, "within": within, "stages": stages}
    print(table(stages))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
