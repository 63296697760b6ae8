"""Stage 1: draw the emoji of Noto Color Emoji and name them with CLDR's English names.

Writes pictures.npz into the work folder: uint8 RGB pictures of 128x128 on white, captions, and the
keyword line of each (the tokenizer learns words from it).
"""

import argparse
import hashlib
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"  # Debian: fonts-noto-color-emoji
CLDR = "/usr/share/unicode/cldr/common"  # Debian: unicode-cldr-core
SIDE = 128
STRIKE = 109  # the one bitmap size that the font holds; its cells are 136x128
SKIN = range(0x1F3FB, 0x1F400)


def cldr_names() -> dict[str, tuple[str, str]]:
    """Code points -> (name, keywords), from the plain and the derived annotations."""
    names, words = {}, {}
    for folder in ("annotations", "annotationsDerived"):
        for item in ET.parse(f"{CLDR}/{folder}/en.xml").getroot().iter("annotation"):
            table = names if item.get("type") == "tts" else words
            table[item.get("cp")] = (item.text or "").strip()
    return {cp: (name, words.get(cp, "")) for cp, name in names.items()}


def draw(text: str, font: ImageFont.FreeTypeFont) -> Image.Image | None:
    """The glyph on white, or None if the font has none or draws the sequence as several."""
    left, top, right, bottom = font.getbbox(text)
    cell = font.getlength(text)
    if cell > 1.5 * SIDE or right <= left:
        return None
    canvas = Image.new("RGB", (right - left, bottom - top), "white")
    ImageDraw.Draw(canvas).text((-left, -top), text, font=font, embedded_color=True)
    scale = SIDE / max(canvas.size)
    fitted = canvas.resize([round(v * scale) for v in canvas.size], Image.LANCZOS)
    square = Image.new("RGB", (SIDE, SIDE), "white")
    square.paste(fitted, ((SIDE - fitted.width) // 2, (SIDE - fitted.height) // 2))
    return square


def drawable(font_path: str) -> set[int]:
    """Code points that an emoji may be made of: the font's, and the two that only join others."""
    return set(TTFont(font_path, lazy=True).getBestCmap()) | {0xFE0F, 0x200D}


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--work", type=Path, default=Path("build/emoji"))
    work = args.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    font = ImageFont.truetype(FONT, STRIKE, layout_engine=ImageFont.Layout.RAQM)
    known = drawable(FONT)
    pictures, captions, words, seen = [], [], [], set()
    for cp, (name, keywords) in sorted(cldr_names().items()):
        points = [ord(c) for c in cp]
        # Skin tones would be half of the set and differ in a colour; lone ASCII is text.
        ascii_only = len(points) == 1 and points[0] < 128
        if ascii_only or any(p in SKIN or p not in known for p in points):
            continue
        picture = draw(cp, font)
        if picture is None or name in captions:
            continue
        pixels = np.asarray(picture)
        digest = hashlib.sha256(pixels.tobytes()).digest()
        if digest in seen or (pixels == 255).mean() > 0.995:
            continue
        seen.add(digest)
        pictures.append(pixels)
        captions.append(name)
        words.append(keywords)
    np.savez_compressed(
        work / "pictures.npz",
        pictures=np.stack(pictures),
        captions=np.array(captions),
        words=np.array(words),
    )
    print(f"{len(captions)} pictures, longest caption {max(map(len, captions))} characters")


if __name__ == "__main__":
    main()
