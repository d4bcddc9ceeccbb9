"""Values of counters before their in-place increment.

`increment` overwrites its operand; an earlier op may have read it, for example as an index of a
tensor array, and the gradient of that op reads the same index.
"""

from __future__ import annotations

from collections import Counter

from compiler.ir.program import OpDesc

BEFORE = "@BEFORE@"
"""The infix of names of counters before their increment."""


class LoopCounters:
    """Earlier values of counters, computed on demand as separate variables."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._waiting: dict[str, list[OpDesc]] = {}
        self._earlier: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    def wait(self, name: str, undo: OpDesc) -> None:
        """Record the op that decrements a counter, for later readers."""
        self._waiting.setdefault(name, []).append(undo)

    def before(self, op: OpDesc) -> list[OpDesc]:
        """Redirect an op to earlier counter values; returns the ops that compute them."""
        asked = dict.fromkeys(name for name in op.reads() if name in self._waiting)
        ops = [self._step(name, undo) for name in asked for undo in self._waiting.pop(name)]
        for name, earlier in self._earlier.items():
            op.inputs = renamed(op.inputs, name, earlier)
        return ops

    def _step(self, name: str, undo: OpDesc) -> OpDesc:
        last = self._earlier.get(name, name)
        self._earlier[name] = f"{name}{BEFORE}{self._count[name]}"
        self._count[name] += 1
        outputs = {"Out": [self._earlier[name]]}
        return OpDesc(undo.type, {"X": [last]}, outputs, undo.attrs, undo.source)


def renamed(slots: dict[str, list[str]], old: str, new: str) -> dict[str, list[str]]:
    """Replace a name in slots.

    >>> renamed({"X": ["a", "b"]}, "a", "c")
    {'X': ['c', 'b']}
    """
    return {slot: [new if n == old else n for n in names] for slot, names in slots.items()}
