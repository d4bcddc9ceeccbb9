"""Lowers expressions of a kernel to source lines: values, addresses and masks.

Each node becomes a line that assigns a variable, written once before its first use; short nodes
used once are inlined. The layout of elements and loop iterations differs between kinds of kernels,
which override it; what is common is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import isfinite
from typing import cast

from compiler.codegen.kernel.analysis import loop_dependencies, operand_types
from compiler.codegen.kernel.body import KernelBody, Source, number_of
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import ELEMENTWISE, Expr, Term, ordered
from compiler.codegen.triton.expressions import (
    HALF_FUNCTIONS,
    Loop,
    name_stem,
    pointer_type,
    use_counts,
)
from compiler.codegen.triton.helpers import HELPERS
from compiler.codegen.triton.numpy_names import TYPES, bare, call_text, helper_of, number
from compiler.codegen.triton.random import DRAWS, draw_call
from compiler.codegen.writer import Names, Writer
from compiler.ir.dims import Dim, Size, product
from compiler.ir.opdef.slots import as_float32
from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass

RESERVED = frozenset(
    "tl triton lane live start first here whole middle apart LANES INDEX range float".split()
)
"""Names that kernels use themselves."""

UNNAMED = frozenset({"size", "loop", "full", "moment", "program"})
"""Nodes that need no line, since they have a name or are a number."""

MAX_INLINE_LENGTH = 48
"""Most characters of an inlined expression; every name counts as `name_of_x`, so that kernels that
differ only in names have equal text.
"""
PLACEHOLDER = "name_of_x"
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w(.])")


@dataclass
class Values:
    """Emits the computation of a kernel, line by line.

    `loads` are recorded with the number of the pass over a loop, from 1, that contains them. If
    `padded` is not 0, an index of the first axis has so many elements, the last ones unused.
    """

    kernel: KernelBody
    name: str
    comment: Sequence[str]
    body: Writer = field(default_factory=lambda: Writer(1))
    text: dict[Expr, str] = field(default_factory=dict[Expr, str])
    helpers: dict[str, None] = field(default_factory=dict[str, None])
    pointers: dict[str, str] = field(default_factory=dict[str, str])
    pointer_types: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[Dim, str] = field(default_factory=dict[Dim, str])
    open_loops: frozenset[int] = frozenset()
    loop_pass: int = 0
    padded: int = 0
    loads: list[tuple[Expr, int]] = field(default_factory=list[tuple[Expr, int]])
    moments: dict[Expr, tuple[str, str, str]] = field(
        default_factory=dict[Expr, "tuple[str, str, str]"]
    )

    def __post_init__(self) -> None:
        self.names = Names({*HELPERS, *RESERVED})
        self.loop_deps = loop_dependencies(self.kernel)
        self.uses = use_counts(self.kernel)
        self.loops: list[Loop] = []

    def _hoist(self, value: Term, index: int) -> None:
        """Hoist loop-invariant nodes out of the loop."""
        if isinstance(value, Expr):
            for part in ordered(value, self.text, self._dependencies):
                if index not in self.loop_deps[part]:
                    self._name(part)

    # ---- expressions ----

    def _value(self, term: Term) -> str:
        """A term as source text; its operands are assigned first."""
        if not isinstance(term, Expr):
            return number(term)
        for part in ordered(term, self.text, self._dependencies):
            self._name(part)
        return self.text[term]

    def _name(self, part: Expr) -> None:
        if part in self.text:
            return
        text = self._text(part)
        named = part.fn in UNNAMED or (part.fn in ("index", "ravel") and text.isidentifier())
        if named or self._is_inlined(part, text):
            self.text[part] = text
            return
        self.text[part] = self.names.make(name_stem(part))
        self.body.line(f"{self.text[part]} = {bare(text)}")

    def _is_inlined(self, part: Expr, text: str) -> bool:
        """True for a short node with one use."""
        computed = part.fn == "astype" or part.fn in ELEMENTWISE
        return (
            computed
            and self.uses[part] == 1
            and len(_NAMES.sub(PLACEHOLDER, text)) <= MAX_INLINE_LENGTH
        )

    def _text(self, part: Expr) -> str:
        match part.fn:
            case "index":
                return self._index(number_of(part))
            case "loop":
                return self.loops[number_of(part)].name
            case "size":
                return self._size(cast(Size, part.extra))
            case "moment":
                return self.moments[part.parts()[0]][number_of(part)]
            case "full":
                return self._value(part.args[0])
            case "load":
                self.loads.append((part, self.loop_pass))
                return self._load(part)
            case "astype":
                return self._cast(part.args[0], part.dtype)
            case "ravel":
                return self._offset(part.args, cast(Shape, part.extra))
            case "key":
                return self._key(part)
            case fn if fn in DRAWS:
                return self._random_number(part)
            case _:
                return self._call(part)

    def _index(self, axis: int) -> str:
        """The index along an axis, from the flat index of the element."""
        if self.padded and axis == 0:
            return f"lane // {self.padded}"
        inner = product(self.kernel.shape[axis + 1 :])
        flat = f"lane % {self.padded}" if self.padded else "lane"
        text = flat if inner == 1 else f"{flat} // {self._size(inner)}"
        if axis == 0 or (self.padded and axis == 1):
            return text
        return f"{text} % {self._size(self.kernel.shape[axis])}"

    def _load(self, part: Expr) -> str:
        source = cast(Source, part.extra)
        rank = len(source.shape)
        indices, guard = part.args[:rank], part.args[rank:]
        offset = self._offset(indices, source.shape)
        mask = self._mask((*indices, *guard[:1]), guard[0] if guard else None)
        other = f", {self._value(guard[1])}" if guard else ""
        return f"tl.load({self._pointer(source.operand)} + {offset}, {mask}{other})"

    def _offset(self, indices: Sequence[Term], shape: Shape) -> str:
        """The offset of an element of an operand, in elements."""
        own = zip(indices, self.kernel.indices, strict=False)
        if not self.padded and shape == self.kernel.shape and all(a is b for a, b in own):
            return "lane"
        pairs = self._joined(indices, shape)
        parts = [
            self._value(index) + (f" * {self._size(stride)}" if stride != 1 else "")
            for index, stride in pairs
        ]
        if not any(isinstance(i, Expr) and self._varies_by_element(i) for i, _ in pairs):
            parts.append("lane * 0")
        return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"

    def _joined(self, indices: Sequence[Term], shape: Shape) -> list[tuple[Term, Size]]:
        """Indices and their strides, merged where possible."""
        pairs = self.kernel.joined(indices, shape)
        for index in (index for index, _ in pairs if isinstance(index, Expr)):
            for part in ordered(index, self.loop_deps):
                self.loop_deps[part] = frozenset[int]().union(
                    *(self.loop_deps[p] for p in part.parts())
                )
        return pairs

    def _dependencies(self, part: Expr) -> list[Expr]:
        """The nodes that must be assigned before a node is emitted."""
        if part.fn not in ("load", "ravel"):
            return part.parts()
        shape = cast(Source, part.extra).shape if part.fn == "load" else cast(Shape, part.extra)
        indices = [index for index, _ in self._joined(part.args[: len(shape)], shape)]
        return [e for e in (*indices, *part.args[len(shape) :]) if isinstance(e, Expr)]

    def _varies_by_element(self, term: Expr) -> bool:
        """True if an index varies between the elements of a block."""
        return any(part.fn in ("index", "load") for part in ordered(term))

    def _key(self, part: Expr) -> str:
        """Load an RNG key, once for all elements."""
        return f"tl.load({self._pointer(cast(NumpyOperand, part.extra))}).to(tl.int64)"

    def _random_number(self, part: Expr) -> str:
        """A random number per element; consecutive elements share a Philox block by fours."""
        args = [self._value(arg) for arg in part.args]
        helper, text = draw_call(part, args, in_order=args[1] == "lane" and not self.loops)
        self.helpers[helper] = None
        return text

    def _mask(self, used: Iterable[Term], guard: Term | None, extra: Term = 0) -> str:
        reached = {i for t in (*used, extra) if isinstance(t, Expr) for i in self.loop_deps[t]}
        parts = ["live", *(self.loops[i].live for i in sorted(reached))]
        if guard is not None:
            parts.append(self._guard(guard))
        return " & ".join(parts)

    def _guard(self, guard: Term) -> str:
        """A condition as a term of a mask."""
        text = bare(self._cast(guard, DType.BOOL))
        return text if text.isidentifier() else f"({text})"

    def _call(self, part: Expr) -> str:
        if part.fn in ("index_div", "index_mod"):
            return call_text(part.fn, "", [self._value(arg) for arg in part.args])
        wanted = operand_types(part)
        kind = next((dtype for dtype in wanted if dtype is not None), part.dtype)
        wide = kind is DType.FP16 and part.fn not in HALF_FUNCTIONS
        types = [DType.FP32 if wide and dtype is DType.FP16 else dtype for dtype in wanted]
        args = [self._cast(arg, dtype) for arg, dtype in zip(part.args, types, strict=True)]
        helper = helper_of(part.fn, kind)
        if helper:
            self.helpers[helper] = None
        text = call_text(part.fn, helper, args)
        return f"({text}).to(tl.float16)" if wide and part.dtype is DType.FP16 else text

    def _cast(self, term: Term, dtype: DType | None) -> str:
        """Cast a term; integers and indices mix without a cast."""
        if dtype is DType.BOOL and not isinstance(term, Expr):
            return str(bool(term))
        if dtype is DType.BF16:
            return self._rounded(term)
        text = self._value(term)
        if dtype is DType.FP64 and _needs_float64(term):
            return f"tl.full((), {text}, {TYPES[dtype]})"
        if dtype is None or not isinstance(term, Expr) or term.dtype is dtype:
            return text
        if dtype is DType.BOOL:
            return f"({text} != 0)"
        if term.fn == "full":
            return text
        return (
            f"{text}.to({TYPES[dtype]})" if _is_tensor(term) else f"tl.cast({text}, {TYPES[dtype]})"
        )

    def _rounded(self, term: Term) -> str:
        """Round a term to bfloat16."""
        inner = term.args[0] if isinstance(term, Expr) and term.fn == "full" else term
        if not isinstance(inner, Expr):
            return number(float(DType.BF16.numpy.type(inner)))
        if inner.dtype is DType.BF16:
            return self._value(inner)
        self.helpers["rounded"] = None
        return f"rounded({self._value(inner)})"

    def _pointer(self, operand: NumpyOperand) -> str:
        name = operand.name
        if name not in self.pointers:
            self.pointers[name] = self.names.make(f"{name}_ptr")
            self.pointer_types[name] = pointer_type(operand)
        return self.pointers[name]

    def _size(self, size: Size) -> str:
        if not isinstance(size, Dim):
            return str(size)
        if size not in self.sizes:
            self.sizes[size] = self.names.make(str(size))
        return self.sizes[size]


def _needs_float64(term: Term) -> bool:
    """Whether a term is a number that float32, which Triton gives plain numbers, cannot hold."""
    inner = term.args[0] if isinstance(term, Expr) and term.fn == "full" else term
    return isinstance(inner, float) and isfinite(inner) and as_float32(inner) != inner


def _is_tensor(term: Expr) -> bool:
    """False for terms made only of sizes: Triton makes a size of 1 a plain number."""
    return any(part.fn in ("index", "loop", "load") for part in ordered(term))
