"""GPUs that kernels are compiled for, which need not be here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.errors import CompileError

_KNOWN = {"cuda": r"\d{2,3}", "hip": r"gfx[0-9a-f]{3,4}"}


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: `cuda` with its compute capability, or `hip` with the name of its core."""

    maker: str
    core: str

    @property
    def warp_size(self) -> int:
        """Threads that go in step."""
        return 64 if self.core.startswith("gfx9") else 32

    @property
    def folder(self) -> str:
        """What its files lie in."""
        return f"{self.maker}-{self.core}"

    def __str__(self) -> str:
        return f"{self.maker}:{self.core}"


def gpus(text: str) -> list[Gpu]:
    """GPUs as a user lists them, each once. Raises CompileError for what is none.

    >>> [str(each) for each in gpus("cuda:90,hip:gfx942,cuda:90")]
    ['cuda:90', 'hip:gfx942']
    """
    return list(dict.fromkeys(_gpu(each.strip()) for each in text.split(",")))


def _gpu(text: str) -> Gpu:
    maker, _, core = text.partition(":")
    if maker not in _KNOWN or not re.fullmatch(_KNOWN[maker], core):
        raise CompileError(
            f"{text!r} is no kind of GPU", hint="cuda:80, cuda:90, cuda:100, hip:gfx942, …"
        )
    return Gpu(maker, core)
