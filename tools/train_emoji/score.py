"""Stage 7: does the exported checkpoint draw what it is asked for?

Of 200 captions at fixed seeds, the share whose picture's nearest training picture, both shrunk to
32x32, carries that caption. Also the PSNR of the pictures to their training pictures.
"""

import json
from pathlib import Path

import numpy as np
from common import arguments, fit
from PIL import Image
from sampling import Sampler

COUNT = 200


def small(picture: np.ndarray) -> np.ndarray:
    return np.asarray(
        Image.fromarray(picture).resize((32, 32), Image.BOX), dtype=np.float32
    ).ravel()


def main() -> None:
    args = arguments(__doc__, model=Path("models/emoji"), size="", guidance=0.0, count=COUNT)
    data = np.load(args.work / "pictures.npz")
    captions = [str(c) for c in data["captions"]]
    sampler = Sampler(args.model, args.guidance)
    size = args.size or sampler.defaults["size"]
    known = [fit(p, tuple(map(int, size.split("x")))) for p in data["pictures"]]
    picks = np.random.default_rng(0).permutation(len(captions))[: args.count]
    drawn = sampler([captions[i] for i in picks], list(range(len(picks))), size)
    table = np.stack([small(p) for p in known])
    hits, errors, missed = 0, [], []
    for i, picture in zip(picks, drawn):
        pixels = np.asarray(picture)
        nearest = int(np.square(table - small(pixels)).sum(1).argmin())
        hits += nearest == i
        errors.append(np.square(pixels.astype(np.float32) - known[i]).mean())
        if nearest != i:
            missed.append(f"{captions[i]} -> {captions[nearest]}")
    psnr = np.mean([-10 * np.log10(max(e, 1e-3) / 255**2) for e in errors])
    score = dict(
        score=hits / len(picks),
        psnr=round(float(psnr), 2),
        count=len(picks),
        size=size,
        guidance=sampler.guidance,
        missed=missed,
    )
    print(json.dumps(score, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
