"""Every setting of the compiler, and the only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How to compile.

    `disable` names passes to leave out. `check` 0 trusts the passes to keep numbers, as verified
    graphs do; 2 also runs the interpreter before and after each pass on made-up feeds and stops
    at the first one that moves a number. `typical` stands for an unknown size when orders of
    execution are compared.
    """

    disable: frozenset[str] = frozenset()
    check: int = 0
    typical: int = 32

    @staticmethod
    def from_env(environ: Mapping[str, str] = os.environ) -> Options:
        """Options from `FLUID_DISABLE` (pass names, commas between) and `FLUID_CHECK` (0 or 2).

        >>> Options.from_env({"FLUID_DISABLE": "schedule,reuse_memory"}).disable == {
        ...     "schedule", "reuse_memory"}
        True
        """
        names = (name.strip() for name in environ.get("FLUID_DISABLE", "").split(","))
        check = environ.get("FLUID_CHECK", "0")
        if check not in ("0", "2"):
            raise ValueError(
                f"FLUID_CHECK is {check!r}; it is 0 (off) or 2 (numbers before and after)"
            )
        return Options(frozenset(filter(None, names)), int(check))
