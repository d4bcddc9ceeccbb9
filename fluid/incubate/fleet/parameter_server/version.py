"""Which of the two fleets with parameter servers the installation has: that of transpilers."""

from fleet.algorithm import Mode

__all__ = ["BUILD_MODE", "is_transpiler"]

BUILD_MODE = Mode.TRANSPILER


def is_transpiler() -> bool:
    """True: `distribute_transpiler` has servers, `pslib` has none."""
    return BUILD_MODE is Mode.TRANSPILER
