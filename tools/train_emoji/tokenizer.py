"""Stage 2: train the byte-level BPE tokenizer and write both of its forms.

The pipeline drops the first 34 ids of its template, a number that fits the real vocabulary only.
The template is therefore repeated in the corpus until each of its words is one token, as it is
there.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from configs import ADDED, PREFIX, SPECIAL, SUFFIX, TEMPLATE
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

VOCAB = 3562  # with the 22 added tokens 3584, a multiple of 64
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def blank(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False
    )
    return tokenizer


def corpus(data) -> list[str]:
    """Captions count most; each word also appears behind a space, as it would inside a sentence."""
    lines = []
    for caption, words in zip(data["captions"], data["words"]):
        caption, words = str(caption), str(words).replace(" | ", " ")
        lines += 4 * [caption, f"a {caption}"] + [words]
    plain = TEMPLATE
    for token in SPECIAL + ADDED:
        plain = plain.replace(token, "")
    return lines + 1000 * [plain.format("")]


def train(lines: list[str]) -> Tokenizer:
    tokenizer = blank(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ADDED])
    return tokenizer


def write(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))  # vocab.json and merges.txt
    ids = {t: tokenizer.token_to_id(t) for t in SPECIAL + ADDED}
    entry = dict(lstrip=False, normalized=False, rstrip=False, single_word=False)
    config = dict(
        add_bos_token=False,
        add_prefix_space=False,
        added_tokens_decoder={
            str(ids[t]): dict(content=t, **entry, special=t in SPECIAL) for t in ids
        },
        additional_special_tokens=SPECIAL[1:],
        bos_token=None,
        clean_up_tokenization_spaces=False,
        eos_token="<|im_end|>",
        errors="replace",
        model_max_length=2048,
        pad_token="<|endoftext|>",
        split_special_tokens=False,
        tokenizer_class="Qwen2Tokenizer",
        unk_token=None,
    )
    special = dict(
        additional_special_tokens=SPECIAL[1:],
        eos_token=dict(content="<|im_end|>", **entry),
        pad_token=dict(content="<|endoftext|>", **entry),
    )
    for name, value in [
        ("added_tokens", ids),
        ("tokenizer_config", config),
        ("special_tokens_map", special),
    ]:
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def check(tokenizer: Tokenizer) -> None:
    head, tail = TEMPLATE.split("{}")
    assert len(tokenizer.encode(head).ids) == PREFIX, tokenizer.encode(head).tokens
    assert len(tokenizer.encode(tail).ids) == SUFFIX, tokenizer.encode(tail).tokens
    hard = "naïve 東京 😀\x00\n\t'LL 12345 عربي"
    assert tokenizer.decode(tokenizer.encode(hard).ids) == hard


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--work", type=Path, default=Path("build/emoji"))
    work = args.parse_args().work
    data = np.load(work / "pictures.npz")
    tokenizer = train(corpus(data))
    check(tokenizer)
    write(tokenizer, work / "tokenizer")
    lengths = [len(tokenizer.encode(str(c)).ids) for c in data["captions"]]
    print(f"{tokenizer.get_vocab_size()} tokens; at most {max(lengths)} a caption")


if __name__ == "__main__":
    main()
