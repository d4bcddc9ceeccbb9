"""The arguments and help text of `fluid infer`."""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path

from compiler.options import NARROW, limit_bytes
from fluid.cli.infer import infer
from fluid.cli.model import add_file_names
from fluid.cli.subcommands import Subcommands
from fluid.cli.target import add_target
from fluid.cli.values.images import ImageOptions
from fluid.cli.values.inputs import lod_lengths
from fluid.cli.values.results import NUMBERS

INFER = """\
Run a saved model: a folder or a program file of Paddle 1.x, or a .pdmodel of later releases.
The type of each input is detected from its file:

  .npy, .npz     arrays with the dtypes and shapes that the model declares; a .npz holds several
                 feeds by name, and NAME@LOD0, NAME@LOD1, ... are the LoD offsets of NAME
  other text     numbers: a line is a row of the batch, or a sequence if the feed has LoD;
                 - is standard input, and numbers can be given directly: "1 2; 3 4"
  .png, .jpg ... images (requires Pillow), if the feed is [batch, channels, height, width] or
                 [batch, height, width, channels]; several files or a folder form a batch. They are
                 resized to the model's size and normalised: (pixel * scale - mean) / std

Exit code: 0 on success; 1 if --check finds results beyond the tolerance, or --describe finds
unsupported ops; 2 for an error in the command, the model or the inputs; 124 after --time-limit;
130 after Ctrl-C.
"""
INFER_EXAMPLES = """\
examples:
  fluid infer out/demo/model --input out/demo/digits.npy --output digits.npz --time
  fluid infer DIR --input x.npy --dtype bf16 --check theirs.npz --tolerance 0.02
  fluid infer DIR --input x.npy --target native --profile    machine code; the time of each op
  fluid infer DIR --input x.npy --target cuda --time         on the first GPU
  fluid infer DIR --describe                          show feeds, fetches, ops and sizes, do not run
  fluid infer DIR --input img=x.npy --input scale="1.5; 2.5"
  fluid infer DIR --input feeds.npz --check theirs.npz --tolerance 1e-4
  fluid infer DIR --input words=ids.txt               each line of ids is a sequence
  fluid infer DIR --input words=ids.npy --lod words=3,2,4
  fluid infer DIR --input x.npy --memory-limit 2GiB --time-limit 60   for untrusted models
  fluid infer DIR --input cat.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
"""

TOLERANCE = 1e-4
"""Default tolerance of `--check`, relative to the largest magnitude."""


def add_infer(commands: Subcommands) -> None:
    """Add `infer` to the subcommands."""
    command = commands.add_parser(
        "infer",
        help="run a saved model on arrays, numbers or images from files",
        description=INFER,
        epilog=INFER_EXAMPLES,
    )
    command.set_defaults(command=infer)
    _add_model(command)
    _add_inputs(command)
    _add_images(command)
    _add_results(command)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model_dir", type=Path, metavar="MODEL",
        help="a folder from save_inference_model, or its program file",
    )  # fmt: skip
    add_file_names(command.add_argument)
    command.add_argument(
        "--dtype", choices=["fp32", *NARROW],
        help="dtype of matrix products and the ops fused into them (default: fp32)",
    )  # fmt: skip
    add_target(command.add_argument, gpu=True)
    command.add_argument(
        "--memory-limit", type=memory_limit, metavar="BYTES",
        help="fail before a run allocates more than this, such as 2GiB or 500MB (default: none)",
    )  # fmt: skip
    command.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS",
        help="stop after this time, with exit code 124 (default: none)",
    )  # fmt: skip
    command.add_argument(
        "--describe", action="store_true", help="describe the model, do not run it"
    )


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE",
        help="value of a feed; NAME is optional if there is only one feed; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--lod", action="append", type=lod_lengths, default=[], metavar="[NAME=]LENGTHS",
        help="sequence lengths of a feed: 3,2,4; for two LoD levels the outer first: 2,1/3,2,4",
    )  # fmt: skip


def _add_images(command: argparse.ArgumentParser) -> None:
    default, group = ImageOptions(), command.add_argument_group("images")
    group.add_argument(
        "--scale",
        type=factor,
        default=default.scale,
        help="factor for pixel values (default: 1/255)",
    )
    group.add_argument(
        "--mean",
        type=numbers,
        default=default.mean,
        metavar="M[,M,M]",
        help="mean, one or per channel (default: 0)",
    )
    group.add_argument(
        "--std",
        type=divisors,
        default=default.std,
        metavar="S[,S,S]",
        help="std, one or per channel (default: 1)",
    )
    group.add_argument(
        "--bgr", action="store_true", help="channel order BGR, as in OpenCV (default: RGB)"
    )
    group.add_argument(
        "--resize-short", type=positive, metavar="N", dest="short",
        help="resize the shorter edge to N and crop the center, instead of stretching",
    )  # fmt: skip
    group.add_argument(
        "--size",
        type=size,
        metavar="HxW",
        help="image size for a model with dynamic size (default: unchanged)",
    )


def _add_results(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("results")
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="write results to a .npz (or .npy)"
    )
    group.add_argument(
        "--show", type=parse_show, default=NUMBERS, metavar="N",
        help="elements of each result to print, or all (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--time", action="store_true", help="run repeatedly and print the time per run"
    )
    group.add_argument(
        "--repeat", type=positive, metavar="N", help="like --time, with exactly N runs"
    )
    group.add_argument(
        "--profile", action="store_true",
        help="run repeatedly and print the time of each op, with GFLOP/s and GB/s of native code",
    )  # fmt: skip
    group.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write a Chrome trace of the first run: passes, steps, bytes",
    )  # fmt: skip
    group.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="compare with the results of another run, a .npz or .npy",
    )
    group.add_argument(
        "--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="tolerance of --check, relative to the largest magnitude (default: %(default)s)",
    )  # fmt: skip


def numbers(text: str) -> tuple[float, ...]:
    """Parse `--mean`; raises ArgumentTypeError for anything but numbers.

    >>> numbers("0.5,1")
    (0.5, 1.0)
    """
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number or one number per channel"
        ) from None


def divisors(text: str) -> tuple[float, ...]:
    """Parse `--std`; raises ArgumentTypeError for anything but numbers other than 0."""
    divisor = numbers(text)
    if 0 in divisor:
        raise argparse.ArgumentTypeError(f"{text!r} must not contain 0")
    return divisor


def factor(text: str) -> float:
    """Parse `--scale`; raises ArgumentTypeError for several numbers and for 0."""
    factors = divisors(text)
    if len(factors) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a single number")
    return factors[0]


def tolerance(text: str) -> float:
    """Parse `--tolerance`; raises ArgumentTypeError for anything but a finite number of at least 0.

    >>> tolerance("1e-3")
    0.001
    """
    (value, *more) = numbers(text)
    if more or not 0 <= value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")
    return value


def seconds(text: str) -> float:
    """Parse `--time-limit`; raises ArgumentTypeError for anything but a number above 0."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return limit


def memory_limit(text: str) -> int:
    """Parse `--memory-limit` into bytes; raises ArgumentTypeError if it is not a size.

    >>> memory_limit("2KiB")
    2048
    """
    try:
        return limit_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, like 500MB or 2GiB") from None


def positive(text: str) -> int:
    """Parse a positive integer; raises ArgumentTypeError for anything else."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def size(text: str) -> tuple[int, int]:
    """Parse `--size` into height and width; raises ArgumentTypeError for anything else.

    >>> size("224"), size("32x100")
    ((224, 224), (32, 100))
    """
    height, _, width = text.lower().partition("x")
    if not height.isdecimal() or not (width or height).isdecimal() or "0" in (height, width):
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, like 224x224")
    return int(height), int(width or height)


def parse_show(text: str) -> int:
    """Parse `--show`, -1 for `all`; raises ArgumentTypeError for anything else.

    >>> parse_show("12"), parse_show("all")
    (12, -1)
    """
    if text == "all":
        return -1
    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or all") from None
