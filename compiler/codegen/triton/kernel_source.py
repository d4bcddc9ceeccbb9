"""The source of a Triton kernel with its launch, and variants of a launch by a size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from compiler.codegen.triton.cost import KernelTraffic
from compiler.ir.dims import Dim
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Variants:
    """Constants and launch options that depend on a size: those of the first limit that it is in.

    `settings` has one more element than the ascending `limits`, for all larger sizes.
    """

    size: Dim
    limits: tuple[int, ...]
    settings: tuple[Mapping[str, int], ...]

    mark = "$VARIANT"
    """What stands for the settings in a launch."""

    @property
    def choice(self) -> str:
        """The settings as source text.

        >>> Variants(Dim.named("N"), (16,), ({"ROWS": 16}, {"ROWS": 64})).choice
        'dict(ROWS=16) if N <= 16 else dict(ROWS=64)'
        """
        *small, large = map(_dict_text, self.settings)
        pairs = zip(small, self.limits, strict=True)
        return "".join(f"{value} if {self.size} <= {n} else " for value, n in pairs) + large

    def kernels(self, constants: Mapping[str, int]) -> list[tuple[dict[str, int], dict[str, int]]]:
        """The constants and launch options of each variant, the last first."""
        return [
            (
                {**constants, **{key: n for key, n in setting.items() if key in constants}},
                {key: n for key, n in setting.items() if key not in constants},
            )
            for setting in reversed(self.settings)
        ]


def _dict_text(settings: Mapping[str, int]) -> str:
    return f"dict({', '.join(f'{key}={value}' for key, value in settings.items())})"


@dataclass
class KernelSource:
    """A kernel's source, the helpers it needs, and its launch.

    `types` are those of its parameters in Triton's notation, with ":16" after pointers and sizes
    divisible by 16; `constants` the values of its constexpr parameters except INDEX; `options` the
    launch options other than the defaults, such as `num_warps`. `traffic` is its cost. With
    `variants`, binding chooses constants and options by a size, and `launch` has their `mark`.
    """

    name: str
    lines: list[str]
    helpers: list[str]
    launch: str
    types: dict[str, str]
    constants: dict[str, int]
    traffic: KernelTraffic
    options: dict[str, int] = field(default_factory=dict[str, int])
    variants: Variants | None = None
