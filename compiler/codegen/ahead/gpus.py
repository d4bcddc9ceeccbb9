"""GPUs that kernels are compiled for; they need not be present."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compiler.errors import CompileError
from compiler.support.dataclass import dataclass

_KNOWN = {"cuda": r"\d{2,3}", "hip": r"gfx[0-9a-f]{3,4}"}


@dataclass(frozen=True)
class GpuArchitecture:
    """A GPU architecture: `cuda` with its compute capability, or `hip` with its gfx name."""

    maker: str
    core: str

    @property
    def warp_size(self) -> int:
        """Threads of a warp (wavefront)."""
        return 64 if self.core.startswith("gfx9") else 32

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return f"{self.maker}-{self.core}"

    def __str__(self) -> str:
        return f"{self.maker}:{self.core}"


def gpus(text: str) -> list[GpuArchitecture]:
    """Parse a comma-separated list of GPUs, without duplicates; CompileError if one is unknown.

    >>> [str(each) for each in gpus("cuda:90,hip:gfx942,cuda:90")]
    ['cuda:90', 'hip:gfx942']
    """
    return list(dict.fromkeys(_gpu(name.strip()) for name in text.split(",")))


def tuned_for(targets: Sequence[GpuArchitecture]) -> str:
    """The GPU whose measured tiles fit all of these: the oldest one; empty for several makers.

    >>> tuned_for(gpus("cuda:90,cuda:80")), tuned_for(gpus("cuda:90,hip:gfx942"))
    ('cuda:80', '')
    """
    if len({gpu.maker for gpu in targets}) > 1:
        return ""
    return str(min(targets, key=lambda gpu: (len(gpu.core), gpu.core)))


def _gpu(text: str) -> GpuArchitecture:
    maker, _, core = text.partition(":")
    if maker not in _KNOWN or not re.fullmatch(_KNOWN[maker], core):
        raise CompileError(
            f"{text!r} is not a known GPU", hint="cuda:80, cuda:90, cuda:100, hip:gfx942, …"
        )
    return GpuArchitecture(maker, core)
