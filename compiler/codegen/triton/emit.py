"""Kernels as source: lanes become blocks with masks, loops become tiles or turns over tiles.

A kernel without loops is one row of `BLOCK` lanes a program. With loops, lanes stand in a column
and the turns of a loop in a row beside them: a loop whose turns fit into one tile is that tile, and
what several reductions read of it is loaded once; a longer one is run through tile by tile, once
for all reductions that wait for the same others, and once more for what is stored in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from compiler.codegen.frame import NumpyOperand
from compiler.codegen.trace import Expr, Term, ordered
from compiler.codegen.triton.expressions import (
    NARROW,
    Loop,
    held_in,
    limits_of,
    loop_of,
    operand_types,
    power_of_two,
    programs,
    reach_of,
    roots_of,
    stem_of,
)
from compiler.codegen.triton.helpers import HELPERS
from compiler.codegen.triton.lanes import Lanes, Source, Store, number_of
from compiler.codegen.triton.spelling import POINTERS, SIZE, TYPES, call_text, helper_of, number
from compiler.codegen.writer import Names, Writer
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType, Shape

LANES = 1024
"""Lanes of a program without loops."""

TILE = 1024
"""Turns of a loop that stand side by side at most."""

WHOLE_LOOP = 4096
"""Turns up to which a loop is one tile."""

ELEMENTS = 4096
"""Lanes times turns of a tile, about."""

RESERVED = frozenset("tl triton lane live start LANES INDEX range float".split())
"""Names that kernels use themselves."""

_START = {"sum": "0", "prod": "1", "max": 'float("-inf")', "min": 'float("inf")'}
_STEP = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})",
}  # fmt: skip


@dataclass
class Written:
    """A kernel's text, the helpers it needs, and the call that launches it.

    `types` are those of its parameters, as Triton's compiler takes them; `constants` the values of
    the parameters that are known when it is compiled, but for INDEX.
    """

    name: str
    lines: list[str]
    helpers: list[str]
    launch: str
    types: dict[str, str]
    constants: dict[str, int]


def emit(lanes: Lanes, names: Names, comment: Sequence[str] = ()) -> Written:
    """The source of a kernel, and its launch with names and sizes of the step's scope."""
    return Emitter(lanes, names.make(lanes.name), comment).emit()


@dataclass
class Emitter:
    """Writes one kernel, line by line."""

    lanes: Lanes
    name: str
    comment: Sequence[str]
    body: Writer = field(default_factory=lambda: Writer(1))
    text: dict[Expr, str] = field(default_factory=dict[Expr, str])
    helpers: dict[str, None] = field(default_factory=dict[str, None])
    pointers: dict[str, str] = field(default_factory=dict[str, str])
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[Dim, str] = field(default_factory=dict[Dim, str])
    open: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.names = Names({*HELPERS, *RESERVED})
        self.reach = reach_of(self.lanes)
        self.loops = [self._loop(i, size) for i, size in enumerate(self.lanes.loops)]
        widest = max((loop.width for loop in self.loops), default=0)
        self.width = max(1, ELEMENTS // widest) if widest else LANES

    def _loop(self, index: int, size: Size) -> Loop:
        whole = isinstance(size, int) and size <= WHOLE_LOOP
        width = power_of_two(size) if whole and isinstance(size, int) else TILE
        name = self.names.make(f"r{index}" if index else "r")
        return Loop(size, width, whole, name, self.names.make(f"{name}_live"))

    # ---- the whole ----

    def emit(self) -> Written:
        """Lanes, then reductions level by level, then what is stored."""
        self._head()
        for level in self._levels():
            self._reduce(level)
        self._store_all()
        helpers, constants = list(self.helpers), {"LANES": self.width}
        return Written(self.name, self._lines(), helpers, self._launch(), self._types(), constants)

    def _types(self) -> dict[str, str]:
        """What each parameter is."""
        pointers = {name: self.kinds[operand] for operand, name in self.pointers.items()}
        return pointers | dict.fromkeys(self.sizes.values(), SIZE)

    def _head(self) -> None:
        side = "[:, None]" if self.loops else ""
        self.body.line(f"lane = tl.program_id(0).to(INDEX) * LANES + tl.arange(0, LANES){side}")
        self.body.line(f"live = lane < {self._size(product(self.lanes.shape))}")
        for loop in (loop for loop in self.loops if loop.whole):
            self.body.line(f"{loop.name} = tl.arange(0, {loop.width})[None, :]")
            self.body.line(f"{loop.live} = {loop.name} < {self._size(loop.size)}")

    def _lines(self) -> list[str]:
        parameters = [*self.pointers.values(), *self.sizes.values()]
        parameters += [f"{each}: tl.constexpr" for each in (*self._constants(), "INDEX")]
        head = ["@triton.jit", f"def {self.name}({', '.join(parameters)}):"]
        return [*head, *(f"    # {line}" for line in self.comment), *self.body.lines]

    def _constants(self) -> list[str]:
        """What is known when the kernel is compiled."""
        return ["LANES"]

    def _launch(self) -> str:
        count = product(self.lanes.shape)
        grid = programs(count, self.width)
        arguments = [*self.pointers, *map(str, self.sizes), f"LANES={self.width}", "INDEX=INDEX"]
        return f"{self.name}[({grid},)]({', '.join(arguments)})"

    # ---- reductions ----

    def _levels(self) -> list[list[Expr]]:
        """Reductions that can share a run through their loop, those that others wait for first."""
        depth: dict[Expr, int] = {}
        for part in (part for root in roots_of(self.lanes.stores) for part in ordered(root)):
            below = max((depth[each] for each in part.parts()), default=0)
            depth[part] = below + (part.fn == "reduce")
        found: dict[tuple[int, int], list[Expr]] = {}
        for part in (part for part in depth if part.fn == "reduce"):
            found.setdefault((depth[part], loop_of(part)), []).append(part)
        return [found[key] for key in sorted(found)]

    def _reduce(self, parts: list[Expr]) -> None:
        loop = self.loops[loop_of(parts[0])]
        for part in parts:
            self._hoist(part.args[0], loop_of(part))
        totals = [self._begin(part, loop) for part in parts]
        self._enter(loop, loop_of(parts[0]))
        for part, total in zip(parts, totals, strict=True):
            self._take(part, loop, total)
        self._leave(loop)
        for part, total in zip(parts, totals, strict=True):
            self._close(part, total)

    def _begin(self, part: Expr, loop: Loop) -> str:
        total = self.names.make(f"{part.extra}_{loop.name}")
        if not loop.whole:
            start, kind = self._start(part), TYPES[held_in(part.dtype)]
            self.body.line(f"{total} = tl.full((LANES, {loop.width}), {start}, {kind})")
        return total

    def _take(self, part: Expr, loop: Loop, total: str) -> None:
        """Join the turns of a tile, those that are none left out."""
        value = self._cast(part.args[0], held_in(part.dtype))
        value = f"tl.where({loop.live} & live, {value}, {self._start(part)})"
        if loop.whole:
            self.body.line(f"{total} = {value}")
        else:
            self._need(part)
            self.body.line(f"{total} = {_STEP[str(part.extra)].format(total, value)}")

    def _close(self, part: Expr, total: str) -> None:
        """One number a lane from a tile; NaN wins, as NumPy has it."""
        call = {"sum": "sum", "max": "max", "min": "min"}.get(str(part.extra))
        if call is None:
            self.helpers["times"] = None
            text = f"tl.reduce({total}, 1, times)[:, None]"
        elif call == "sum" or not part.dtype.is_float:
            text = f"tl.{call}({total}, 1)[:, None]"
        else:
            self.helpers[{"max": "larger", "min": "smaller"}[call]] = None
            text = f"tl.reduce({total}, 1, {'larger' if call == 'max' else 'smaller'})[:, None]"
        self.body.line(f"{total} = {text}")
        self.text[part] = total

    def _need(self, part: Expr) -> None:
        if part.extra in ("max", "min"):
            self.helpers[{"max": "larger", "min": "smaller"}[str(part.extra)]] = None

    def _start(self, part: Expr) -> str:
        if part.extra in ("sum", "prod") or part.dtype.is_float:
            return _START[str(part.extra)]
        limits = (0, 1) if part.dtype is DType.BOOL else limits_of(part.dtype)
        return str(limits[0] if part.extra == "max" else limits[1])

    # ---- loops ----

    def _enter(self, loop: Loop, index: int) -> None:
        if loop.whole:
            return
        self.body.line(f"for start in range(0, {self._size(loop.size)}, {loop.width}):")
        self.body.depth += 1
        self.body.line(f"{loop.name} = start + tl.arange(0, {loop.width})[None, :]")
        self.body.line(f"{loop.live} = {loop.name} < {self._size(loop.size)}")
        self.open = frozenset({index})

    def _leave(self, loop: Loop) -> None:
        """What was named in a loop is not known after it."""
        if loop.whole:
            return
        self.body.depth -= 1
        self.text = {part: text for part, text in self.text.items() if not self._inside(part)}
        self.open = frozenset()

    def _inside(self, part: Expr) -> bool:
        return any(not self.loops[index].whole for index in self.reach[part])

    def _hoist(self, value: Term, index: int) -> None:
        """Name what does not change from turn to turn before the loop begins."""
        if isinstance(value, Expr):
            for part in ordered(value, self.text):
                if index not in self.reach[part]:
                    self._name(part)

    # ---- stores ----

    def _store_all(self) -> None:
        by_loop: dict[int | None, list[Store]] = {}
        for store in self.lanes.stores:
            found = {i for root in roots_of([store]) for i in self.reach[root]}
            turning = [i for i in sorted(found) if not self.loops[i].whole]
            by_loop.setdefault(turning[0] if turning else None, []).append(store)
        for index, stores in by_loop.items():
            self._store_in(index, stores)

    def _store_in(self, index: int | None, stores: list[Store]) -> None:
        if index is None:
            self._store(stores)
            return
        for root in roots_of(stores):
            self._hoist(root, index)
        self._enter(self.loops[index], index)
        self._store(stores)
        self._leave(self.loops[index])

    def _store(self, stores: list[Store]) -> None:
        """All values before the first store: an output may stand where an input was."""
        ready = [(each, self._cast(each.value, each.operand.type.dtype)) for each in stores]
        for store, value in ready:
            indices = store.indices if store.where is None else (*store.indices, store.where)
            place = self._pointer(store.operand)
            offset = self._offset(store.indices, store.shape)
            mask = self._mask(indices, store.where, extra=store.value)
            call = "atomic_add" if store.adds else "store"
            self.body.line(f"tl.{call}({place} + {offset}, {value}, {mask})")

    # ---- expressions ----

    def _value(self, term: Term) -> str:
        """A term as text, with all it is made of named before."""
        if not isinstance(term, Expr):
            return number(term)
        for part in ordered(term, self.text):
            self._name(part)
        return self.text[term]

    def _name(self, part: Expr) -> None:
        if part in self.text:
            return
        text = self._text(part)
        if part.fn in ("size", "loop", "full") or (part.fn == "index" and text.isidentifier()):
            self.text[part] = text
            return
        self.text[part] = self.names.make(stem_of(part))
        self.body.line(f"{self.text[part]} = {text}")

    def _text(self, part: Expr) -> str:
        match part.fn:
            case "index":
                return self._index(number_of(part))
            case "loop":
                return self.loops[number_of(part)].name
            case "size":
                return self._size(cast(Size, part.extra))
            case "full":
                return self._value(part.args[0])
            case "load":
                return self._load(part)
            case "astype":
                return self._cast(part.args[0], part.dtype)
            case _:
                return self._call(part)

    def _index(self, axis: int) -> str:
        """The index of an axis from the number of the lane."""
        inner = product(self.lanes.shape[axis + 1 :])
        text = "lane" if inner == 1 else f"lane // {self._size(inner)}"
        return text if axis == 0 else f"{text} % {self._size(self.lanes.shape[axis])}"

    def _load(self, part: Expr) -> str:
        source = cast(Source, part.extra)
        rank = len(source.shape)
        indices, guard = part.args[:rank], part.args[rank:]
        offset = self._offset(indices, source.shape)
        mask = self._mask((*indices, *guard[:1]), guard[0] if guard else None)
        other = f", {self._value(guard[1])}" if guard else ""
        return f"tl.load({self._pointer(source.operand)} + {offset}, {mask}{other})"

    def _offset(self, indices: Sequence[Term], shape: Shape) -> str:
        """Where an element lies behind the first, in elements."""
        own = zip(indices, self.lanes.indices, strict=False)
        if shape == self.lanes.shape and all(a is b for a, b in own):
            return "lane"
        parts: list[str] = []
        for axis, index in enumerate(indices):
            stride = product(shape[axis + 1 :])
            if isinstance(index, int) and index == 0:
                continue
            text = self._value(index)
            parts.append(text if stride == 1 else f"{text} * {self._size(stride)}")
        if not any(isinstance(i, Expr) and self._spreads(i) for i in indices):
            parts.append("lane * 0")
        return f"({' + '.join(parts)})"

    def _spreads(self, term: Expr) -> bool:
        """True where an index differs from lane to lane, and so gives each a place of its own."""
        return any(part.fn in ("index", "load") for part in ordered(term))

    def _mask(self, used: Iterable[Term], guard: Term | None, extra: Term = 0) -> str:
        reached = {i for t in (*used, extra) if isinstance(t, Expr) for i in self.reach[t]}
        parts = ["live", *(self.loops[i].live for i in sorted(reached))]
        if guard is not None:
            parts.append(f"({self._cast(guard, DType.BOOL)})")
        return " & ".join(parts)

    def _call(self, part: Expr) -> str:
        if part.fn in ("index_div", "index_mod"):
            return call_text(part.fn, "", [self._value(arg) for arg in part.args])
        wanted = operand_types(part)
        kind = next((each for each in wanted if each is not None), part.dtype)
        wide = kind is DType.FP16 and part.fn not in NARROW
        types = [DType.FP32 if wide and each is DType.FP16 else each for each in wanted]
        args = [self._cast(arg, each) for arg, each in zip(part.args, types, strict=True)]
        helper = helper_of(part.fn, kind)
        if helper:
            self.helpers[helper] = None
        text = call_text(part.fn, helper, args)
        return f"({text}).to(tl.float16)" if wide and part.dtype is DType.FP16 else text

    def _cast(self, term: Term, dtype: DType | None) -> str:
        """A term in an element type; whole numbers and indices mix as they are."""
        if dtype is DType.BOOL and not isinstance(term, Expr):
            return str(bool(term))
        text = self._value(term)
        if dtype is None or not isinstance(term, Expr) or term.dtype is dtype:
            return text
        if dtype is DType.BOOL:
            return f"({text} != 0)"
        if term.fn == "full":
            return text
        return f"{text}.to({TYPES[dtype]})"

    def _pointer(self, operand: NumpyOperand) -> str:
        name = operand.name
        if name not in self.pointers:
            self.pointers[name] = self.names.make(f"{name}_ptr")
            self.kinds[name] = POINTERS[operand.type.dtype]
        return self.pointers[name]

    def _size(self, size: Size) -> str:
        if not isinstance(size, Dim):
            return str(size)
        if size not in self.sizes:
            self.sizes[size] = self.names.make(str(size))
        return self.sizes[size]
