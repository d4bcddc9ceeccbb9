"""Blocks of a server compiled to one Module, which is run on the gradients of trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compiler.codegen.module import Module
from fluid.framework import Program
from runtime.device import Place
from runtime.loader import Executable, load
from runtime.ps.service import ROWS, Feeds, Gradient
from runtime.sizes import Pattern
from runtime.tensors.scope import Scope

__all__ = ["Update"]

Compile = Callable[[Program, Pattern, list[str]], Module]


class Update:
    """A program over the variables of a server; it is compiled when it first runs.

    How many rows a sparse gradient has is an open size of the Module, one for each.
    """

    def __init__(
        self, program: Program, gradients: Iterable[Gradient], compile: Compile, place: Place,
        scope: Scope, names: Mapping[str, object],
    ) -> None:  # fmt: skip
        self.program = program
        self._gradients = list(gradients)
        self._compile, self._place, self._scope, self._names = compile, place, scope, names
        self._executable: Executable | None = None

    def __call__(self, feeds: Feeds) -> None:
        """Run the blocks once. Raises what compiling raises, and StepError."""
        if not self.program.global_block().ops:
            return
        if self._executable is None:
            module = self._compile(self.program, self._pattern(feeds), [])
            self._executable = load(module, self._place, self._scope, names=self._names)
        self._executable(feeds)

    def _pattern(self, feeds: Feeds) -> Pattern:
        """The shapes of the feeds that the program reads."""
        read = {name for op in self.program.global_block().ops for name in op.reads()}
        pattern: Pattern = {}
        for index, gradient in enumerate(self._gradients):
            if gradient.name in read and gradient.is_sparse:
                pattern[gradient.name] = (f"R{index}", *gradient.shape[1:])
                pattern[gradient.name + ROWS] = (f"R{index}",)
            elif gradient.name in read:
                pattern[gradient.name] = gradient.shape
        others = {n: a.shape for n, a in feeds.items() if n in read and n not in pattern}
        return others | pattern
