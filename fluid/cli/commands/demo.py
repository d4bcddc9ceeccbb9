"""The arguments and help text of `fluid demo`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from fluid.cli.subcommands import Subcommands
from fluid.demo.story import EPOCHS, SEED, demo

DEMO = """\
Train a small convolutional network with batch normalisation on 1,500 images of handwritten digits,
test it on 297 others, save it, load it, and compile it for inference with and without folding its
batch norms. The output shows every stage of the compiler: the effect of each pass and the memory.
"""
DEMO_EXAMPLES = """\
examples:
  fluid demo
  fluid demo --epochs 2 --out /tmp/demo     faster, and into another folder
  fluid demo --seed 7                       other initial weights and another order of the images
"""


def add_demo(commands: Subcommands) -> None:
    """Add `demo` to the subcommands."""
    command = commands.add_parser(
        "demo",
        help="train a digit classifier and show every stage of the compiler",
        description=DEMO,
        epilog=DEMO_EXAMPLES,
    )
    command.set_defaults(command=demo)
    positive, natural = partial(_whole, least=1), partial(_whole, least=0)
    command.add_argument(
        "--epochs", type=positive, default=EPOCHS, metavar="N",
        help="number of training epochs (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--out", type=Path, default=Path("out/demo"), metavar="DIR",
        help="output folder (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--seed", type=natural, default=SEED, metavar="S",
        help="random seed (default: %(default)s)",
    )  # fmt: skip


def _whole(text: str, least: int) -> int:
    """Parse an integer from `least` to 2^31 - 2, the range of a seed."""
    if not text.isdecimal() or not least <= int(text) < 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return int(text)
