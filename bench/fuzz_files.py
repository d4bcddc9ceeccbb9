"""Damaged `__model__` and parameter files: each is refused in words, or read as what it now says.

No crash, no hang, and no more memory than twice what the undamaged file takes. The files are those
that Paddle 1.8.5 saved for the tests; the case of a number is always the same. With `--compile`,
programs that can be read are compiled too. What fails is told with its number, and `--keep DIR`
writes its file there; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import compiler
import fluid
from bench.damage import damaged_bytes, damaged_fields, words_of
from bench.table import Row, goal, table
from compiler.errors import CompileError
from compiler.ir.proto import ProtoError, dump, parse
from compiler.ir.serial import dump_program, load_program
from runtime.checkpoint import CheckpointError, load_combined, read_tensor

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "inference"
CHUNK = 2_500
"""Cases a process takes, so that a crash ends few of them."""

TIMES = 2.0
SPARE = 64 << 10
"""Bytes that a refusal may take in any case: the words of it, and where it was."""

SECONDS = 10.0
"""What takes longer hangs."""

CAP = 4 << 30
"""Bytes of address space a process may have, all told."""

COLUMNS = {"files": "", "cases": ",d", "refused": ",d", "read": ",d", "compiled": ",d"}
COLUMNS |= {"memory ÷ honest": ".2f", "slowest ms": ".1f", "failed": ",d"}


@dataclass(frozen=True)
class Original:
    """A file that the reference wrote: how it is damaged, and what it takes to read it."""

    kind: str
    data: bytes
    names: Sequence[str] = ()
    honest: int = field(default=0, compare=False)


@dataclass
class Tally:
    """What became of the cases of one kind."""

    cases: int = 0
    refused: int = 0
    read: int = 0
    compiled: int = 0
    memory: float = 0.0
    slowest: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)
