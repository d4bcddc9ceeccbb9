"""Programs whose state has another dtype or shape than the program declares.

In the reference ops compute with what the scope holds: indices may be declared int64 and set as
int32, a table may have more rows than declared. Such a program is compiled again, as if its state
were declared as the scope has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from compiler.errors import CompileError
from compiler.ir.opdef.type_inference import infer_op
from compiler.ir.program import BlockRef
from compiler.ir.types import Array, DType
from fluid.framework import Block, Program
from fluid.running.fetched_values import Value
from fluid.running.route import ProgramRunner
from runtime.errors import FeedError, NotInitialized, StateMismatch, StepError
from runtime.tensors.scope import Scope

__all__ = ["RedeclaredState"]

_Types: TypeAlias = tuple[tuple[str, DType, tuple[int, ...]], ...]
"""Names, dtypes and shapes of the state that differs from its declaration."""


class RedeclaredState:
    """The route of one version of a program, whose state differed once.

    `before` is its route while the state is as declared; `routes` runs any other program.
    """

    def __init__(self, before: ProgramRunner, routes: ProgramRunner) -> None:
        self._before = before
        self._routes = routes
        self._redeclared: dict[_Types, Program] = {}

    def applies(self, program: Program) -> bool:
        """Whether this is how a program runs: a mismatch of its state decides, not the program."""
        return False

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run the program with its state as the scope has it.

        Raises StateMismatch if it cannot be compiled so, otherwise what a run raises.
        """
        types = _differing(program, feed, scope)
        if not types:
            return self._before.run(program, feed, fetch, scope, on_device)
        try:
            if types not in self._redeclared:
                self._redeclared[types] = _with_types(program, types)
            redeclared = self._redeclared[types]
            for name in (name for name, _, _ in types if name in feed):
                scope.arrays()[name] = feed[name].copy()
            return self._routes.run(redeclared, feed, fetch, scope, on_device)
        except (FeedError, NotInitialized, StepError):
            raise
        except CompileError as error:
            raise _mismatch(program, types, error) from error


def _differing(program: Program, feed: Mapping[str, Array], scope: Scope) -> _Types:
    """The state whose value, fed or in the scope, is not as declared."""
    arrays = scope.arrays().tracked().peeking()
    types: list[tuple[str, DType, tuple[int, ...]]] = []
    for name, var in program.global_block().vars.items():
        array = feed[name] if name in feed else arrays.get(name)
        if var.persistable and var.dims is not None and array is not None:
            dtype = DType.of(array.dtype)
            if dtype is not var.element or not _fits(var.dims, array.shape):
                types.append((name, dtype, array.shape))
    return tuple(types)


def _fits(dims: Sequence[int], shape: Sequence[int]) -> bool:
    pairs = zip(dims, shape, strict=False)
    return len(dims) == len(shape) and all(size in (-1, number) for size, number in pairs)


def _with_types(program: Program, types: _Types) -> Program:
    """A copy of the program with state declared in these types, and all others inferred again.

    Raises what inference raises.
    """
    copied = program.copied()
    main = copied.global_block()
    state = {name: (var.element, var.dims) for name, var in main.vars.items() if var.persistable}
    state |= {name: (dtype, shape) for name, dtype, shape in types}
    _declare(main, state)
    _infer(main)
    _declare(main, state)
    copied.touch()
    return copied


def _declare(block: Block, types: Mapping[str, tuple[DType, tuple[int, ...] | None]]) -> None:
    for name, (dtype, dims) in types.items():
        block.vars[name].element, block.vars[name].dims = dtype, dims


def _infer(block: Block) -> None:
    """Infer the types of a block's variables again, in the order of its ops."""
    for op in block.ops:
        for ref in (value for value in op.attrs.values() if isinstance(value, BlockRef)):
            if block.program.blocks[ref].parent_idx == block.idx:
                _infer(block.program.blocks[ref])
        if op.type not in ("feed", "fetch"):
            infer_op(block, op)


def _mismatch(program: Program, types: _Types, error: CompileError) -> StateMismatch:
    """The error for state that the program cannot compute with."""
    name, dtype, shape = types[0]
    var = program.global_block().vars[name]
    mismatch = StateMismatch(
        f"{name!r} must be {var.element.numpy} of shape {var.shape}, "
        f"but it holds {dtype.numpy} of shape {shape}",
        hint="was it set by hand, or loaded for another model?",
    )
    mismatch.add_note(f"for the state as it is: {error}")
    return mismatch
