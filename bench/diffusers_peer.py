"""The reference's own speed: diffusers' pipe(...) on the CPU, as JSON on standard output.

    python bench/diffusers_peer.py --model models/emoji --size 128x128 --steps 20 --guidance 4 \
        --threads 2 --warmup 1 --runs 3

Needs tools/make_goldens/requirements.txt. `load_s` (imports apart) is no part of a run. A run is
one call of the pipeline, PIL picture included; its stages are timed around encode_prompt and
vae.decode, and denoising is the rest of the call.
"""

import argparse
import json
import os
import platform
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="red apple")
    parser.add_argument("--negative-prompt", default=" ")
    parser.add_argument("--size", default="128x128", help="WIDTHxHEIGHT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--warmup", type=int, default=1, help="calls before the timed ones")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="print a line of JSON when warm, then one for a run after each line read",
    )
    parser.add_argument("--output", help="write the last picture here")
    return parser.parse_args()


class StageTimer:
    """Adds up the time spent in a method of an object."""

    def __init__(self, owner, name):
        self.seconds = 0.0
        inner = getattr(owner, name)

        def timed(*args, **kwargs):
            begin = time.perf_counter()
            result = inner(*args, **kwargs)
            self.seconds += time.perf_counter() - begin
            return result

        setattr(owner, name, timed)

    def take(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def serve(setup, run):
    """A run after each line of standard input, so that a benchmark can alternate with its own."""
    print(json.dumps(setup), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()[1]), flush=True)


def main():
    arguments = parse()
    width, height = (int(part) for part in arguments.size.split("x"))
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    begin = time.perf_counter()
    import diffusers
    import torch
    import transformers

    import_s = time.perf_counter() - begin
    torch.set_num_threads(arguments.threads)
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    dtype = getattr(torch, arguments.dtype)
    begin = time.perf_counter()
    pipe = diffusers.QwenImagePipeline.from_pretrained(arguments.model, dtype=dtype)
    load_s = time.perf_counter() - begin
    pipe.set_progress_bar_config(disable=True)
    encode = StageTimer(pipe, "encode_prompt")
    decode = StageTimer(pipe.vae, "decode")

    def run():
        generator = torch.Generator().manual_seed(arguments.seed)
        begin = time.perf_counter()
        image = pipe(
            prompt=arguments.prompt,
            negative_prompt=arguments.negative_prompt,
            true_cfg_scale=arguments.guidance,
            width=width,
            height=height,
            num_inference_steps=arguments.steps,
            generator=generator,
        ).images[0]
        total = time.perf_counter() - begin
        stages = {"encode_s": encode.take(), "decode_s": decode.take()}
        stages["denoise_s"] = total - sum(stages.values())
        return image, {"total_s": total, **stages}

    setup = {
        "peer": "diffusers",
        "model": arguments.model,
        "size": arguments.size,
        "steps": arguments.steps,
        "guidance": arguments.guidance,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "import_s": import_s,
        "load_s": load_s,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
        },
    }
    for _ in range(arguments.warmup):
        run()
    if arguments.interactive:
        serve(setup, run)
        return

    timed = [run() for _ in range(arguments.runs)]
    if arguments.output:
        timed[-1][0].save(arguments.output)
    runs = [times for _, times in timed]
    best = {key: min(times[key] for times in runs) for key in runs[0]}
    json.dump({**setup, "best": best, "runs": runs}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
