"""Stage 6: the contact sheet of the model card: 48 prompts in eight columns."""

from pathlib import Path

from common import arguments
from PIL import Image
from sampling import Sampler, grid

PROMPTS = [
    "red apple",
    "avocado",
    "hamburger",
    "sushi",
    "hot beverage",
    "birthday cake",
    "pizza",
    "hot pepper",
    "cat face",
    "fox",
    "octopus",
    "butterfly",
    "penguin",
    "unicorn",
    "T-Rex",
    "parrot",
    "grinning face",
    "face with tears of joy",
    "smiling face with sunglasses",
    "thinking face",
    "exploding head",
    "robot",
    "ghost",
    "alien",
    "rocket",
    "sailboat",
    "locomotive",
    "automobile",
    "bicycle",
    "helicopter",
    "airplane",
    "anchor",
    "rainbow",
    "fire",
    "snowflake",
    "full moon",
    "volcano",
    "sunflower",
    "cactus",
    "maple leaf",
    "red heart",
    "guitar",
    "light bulb",
    "books",
    "flag: Japan",
    "flag: Brazil",
    "chess pawn",
    "soccer ball",
]


def main() -> None:
    args = arguments(
        __doc__, model=Path("models/emoji"), out=Path("models/emoji/contact_sheet.png")
    )
    pictures = Sampler(args.model)(PROMPTS, [0] * len(PROMPTS))
    grid(pictures, 8).save(args.out, optimize=True)
    print("; ".join(PROMPTS))


if __name__ == "__main__":
    main()
