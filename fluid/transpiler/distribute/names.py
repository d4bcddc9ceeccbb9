"""Names of variables that rewriting adds."""

from __future__ import annotations

from fluid.framework import Block

__all__ = ["control_name"]

CONTROL = "__control_var@"


def control_name(block: Block) -> str:
    """A name for a new control variable: they are numbered, so that programs can be compared."""
    numbers = [name.removeprefix(CONTROL) for name in block.vars if name.startswith(CONTROL)]
    return f"{CONTROL}{1 + max((int(n) for n in numbers if n.isdigit()), default=-1)}"
