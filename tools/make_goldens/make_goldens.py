"""Makes tests/goldens from diffusers and transformers on the CPU.

    python make_goldens.py tiny             # checkpoint and goldens of the random tiny model
    python make_goldens.py emoji            # goldens of models/emoji
    python make_goldens.py all

The files do not change between runs on one machine; on another, last bits of float32 values may
differ (the tests' bounds are far above that).
"""

import argparse
from pathlib import Path

import torch

import cases
import tiny_checkpoint

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["tiny", "emoji", "all"])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/goldens")
    parser.add_argument("--emoji", type=Path, default=ROOT / "models/emoji")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep-tiny-checkpoint", action="store_true",
                        help="use the tiny checkpoint as it lies there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    cases.write_strings(arguments.out)
    if arguments.what in ("tiny", "all"):
        checkpoint = arguments.out / "tiny/model"
        if not arguments.keep_tiny_checkpoint:
            tiny_checkpoint.write(checkpoint)
        nested = arguments.out / "tiny/nested_text_config.json"
        tiny_checkpoint.write_nested_config(checkpoint, nested)
        cases.write_tiny(checkpoint, arguments.out / "tiny")
    if arguments.what in ("emoji", "all"):
        cases.write_emoji(arguments.emoji, arguments.out / "emoji")


if __name__ == "__main__":
    main()
