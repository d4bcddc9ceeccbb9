"""The work of a multi-tensor kernel on one block of a tensor, and on scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import cast

from compiler.codegen.kernel.body import Source
from compiler.codegen.trace import Expr, Term
from compiler.codegen.triton.values import Values
from compiler.ir.dims import product
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass


@dataclass
class BlockBody(Values):
    """The expressions of a block as a function of pointers, scalars, `lane` and `live`.

    `known` are the names of scalars, `used` those that are needed, and `terms` the values it
    computes.
    """

    known: frozenset[str] = frozenset()
    used: dict[str, None] = field(default_factory=dict[str, None])
    terms: list[Term] = field(default_factory=list[Term])

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= self.known

    def store_function(self) -> list[str]:
        """A function that stores; all values are computed first, since outputs may alias inputs."""
        ready = self._ready()
        for store, value in zip(self.kernel.stores, ready, strict=True):
            self.body.line(f"tl.store({self._pointer(store.operand)} + lane, {value}, live)")
        return self._function()

    def return_function(self, terms: Sequence[Expr], types: Sequence[DType]) -> list[str]:
        """A function that returns values, in these types."""
        self.terms = list(terms)
        ready = [self._cast(term, dtype) for term, dtype in zip(terms, types, strict=True)]
        self.body.line(f"return {', '.join(ready)}")
        return self._function()

    def scalar_stores(self, depth: int) -> list[str]:
        """Lines that store scalars, after all are computed."""
        self.body.depth = depth
        ready = self._ready()
        for store, value in zip(self.kernel.stores, ready, strict=True):
            self.body.line(f"tl.store({self._pointer(store.operand)}, {value})")
        return self.body.lines

    def call(self, live: str) -> str:
        """The function's call for a block."""
        return f"{self.name}({', '.join([*self.pointers.values(), *self.used, 'lane', live])})"

    @property
    def is_wide(self) -> bool:
        """True if it processes tensor elements, not only scalars."""
        return bool(self.pointers) and product(self.kernel.shape) != 1

    def reads(self) -> set[str]:
        """The names of the operands it reads."""
        loaded = {cast(Source, part.extra).operand.name for part, _ in self.loads}
        return loaded | self.used.keys()

    def writes(self) -> set[str]:
        """The names of the operands it writes."""
        return {store.operand.name for store in self.kernel.stores}

    def _ready(self) -> list[str]:
        self.terms = [store.value for store in self.kernel.stores]
        return [self._cast(store.value, store.operand.type.dtype) for store in self.kernel.stores]

    def _function(self) -> list[str]:
        about = '    """One block; `live` masks the elements that exist, None for a full block."""'
        return ["@triton.jit", f"def {self.call('live')}:", about, *self.body.lines, "", ""]

    def _name(self, part: Expr) -> None:
        source = part.extra
        if isinstance(source, Source) and source.operand.name in self.known:
            self.used[source.operand.name] = None
            self.text[part] = source.operand.name
        else:
            super()._name(part)

    def _load(self, part: Expr) -> str:
        source = cast(Source, part.extra)
        return f"tl.load({self._pointer(source.operand)} + lane, live)"
