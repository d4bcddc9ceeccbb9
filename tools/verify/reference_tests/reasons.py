"""Classifies the reasons of failed and skipped tests."""

from __future__ import annotations

import re

ABSENT = {
    "dygraph": re.compile(
        r"never run line by line|there is no dygraph mode|"
        r"No module named '?paddle\.fluid\.(dygraph|imperative)"
    ),
    "compression": re.compile(r"no compression of models here"),
    "IrGraph": re.compile(r"graphs of the native library are not here"),
}
"""Intentionally unsupported features, by patterns of their error messages."""
KINDS = {
    "CUDA": re.compile(r"cuda|gpu|cudnn|nccl", re.IGNORECASE),
    "MKL-DNN": re.compile(r"mkl|onednn", re.IGNORECASE),
    **{name: re.compile(name, re.IGNORECASE) for name in ABSENT},
}
LONGEST = 300
FRAME = re.compile(r'^  File "(.*?)", line (\d+)', re.MULTILINE)


def skipped_because(error):
    """The first of `ABSENT` that an error matches; empty for other errors."""
    if not isinstance(error, (AttributeError, ImportError, NotImplementedError, RuntimeError)):
        return ""
    return next((name for name, words in ABSENT.items() if words.search(str(error))), "")


def reason_of(error, trace):
    """The kind of an error, its first line, and the last line of the test's traceback."""
    message = str(error).rpartition("Error Message Summary:")[2]
    lines = [line.strip(" -") for line in message.splitlines() if line.strip(" -")]
    frames = [(file, line) for file, line in FRAME.findall(trace) if "test_" in file]
    where = "" if not frames else " (line {1} of {0})".format(*last(frames))
    return (type(error).__name__ + ": " + " ".join(lines[:2]))[:LONGEST] + where


def last(frames):
    """The last frame, with its file name without folders."""
    file, line = frames[-1]
    return re.split(r"[\\/]", file)[-1], line


def kind_of_skip(reason):
    """Classify a skip: CUDA, MKL-DNN, dygraph, …, other.

    >>> kind_of_skip("core is not compiled with CUDA"), kind_of_skip("slow")
    ('CUDA', 'other')
    """
    return next((name for name, words in KINDS.items() if words.search(reason)), "other")
