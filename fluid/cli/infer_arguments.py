"""The arguments of `fluid infer`, and the help that teaches them."""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path
from typing import Any

from compiler.options import NARROW, limit_bytes
from fluid.cli.infer import infer
from fluid.cli.values.images import PictureOptions
from fluid.cli.values.inputs import lod_lengths
from fluid.cli.values.results import NUMBERS

INFER = """\
Run a saved model: a folder or a program file of Paddle 1.x, or a .pdmodel of later releases.
What each feed is given is told by its file:

  .npy, .npz     arrays of the very element types and shapes that the model declares; in a .npz they
                 have the names of feeds, and NAME@LOD0, NAME@LOD1, ... are offsets of sequences
  other text     numbers: a line is a row of the batch, or a sequence where the feed is sequences;
                 - is standard input, and numbers may also stand on the command line: "1 2; 3 4"
  .png, .jpg ... pictures (with Pillow), where a feed is [batch, colours, height, width] or has its
                 colours last; several, or a folder, are a batch. They are resized to the model's
                 size, and numbers become (pixel * scale - mean) / std

The exit code is 0; 1 where --check finds results beyond the tolerance, or --describe ops that are
not known here; 2 for what is wrong with the command, the model or the inputs; 124 after
--time-limit; 130 after Ctrl-C.
"""
INFER_EXAMPLES = """\
examples:
  fluid infer out/demo/model --input out/demo/digits.npy --output digits.npz --time
  fluid infer DIR --input x.npy --dtype bf16 --check theirs.npz --tolerance 0.02
  fluid infer DIR --describe                          feeds, fetches, ops, sizes; nothing is run
  fluid infer DIR --input img=x.npy --input scale="1.5; 2.5"
  fluid infer DIR --input feeds.npz --check theirs.npz --tolerance 1e-4
  fluid infer DIR --input words=ids.txt               a line of ids is a sequence
  fluid infer DIR --input words=ids.npy --lod words=3,2,4
  fluid infer DIR --input x.npy --memory-limit 2GiB --time-limit 60   models of others
  fluid infer DIR --input cat.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
"""

TOLERANCE = 1e-4
"""How far results may be from those of `--check`, relative to the largest."""


def add_infer(commands: Any) -> None:
    """Add the command to those of `fluid`."""
    command = commands.add_parser(
        "infer",
        help="run a saved model on arrays, numbers or pictures from files",
        description=INFER,
        epilog=INFER_EXAMPLES,
    )
    command.set_defaults(command=infer)
    _add_model(command)
    _add_inputs(command)
    _add_pictures(command)
    _add_results(command)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model_dir", type=Path, metavar="MODEL",
        help="a folder from save_inference_model, or its program file",
    )  # fmt: skip
    command.add_argument(
        "--model-filename", metavar="FILE", help="the program, if it has an unusual name"
    )
    command.add_argument(
        "--params-filename", metavar="FILE", help="the parameters, if their file has"
    )
    command.add_argument(
        "--dtype", choices=["fp32", *NARROW],
        help="what products, and what follows them, compute in (fp32)",
    )  # fmt: skip
    command.add_argument(
        "--memory-limit", type=memory_limit, metavar="BYTES",
        help="refuse a run that takes more, before it takes it: 2GiB, 500MB (none)",
    )  # fmt: skip
    command.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS",
        help="stop what takes longer, with the exit code 124 (none)",
    )  # fmt: skip
    command.add_argument(
        "--describe", action="store_true", help="say what the model is, and run nothing"
    )


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE",
        help="what a feed is given; for the only feed no name is needed; may be given again",
    )  # fmt: skip
    command.add_argument(
        "--lod", action="append", type=lod_lengths, default=[], metavar="[NAME=]LENGTHS",
        help="how long its sequences are: 3,2,4; of two levels, the outer first: 2,1/3,2,4",
    )  # fmt: skip


def _add_pictures(command: argparse.ArgumentParser) -> None:
    usual, group = PictureOptions(), command.add_argument_group("pictures")
    group.add_argument(
        "--scale", type=factor, default=usual.scale, help="what pixels are multiplied by (1/255)"
    )
    group.add_argument(
        "--mean", type=numbers, default=usual.mean, metavar="M[,M,M]", help="for each colour (0)"
    )
    group.add_argument(
        "--std", type=divisors, default=usual.std, metavar="S[,S,S]", help="for each colour (1)"
    )
    group.add_argument(
        "--bgr", action="store_true", help="blue first, as OpenCV reads pictures (red first)"
    )
    group.add_argument(
        "--resize-short", type=positive, metavar="N", dest="short",
        help="resize the shorter side to this and cut out the middle, rather than stretch",
    )  # fmt: skip
    group.add_argument(
        "--size", type=size, metavar="HxW", help="for a model that takes any (the picture's own)"
    )


def _add_results(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("results")
    group.add_argument("--output", type=Path, metavar="FILE", help="write them to a .npz (or .npy)")
    group.add_argument(
        "--show", type=shown_numbers, default=NUMBERS, metavar="N",
        help="how many numbers of each to print, or all (%(default)s)",
    )  # fmt: skip
    group.add_argument("--time", action="store_true", help="run again and again, say how long")
    group.add_argument(
        "--repeat", type=positive, metavar="N", help="--time with exactly so many runs"
    )
    group.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write a Chrome trace of the first run: passes, steps, bytes",
    )  # fmt: skip
    group.add_argument(
        "--check", type=Path, metavar="FILE", help="compare with a .npz (or .npy) of another run"
    )
    group.add_argument(
        "--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="how far from it they may be, by the largest number there (%(default)s)",
    )  # fmt: skip


def numbers(text: str) -> tuple[float, ...]:
    """What `--mean` stands for; ArgumentTypeError for anything else.

    >>> numbers("0.5,1")
    (0.5, 1.0)
    """
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not one number or one a colour") from None


def divisors(text: str) -> tuple[float, ...]:
    """What `--std` stands for; ArgumentTypeError for anything else, and where one is 0."""
    found = numbers(text)
    if 0 in found:
        raise argparse.ArgumentTypeError(f"{text!r} has a number that is 0")
    return found


def factor(text: str) -> float:
    """What `--scale` stands for; ArgumentTypeError for several numbers and for 0."""
    found = divisors(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one number")
    return found[0]


def tolerance(text: str) -> float:
    """What `--tolerance` stands for; ArgumentTypeError for anything else.

    >>> tolerance("1e-3")
    0.001
    """
    (found, *more) = numbers(text)
    if more or not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return found


def seconds(text: str) -> float:
    """What `--time-limit` stands for; ArgumentTypeError for anything but a number above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


def memory_limit(text: str) -> int:
    """What `--memory-limit` stands for, in bytes; ArgumentTypeError for anything else.

    >>> memory_limit("2KiB")
    2048
    """
    try:
        return limit_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, like 500MB or 2GiB") from None


def positive(text: str) -> int:
    """A whole number from 1 on; ArgumentTypeError for anything else."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def size(text: str) -> tuple[int, int]:
    """What `--size` stands for: height and width; ArgumentTypeError for anything else.

    >>> size("224"), size("32x100")
    ((224, 224), (32, 100))
    """
    height, _, width = text.lower().partition("x")
    if not height.isdecimal() or not (width or height).isdecimal() or "0" in (height, width):
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, like 224x224")
    return int(height), int(width or height)


def shown_numbers(text: str) -> int:
    """What `--show` stands for; -1 for all. ArgumentTypeError for anything else.

    >>> shown_numbers("12"), shown_numbers("all")
    (12, -1)
    """
    if text == "all":
        return -1
    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or all") from None
