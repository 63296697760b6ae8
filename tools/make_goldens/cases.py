"""What is recorded: the cases of each golden file (docs/parity.md lists the tensors)."""

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import golden_files
import noise
import reference
import token_strings

SIZES = [(16, 16), (64, 64), (128, 96), (128, 128), (80, 48), (1024, 1024), (1328, 1328),
         (1664, 928)]
STEPS = [2, 4, 8, 20, 50]
KEPT_STEPS = (0, 9, 19)


def write_strings(out):
    golden_files.write(
        out / "strings.safetensors", golden_files.text_lists(token_strings.all_strings(), "text")
    )


def write_tokens(pipe, out):
    """Ids of every string; and of some of them within the template, as the encoder gets them."""
    strings = token_strings.all_strings()
    ids = [pipe.tokenizer(text).input_ids for text in strings]
    prefix = pipe.tokenizer(pipe.prompt_template_encode.split("{}")[0]).input_ids
    suffix = pipe.tokenizer(pipe.prompt_template_encode.split("{}")[1]).input_ids
    assert (len(prefix), len(suffix)) == (34, 5)
    chosen, templated = [], []
    for number, text in enumerate(strings):
        whole = reference.prompt_ids(pipe, text)
        # All where the template's ends change the ids or the limit cuts, and some others.
        if number < 100 or number % 10 == 0 or whole != prefix + ids[number] + suffix:
            chosen.append(number)
            templated.append(whole)
    print(f"{len(chosen)} strings within the template")
    tensors = {**golden_files.int_lists(ids, "ids"),
               **golden_files.int_lists(templated, "prompt_ids"),
               "prompt_strings": chosen}
    golden_files.write(out / "tokens.safetensors", tensors)


def write_schedule(pipe, out):
    """Sigmas, timesteps and what the transformer is fed, in both dtypes."""
    tensors = {"sizes": np.array(SIZES, dtype=np.int32), "steps": STEPS}
    for width, height in SIZES:
        for steps in STEPS:
            name = f"{width}x{height}.{steps}"
            sigmas, timesteps = reference.schedule(pipe, steps, width, height)
            tensors[f"{name}.sigmas"] = sigmas
            tensors[f"{name}.timesteps"] = timesteps
            tensors[f"{name}.fed"] = reference.fed_timesteps(timesteps, torch.float32)
            tensors[f"{name}.fed_bf16"] = reference.fed_timesteps(timesteps, torch.bfloat16)
    golden_files.write(out / "schedule.safetensors", tensors)


def write_text(pipe, out, checksum, prompts, row_step):
    """Text rows of `prompts`; of long ones every row_step-th row and the last."""
    tensors = {"weights": checksum, **golden_files.text_lists(prompts, "prompts")}
    for number, prompt in enumerate(prompts):
        embeds = reference.embed(pipe, prompt)
        rows = list(range(len(embeds)))
        if len(rows) > 100:
            rows = sorted(set(rows[::row_step] + rows[-1:]))
        tensors[f"{number}.count"] = len(embeds)
        tensors[f"{number}.rows"] = rows
        tensors[f"{number}.embeds"] = embeds[rows]
    golden_files.write(out / "text.safetensors", tensors)


def sequence_inputs(pipe, case, dtype):
    """Latents, text rows and grid of a case, from the shared noise streams."""
    height, width = case["grid"]
    channels = pipe.transformer.config.in_channels
    text_width = pipe.transformer.config.joint_attention_dim
    latents = noise.uniform(case["seed"], (height * width, channels))
    text = noise.uniform(case["seed"] + 1, (case["text_rows"], text_width))
    return torch.from_numpy(latents).to(dtype), torch.from_numpy(text).to(dtype)


def write_case(tensors, prefix, case, timestep):
    for key in ("grid", "text_rows", "seed"):
        tensors[f"{prefix}.{key}"] = case[key]
    tensors[f"{prefix}.timestep"] = float(timestep)


def run_noise(pipe, request):
    """Normal noise of a run: [rows, channels]."""
    rows = (request["width"] // 16) * (request["height"] // 16)
    generator = torch.Generator().manual_seed(request["seed"])
    return torch.randn((rows, pipe.transformer.config.in_channels), generator=generator)


def write_transformer(pipe, out, checksum, batches, name):
    """Velocities of sequences that the engine runs together in one packed forward each."""
    tensors = {"weights": checksum, "batches": len(batches)}
    dtype = pipe.transformer.dtype
    for b, batch in enumerate(batches):
        tensors[f"{b}.sequences"] = len(batch)
        for s, case in enumerate(batch):
            latents, text = sequence_inputs(pipe, case, dtype)
            output = reference.velocity(pipe, latents, text, case["timestep"], case["grid"])
            prefix = f"{b}.{s}"
            write_case(tensors, prefix, case, case["timestep"])
            tensors[f"{prefix}.velocity"] = output
    golden_files.write(out / f"{name}.safetensors", tensors)


def write_runs(pipe, out, checksum, requests, image_of=()):
    """Whole runs: noise, latents after some steps with the velocities there, pixels."""
    tensors = {"weights": checksum, "requests": len(requests)}
    tensors.update(golden_files.text_lists([r["prompt"] for r in requests], "prompts"))
    tensors.update(
        golden_files.text_lists([r["negative_prompt"] or "" for r in requests], "negatives")
    )
    for number, request in enumerate(requests):
        latents = run_noise(pipe, request)
        keep = [s for s in request["keep"] if s < request["steps"]]
        kept = reference.run(pipe, {**request, "latents": latents}, keep)
        prefix = f"{number}"
        tensors[f"{prefix}.size"] = (request["width"], request["height"])
        tensors[f"{prefix}.steps"] = request["steps"]
        tensors[f"{prefix}.guidance"] = float(request["guidance"])
        tensors[f"{prefix}.forwards"] = kept.pop("forwards_per_step")
        tensors[f"{prefix}.kept"] = keep
        tensors[f"{prefix}.noise"] = latents
        image = kept.pop("image")
        if number in image_of:
            tensors[f"{prefix}.image"] = image
        for key, value in kept.items():
            tensors[f"{prefix}.{key}"] = value
    golden_files.write(out / "runs.safetensors", tensors)


def relative(a, b):
    """L2 norm of the difference over that of b."""
    return float((a.float() - b.float()).norm() / b.float().norm())


SHORT = 32


@torch.inference_mode()
def write_short_bf16(pipe, tensors, with_text):
    """Sequences so short that most of their rows meet no rounding boundary at all.

    Then a mode that rounds where the reference does agrees bit for bit in most rows, and one that
    rounds anywhere else in none. `X.equal` is the share of rows in which the reference with
    exact sums agrees with itself. `short.text` are the hidden states of four ids each (no
    template), `short.velocity` the velocities of two image rows beside two text rows.
    """
    rng = np.random.Generator(np.random.PCG64(20260104))
    ids = rng.integers(0, len(pipe.tokenizer), (SHORT, 4))
    timesteps = torch.from_numpy(rng.uniform(0.02, 1.0, SHORT)).bfloat16()

    def states():
        rows = []
        for i in range(SHORT):
            row = torch.from_numpy(ids[i : i + 1])
            outputs = pipe.text_encoder(
                input_ids=row, attention_mask=torch.ones_like(row), output_hidden_states=True
            )
            rows.append(outputs.hidden_states[-1][0])
        return torch.cat(rows)

    def velocities():
        rows = []
        for i in range(SHORT):
            case = sequence((1, 2), 2, float(timesteps[i]), 1000 + 2 * i)
            latents, text = sequence_inputs(pipe, case, torch.bfloat16)
            rows.append(reference.velocity(pipe, latents, text, case["timestep"], (1, 2)))
        return torch.cat(rows)

    def record(name, call):
        with sdpa_kernel(SDPBackend.MATH):
            value = call()
            with reference.exact_sums():
                equal = (call() == value).all(dim=-1).float().mean()
        print(name, f"{equal:.3f} of the rows are equal with exact sums")
        tensors[name] = value
        tensors[f"{name}.equal"] = float(equal)

    tensors["short.seed"] = 1000
    tensors["short.timesteps"] = timesteps.float()
    record("short.velocity", velocities)
    if with_text:
        tensors["short.ids"] = ids.astype(np.int32)
        record("short.text", states)


def write_bf16(checkpoint, out, checksum, batches, prompts, image_request, run_request):
    """The same stages with the reference in bfloat16 (the checkpoint's weights are bfloat16
    wherever a stage is recorded).

    Attention is computed by the reference's "math" path: bfloat16 operands, float32 softmax and
    sums, one rounding of the result. (The default CPU path also rounds the softmax's numerators,
    as flash attention does; `X.flash` says how far that moves the result.) Of each stage
    `X.float32` is the distance to the float32 reference, and `X.order` the distance to the same
    reference with exact sums in its products: what another order of summation can change.
    """
    pipe = reference.load(checkpoint, torch.bfloat16)
    full = reference.load(checkpoint)
    tensors = {"weights": checksum, "batches": len(batches)}

    def record(name, call, float_call):
        with sdpa_kernel(SDPBackend.MATH):
            value = call()
            with reference.exact_sums():
                tensors[f"{name}.order"] = relative(call(), value)
        tensors[f"{name}.flash"] = relative(call(), value)
        tensors[f"{name}.float32"] = relative(float_call(), value)
        tensors[name] = value
        print(name, {k: f"{tensors[f'{name}.{k}']:.1e}" for k in ("order", "flash", "float32")})

    for b, batch in enumerate(batches):
        tensors[f"{b}.sequences"] = len(batch)
        for s, case in enumerate(batch):
            latents, text = sequence_inputs(pipe, case, torch.bfloat16)
            timestep = float(torch.tensor(case["timestep"], dtype=torch.bfloat16))
            prefix = f"{b}.{s}"
            write_case(tensors, prefix, case, timestep)
            record(
                f"{prefix}.velocity",
                lambda: reference.velocity(pipe, latents, text, timestep, case["grid"]),
                lambda: reference.velocity(
                    full, latents.float(), text.float(), timestep, case["grid"]
                ),
            )
    tensors.update(golden_files.text_lists(prompts, "prompts"))
    for number, prompt in enumerate(prompts):
        record(
            f"text.{number}",
            lambda: reference.embed(pipe, prompt),
            lambda: reference.embed(full, prompt),
        )
    write_short_bf16(pipe, tensors, with_text=bool(prompts))
    if image_request:
        latents = run_noise(pipe, image_request).bfloat16()
        size = (image_request["width"], image_request["height"])
        tensors["image.size"] = size
        tensors["image.latents"] = latents
        record(
            "image",
            lambda: reference.decode(pipe, latents, *size)[0],
            lambda: reference.decode(full, latents.float(), *size)[0],
        )
    latents = run_noise(pipe, run_request).bfloat16()
    with sdpa_kernel(SDPBackend.MATH):
        kept = reference.run(pipe, {**run_request, "latents": latents}, run_request["keep"])
    tensors["run.size"] = (run_request["width"], run_request["height"])
    tensors["run.steps"] = run_request["steps"]
    tensors["run.guidance"] = float(run_request["guidance"])
    tensors["run.kept"] = run_request["keep"]
    for step in run_request["keep"]:
        for name in ("input", "timestep", "cond", "uncond", "latents"):
            tensors[f"run.step.{step}.{name}"] = kept[f"step.{step}.{name}"]
    golden_files.write(out / "bf16.safetensors", tensors)


LONG_PROMPT = " ".join(
    f"{token_strings.WORDS[i * 7 % len(token_strings.WORDS)]} {i}," for i in range(400)
)
PROMPTS = [
    "",
    " ",
    "a cat",
    "red apple",
    "smiling face with heart-eyes",
    "一只猫 😀 e\u0301<|im_end|>\n",
    "\nleading newline",
    LONG_PROMPT,
]


def request(prompt, negative_prompt, size, steps, guidance, seed, keep=KEPT_STEPS):
    return dict(prompt=prompt, negative_prompt=negative_prompt, width=size[0], height=size[1],
                steps=steps, guidance=guidance, seed=seed, keep=keep)


def sequence(grid, text_rows, timestep, seed):
    return dict(grid=grid, text_rows=text_rows, timestep=timestep, seed=seed)


# Packed forwards of the tiny model. The grid 83x42 is 1328x672 pixels; 512 text rows are the
# pipeline's limit; one text row is less than any prompt gives.
TINY_BATCHES = [
    [sequence((83, 42), 1, 0.75, 100)],
    [
        sequence((3, 5), 5, 1.0, 102),
        sequence((1, 1), 512, 0.35, 104),
        sequence((7, 2), 33, 0.05, 106),
        sequence((1, 9), 1, 0.6123, 108),
    ],
    [sequence((16, 11), 512, 0.5, 110), sequence((2, 2), 5, 0.9, 112)],
]

BF16_BATCHES = [
    [
        sequence((16, 11), 40, 0.5, 110),
        sequence((3, 5), 5, 0.9, 112),
        sequence((7, 2), 1, 0.03, 114),
        sequence((31, 17), 300, 0.7, 116),
    ]
]


def write_tiny(checkpoint, out):
    checksum = golden_files.weights_checksum(checkpoint)
    pipe = reference.load(checkpoint)
    write_tokens(pipe, out)
    write_schedule(pipe, out)
    write_text(pipe, out, checksum, PROMPTS, row_step=1)
    write_transformer(pipe, out, checksum, TINY_BATCHES, "transformer")
    write_runs(
        pipe,
        out,
        checksum,
        [
            request("a cat", " ", (80, 48), 20, 4.0, 1),
            request("red apple", "", (48, 112), 8, 2.5, 2, keep=(0, 3, 7)),
            request(LONG_PROMPT, "blue", (16, 16), 4, 4.0, 3, keep=(0, 1, 3)),
            request("a dog", None, (96, 80), 4, 1.0, 4, keep=(0, 3)),
        ],
        image_of=(0, 1),
    )
    write_bf16(
        checkpoint,
        out,
        checksum,
        BF16_BATCHES,
        [],  # its text encoder and VAE hold values that bfloat16 does not
        None,
        request("a cat", " ", (80, 48), 4, 4.0, 120, keep=(0, 1, 2, 3)),
    )


def write_emoji(checkpoint, out):
    checksum = golden_files.weights_checksum(checkpoint)
    pipe = reference.load(checkpoint)
    write_tokens(pipe, out)
    write_schedule(pipe, out)
    write_text(pipe, out, checksum, PROMPTS, row_step=8)
    write_runs(
        pipe,
        out,
        checksum,
        [
            request("red apple", " ", (128, 128), 20, 4.0, 1),
            request("smiling face with heart-eyes", " ", (64, 64), 20, 4.0, 2),
            request("dog", "blue", (128, 96), 20, 4.0, 3),
            request("rocket", None, (96, 96), 20, 1.0, 4),
        ],
        image_of=(0,),
    )
    write_bf16(
        checkpoint,
        out,
        checksum,
        BF16_BATCHES,
        ["red apple", "smiling face with heart-eyes"],
        request(None, None, (32, 16), 1, 1.0, 121),
        request("red apple", " ", (64, 64), 4, 4.0, 122, keep=(0, 1, 2, 3)),
    )
