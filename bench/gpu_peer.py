"""A peer of a GPU benchmark: a network of the reference with random weights, in its own process.

    python bench/gpu_peer.py transformer --width 1024 --height 1024 --text 64
    python bench/gpu_peer.py text --tokens 98 --mode eager
    python bench/gpu_peer.py vae --width 1024 --height 1024

Prints a line of JSON when it is warm: `peer`, `version`, `form` (how it runs), `ready_s` and
`memory_gib`. Then every line it reads is a number of seconds, for which it runs back to back, at
least once; the answer is a line of JSON with the microseconds of each call, `us`. Between a line
and the next it leaves the GPU alone. An error is a line with `error`, and the end.

Sizes are those of the configurations in --config, weights random with the distribution of
`segue --random-weights`. Compiled by torch.compile and recorded in a CUDA graph, unless --mode says
otherwise. Of several ways to run the same the fastest is taken, and `form` names it. With
--device cpu (small configurations) nothing is recorded.
"""

import argparse
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

SEED = 12
GUIDANCE = 4.0
STEP_WIDTH = -0.015625


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("network", choices=["transformer", "text", "vae"])
    parser.add_argument("--config", type=Path, default=Path("models/qwen_image"))
    parser.add_argument("--width", type=int, default=1024, help="of the picture")
    parser.add_argument("--height", type=int, default=1024)
    parser.add_argument("--text", type=int, default=64, help="text rows of each prompt")
    parser.add_argument("--tokens", type=int, default=98, help="of the text encoder's prompt")
    parser.add_argument("--layers", type=int, help="of the transformer; default: the config's")
    parser.add_argument("--step", action="store_true", help="both branches, guidance, Euler step")
    parser.add_argument(
        "--mode",
        default="default",
        choices=["eager", "default", "max-autotune-no-cudagraphs"],
        help="of torch.compile; eager: neither compiled nor recorded",
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    return parser.parse_args()


def read_config(directory):
    config = json.loads((directory / "config.json").read_text())
    return {key: value for key, value in config.items() if not key.startswith("_")}


def build(arguments, make):
    """A module on the device in the dtype, filled with random weights."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, arguments.dtype))
    try:
        with torch.device(arguments.device):
            module = make()
    finally:
        torch.set_default_dtype(previous)
    module.eval().requires_grad_(False)
    generator = torch.Generator(arguments.device).manual_seed(SEED)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0, 0.02, generator=generator)
        elif parameter.dim() == 1 or name.endswith("gamma"):
            parameter.normal_(1, 0.05, generator=generator)
        else:
            fan_in = parameter.numel() // parameter.shape[0]
            parameter.normal_(0, 1 / math.sqrt(fan_in), generator=generator)
    return module


def normal(arguments, *shape):
    generator = torch.Generator(arguments.device).manual_seed(SEED + math.prod(shape))
    dtype = getattr(torch, arguments.dtype)
    return torch.randn(shape, generator=generator, device=arguments.device, dtype=dtype)


class Timer:
    """Microseconds of calls, back to back."""

    def __init__(self, device):
        self.cuda = torch.device(device).type == "cuda"

    def calls(self, call, count):
        if not self.cuda:
            marks = [time.perf_counter()]
            for _ in range(count):
                call()
                marks.append(time.perf_counter())
            return [1e6 * (after - before) for before, after in zip(marks, marks[1:])]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        torch.cuda.synchronize()
        return [1e3 * before.elapsed_time(after) for before, after in zip(events, events[1:])]

    def block(self, call, seconds, estimate_us):
        """Calls for so many seconds; more of them where the estimate was too high."""
        samples = []
        while not samples or sum(samples) < 1e6 * seconds:
            left_us = 1e6 * seconds - sum(samples)
            samples += self.calls(call, max(1, math.ceil(left_us / max(estimate_us, 1.0))))
            estimate_us = sum(samples) / len(samples)
        return samples


def record(call, arguments):
    """(the call in a CUDA graph, "CUDA graph"), or (the call itself, why not)."""
    if not arguments.device.startswith("cuda"):
        return call, "no CUDA graph on a CPU"
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = call()
    except RuntimeError as error:
        torch.cuda.synchronize()
        return call, "not recorded: " + str(error).split("\n")[0]
    # What the graph writes must not be freed.
    return lambda: (graph.replay(), kept)[0], "CUDA graph"


def prepared(call, form, arguments):
    """(call, form) that is warm and, unless eager, recorded."""
    for _ in range(2):
        call()
    if arguments.mode == "eager":
        return call, form + "eager"
    call, recorded = record(call, arguments)
    return call, f"{form}compiled, {recorded}"


def fastest(candidates, timer):
    """The candidate (call, form) with the least median of a tenth of a second, and its time."""
    best = None
    for call, form in candidates:
        first_us = timer.calls(call, 2)[-1]
        samples = sorted(timer.block(call, 0.1, first_us))
        median_us = samples[len(samples) // 2]
        print(f"peer: {form}: {median_us:.0f} us", file=sys.stderr)
        if best is None or median_us < best[2]:
            best = (call, form, median_us)
    return best


def choose_attention(rows, heads, head_dim, arguments, timer):
    """Leaves only the fastest of torch's attentions for these rows switched on; its name."""
    if not timer.cuda:
        return ""
    q, k, v = (normal(arguments, 1, heads, rows, head_dim) for _ in range(3))
    switches = {
        "flash": torch.backends.cuda.enable_flash_sdp,
        "cuDNN": torch.backends.cuda.enable_cudnn_sdp,
    }
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)

    def only(chosen):
        for name, switch in switches.items():
            switch(name == chosen)

    def attend():
        return F.scaled_dot_product_attention(q, k, v)

    candidates = []
    for name in switches:
        only(name)
        try:
            attend()
        except RuntimeError:
            continue

        def call(name=name):
            only(name)
            attend()

        candidates.append((call, name))
    chosen = fastest(candidates, timer)[1]
    only(chosen)
    return f"{chosen} attention, "


def guided_step(latents, prompt, negative):
    """Guidance with the prompt's norm, and the Euler step, as the pipeline does them."""
    combined = negative + GUIDANCE * (prompt - negative)
    prompt_norm = torch.norm(prompt, dim=-1, keepdim=True)
    combined_norm = torch.norm(combined, dim=-1, keepdim=True)
    velocity = combined * (prompt_norm / combined_norm)
    return (latents.float() + STEP_WIDTH * velocity).to(latents.dtype)


def transformer_candidates(arguments, timer):
    from diffusers import QwenImageTransformer2DModel

    config = read_config(arguments.config / "transformer")
    if arguments.layers:
        config["num_layers"] = arguments.layers
    grid = (arguments.height // 16, arguments.width // 16)
    heads, head_dim = config["num_attention_heads"], config["attention_head_dim"]
    rows = grid[0] * grid[1]
    attention = choose_attention(rows + arguments.text, heads, head_dim, arguments, timer)
    model = build(arguments, lambda: QwenImageTransformer2DModel.from_config(config))
    if arguments.mode != "eager":
        mode = None if arguments.mode == "default" else arguments.mode
        model.compile_repeated_blocks(fullgraph=True, dynamic=False, mode=mode)
    latents = normal(arguments, 1, rows, config["in_channels"])
    embeddings = [
        normal(arguments, 1, arguments.text, config["joint_attention_dim"]) for _ in range(2)
    ]
    timestep = torch.full((1,), 0.5, device=arguments.device, dtype=latents.dtype)

    def forward(text):
        batch = text.shape[0]
        return model(
            hidden_states=latents.expand(batch, -1, -1),
            timestep=timestep.expand(batch),
            encoder_hidden_states=text,
            encoder_hidden_states_mask=None,
            img_shapes=[[(1, *grid)]] * batch,
            return_dict=False,
        )[0]

    def one_by_one():
        return guided_step(latents, forward(embeddings[0]), forward(embeddings[1]))

    both = torch.cat(embeddings)

    def together():
        prompt, negative = forward(both).chunk(2)
        return guided_step(latents, prompt, negative)

    if not arguments.step:
        return [prepared(lambda: forward(embeddings[0]), attention, arguments)]
    return [
        prepared(one_by_one, attention + "two forwards, ", arguments),
        prepared(together, attention + "a batch of two, ", arguments),
    ]


def text_candidates(arguments, timer):
    from transformers import Qwen2_5_VLConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

    path = arguments.config / "text_encoder" / "config.json"
    config = Qwen2_5_VLConfig.from_dict(json.loads(path.read_text())).text_config
    config._attn_implementation = "sdpa"
    model = build(arguments, lambda: Qwen2_5_VLTextModel(config))
    ids = torch.arange(arguments.tokens, device=arguments.device)[None] % config.vocab_size
    positions = torch.arange(arguments.tokens, device=arguments.device).expand(3, 1, -1)
    if arguments.mode != "eager":
        for layer in model.layers:
            layer.compile(mode=arguments.mode, dynamic=False)

    def call():
        return model(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state

    return [prepared(call, "", arguments)]


def channels_last(module):
    for parameter in module.parameters():
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if parameter.dim() in formats:
            parameter.data = parameter.data.to(memory_format=formats[parameter.dim()])


def vae_candidates(arguments, timer):
    from diffusers import AutoencoderKLQwenImage

    torch.backends.cudnn.benchmark = True  # the fastest algorithm of every convolution
    config = read_config(arguments.config / "vae")
    shape = (1, config["z_dim"], 1, arguments.height // 8, arguments.width // 8)

    def candidate(strided):
        # A network each: a recorded graph holds the addresses of its weights.
        vae = build(arguments, lambda: AutoencoderKLQwenImage.from_config(config))
        vae.clear_cache()
        convolutions = vae._conv_num
        latents = normal(arguments, *shape)
        if strided:
            channels_last(vae)
            latents = latents.to(memory_format=torch.channels_last_3d)

        def decode(z):
            # vae.decode of one frame: with the lists of its cache made here, nothing is kept.
            x = vae.post_quant_conv(z)
            x = vae.decoder(x, feat_cache=[None] * convolutions, feat_idx=[0])
            return torch.clamp(x, min=-1.0, max=1.0)

        form = "channels last, " if strided else ""
        if arguments.mode != "eager":
            decode = torch.compile(decode, mode=arguments.mode, dynamic=False)
        return prepared(lambda: decode(latents), form, arguments)

    return [candidate(False), candidate(True)]


def versions(network):
    import diffusers
    import transformers

    module = transformers if network == "text" else diffusers
    return module.__name__, f"{module.__version__}, torch {torch.__version__}"


def main():
    arguments = parse()
    # Whatever else prints goes to stderr: the answers have standard output for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values):
        print(json.dumps(values), file=answers, flush=True)

    try:
        serve(arguments, answer)
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}".split("\n")[0])
        raise


@torch.inference_mode()
def serve(arguments, answer):
    begin = time.perf_counter()
    warnings.filterwarnings("ignore")
    timer = Timer(arguments.device)
    makers = {"transformer": transformer_candidates, "text": text_candidates, "vae": vae_candidates}
    candidates = makers[arguments.network](arguments, timer)
    call, form, call_us = fastest(candidates, timer)
    peer, version = versions(arguments.network)
    answer(
        peer=peer,
        version=version,
        form=form,
        ready_s=time.perf_counter() - begin,
        memory_gib=torch.cuda.max_memory_allocated() / 2**30 if timer.cuda else 0.0,
    )
    for line in sys.stdin:
        answer(us=timer.block(call, float(line), call_us))


if __name__ == "__main__":
    main()
