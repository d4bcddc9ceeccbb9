"""What the kernels of attention share: addresses of tiles, masks, dropout, launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.triton.attention.tiles import AttentionTile
from compiler.codegen.triton.cost import KernelTraffic, all_elements
from compiler.codegen.triton.expressions import pointer_type, power_of_two, size_type
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.numpy_names import SIZE
from compiler.codegen.triton.tiling.tiles import MIN_SIDE, WARPS
from compiler.codegen.writer import comment_lines
from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

LOG2_E = 1.4426950408889634

PARTS = 3
"""bfloat16 parts of a float32 factor."""


@dataclass(frozen=True)
class Template:
    """The lines of a kernel before its loop over tiles, in it and after it.

    `{…}` stands for what differs between attentions. `writes` are the operands that it stores,
    `products` the widths of its products for each pair of a query and a key.
    """

    head: Sequence[str]
    loop: Sequence[str]
    tail: Sequence[str]
    writes: Sequence[str]
    products: Sequence[str]

    @staticmethod
    def lines(text: str) -> list[str]:
        """Split a text, whose first and last line are empty."""
        return text.strip("\n").split("\n")


@dataclass
class AttentionEmitter:
    """Emits a kernel from a template. `looped` is the axis of its loop: "i" queries, "j" keys.

    In tiles of scores the looped axis is the last one. Values for each query are loaded, like
    tiles, with padding where there is no query.
    """

    spec: Attention
    operands: Mapping[str, NumpyOperand]
    name: str
    comment: Sequence[str]
    tile: AttentionTile
    looped: str
    sizes: dict[Size, str] = field(default_factory=dict[Size, str])
    helpers: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        spec = self.spec
        self.dtype = self.operands["q"].type.dtype
        self.constants = {
            "ROWS": self.tile.rows, "KEYS": self.tile.keys,
            "WIDTH": max(MIN_SIDE, power_of_two(spec.width)),
            "COLUMNS": max(MIN_SIDE, power_of_two(spec.value_width)),
        }  # fmt: skip

    def emit(self, template: Template, **texts: str) -> KernelSource:
        """Emit the source and its launch; `texts` are more of what differs."""
        loop = [f"    {line}" for line in self._filled(template.loop, texts)]
        head, tail = (self._filled(lines, texts) for lines in (template.head, template.tail))
        parameters = [*self.operands, *self.sizes.values()]
        parameters += [f"{constant}: tl.constexpr" for constant in (*self.constants, "INDEX")]
        lines = [self._decorator(), f"def {self.name}({', '.join(parameters)}):"]
        lines += comment_lines(self.comment)
        lines += [f"    {line}" for line in (*head, *loop, *tail)]
        types = {name: pointer_type(operand) for name, operand in self.operands.items()}
        types |= {name: size_type(size) for size, name in self.sizes.items()}
        options = {"num_stages": self.tile.stages}
        options |= {} if self.tile.warps == WARPS else {"num_warps": self.tile.warps}
        return KernelSource(
            self.name, lines, [*dict.fromkeys(self.helpers)], self._launch(options), types,
            self.constants, self._traffic(template), options,
        )  # fmt: skip

    def _filled(self, lines: Sequence[str], texts: Mapping[str, str]) -> list[str]:
        """Lines with what differs between attentions; those that become empty are left out."""
        spec = self.spec
        own = {
            "queries": self.size(spec.queries), "keys": self.size(spec.keys),
            "q": self.loaded("q", "i", "d"), "k": self.loaded("k", "j", "d"),
            "v": self.loaded("v", "j", "e"), "scale": repr(spec.scale * LOG2_E),
            "factor": repr(spec.factor), "masked": self.masked(),
        }  # fmt: skip
        for name in ("query", "key", "value", "upstream"):
            own[f"f_{name}"] = self.factor(name)
        filled = [part for line in lines for part in line.format(**own, **texts).split("\n")]
        return [line for line in filled if line.strip()]

    # ---- operands ----

    def loaded(self, name: str, row: str, column: str) -> str:
        """A tile of an operand, padded with 0."""
        guard = self.guard(**{row: "[:, None]", column: "[None, :]"})
        return f"tl.load({self.address(name, row, column)}{guard and guard + ', 0'})"

    def stored(self, name: str, row: str, column: str, value: str) -> str:
        """The store of a tile."""
        guard = self.guard(**{row: "[:, None]", column: "[None, :]"})
        return f"tl.store({self.address(name, row, column)}, {self.rounded(value)}{guard})"

    def address(self, name: str, row: str, column: str) -> str:
        """The addresses of a tile of an operand."""
        return self._moved_along(name, (f"{row}[:, None]", f"{column}[None, :]"))

    def of_query(self, name: str, part: int = 0) -> str:
        """The addresses of a float32 number for each query; `part` counts all queries before."""
        place = f"{name} + matrix * {self.size(self.spec.queries)} + i"
        count = product([part, *self.spec.stack, self.spec.queries])
        return place if part == 0 else f"{place} + {self.size(count)}"

    def per_query(self, name: str, part: int = 0, other: float = 0.0) -> str:
        """The number for each query, `other` behind the last."""
        guard = self.guard(i="")
        return f"tl.load({self.of_query(name, part)}{guard and f'{guard}, {other!r}'})"

    def _moved_along(self, name: str, indices: Sequence[str]) -> str:
        """The address of a matrix of an operand, moved along the axes where it is not repeated."""
        *stack, by_row, by_column = self.spec.strides(name)
        places = [*(self._place(axis) for axis in range(len(stack))), *indices]
        pairs = zip(places, (*stack, by_row, by_column), strict=True)
        return " + ".join([name, *filter(None, (self._moved(*pair) for pair in pairs))])

    def _moved(self, index: str, stride: Size) -> str:
        if stride == 0:
            return ""
        return index if stride == 1 else f"{index} * {self.size(stride)}"

    def _place(self, axis: int) -> str:
        """The index of a program's matrix on an axis of the stack."""
        stack = self.spec.stack
        inner = product(stack[axis + 1 :])
        text = "matrix" if inner == 1 else f"(matrix // {self.size(inner)})"
        return text if axis == 0 else f"({text} % {self.size(stack[axis])})"

    def size(self, size: Size) -> str:
        """A size: a number, or a parameter."""
        if isinstance(size, int):
            return str(size)
        return self.sizes.setdefault(size, f"size{len(self.sizes)}")

    def bound(self, count: Size, width: int) -> str:
        """The end of a loop: a parameter if there are several tiles, so that the compiler
        pipelines the loop instead of writing it out, which takes more registers than there are.
        """
        if isinstance(count, int) and count <= width:
            return str(count)
        return self.sizes.setdefault(count, f"size{len(self.sizes)}")

    def guard(self, **places: str) -> str:
        """The argument that masks elements that do not exist, for indices and how they broadcast;
        empty if all exist.
        """
        parts = [
            f"({index}{place} < {self.size(size)})"
            for index, place in places.items()
            for size, width in [self.extent(index)]
            if not is_multiple(size, width)
        ]
        return f", {' & '.join(parts)}" if parts else ""

    def extent(self, index: str) -> tuple[Size, int]:
        """The elements on an axis, and those of a tile."""
        spec, of = self.spec, self.constants
        return {
            "i": (spec.queries, of["ROWS"]), "j": (spec.keys, of["KEYS"]),
            "d": (spec.width, of["WIDTH"]), "e": (spec.value_width, of["COLUMNS"]),
        }[index]  # fmt: skip

    # ---- scores ----

    @property
    def by_axis(self) -> Mapping[str, str]:
        """How the indices of queries and keys broadcast in a tile of scores."""
        return {"i": "[:, None]", "j": "[None, :]"} if self.looped == "j" else {
            "i": "[None, :]", "j": "[:, None]"
        }  # fmt: skip

    def masked(self) -> str:
        """The lines that add the mask to scores, and exclude keys that do not exist or are later
        than their query.
        """
        by = self.by_axis
        lines = [f"score += {self._mask()} * {LOG2_E!r}"] if self.spec.mask else []
        keys, width = self.extent("j")
        excluded = [] if is_multiple(keys, width) else [f"(j{by['j']} < {self.size(keys)})"]
        if self.spec.is_causal:
            excluded.append(f"(j{by['j']} <= i{by['i']})")
        if excluded:
            lines.append(f'score = tl.where({" & ".join(excluded)}, score, float("-inf"))')
        return "\n".join(lines)

    def _mask(self) -> str:
        """The tile of the mask, which is loaded along the axes that it has alone.

        Triton would keep a row of [1, KEYS] in the layout of scores, and run out of registers.
        """
        axes = dict(zip("ij", self.spec.mask[-2:], strict=True))
        moving = {axis: "" for axis, stride in axes.items() if stride != 0}
        if len(moving) == 2:
            moving = dict(self.by_axis)
        guard = self.guard(**moving)
        places = [f"{axis}{moving.get(axis, '')}" for axis in axes]
        loaded = f"tl.load({self._moved_along('mask', places)}{guard and guard + ', 0'})"
        broadcast = self.by_axis.get("".join(moving), "")
        return f"{loaded}.to(tl.float32){broadcast}"

    def kept(self) -> str:
        """The line that draws which weights of a tile are kept; empty without dropout.

        A program draws four numbers at a time, if those of every row begin with a whole block. The
        index of a score may have more than 32 bits even if those of all tensors have not.
        """
        spec = self.spec
        if not spec.dropout:
            return ""
        row = f"(matrix.to(tl.int64) * {self.size(spec.queries)} + i) * {self.size(spec.keys)}"
        if is_multiple(spec.keys, 4):
            self.helpers.append("uniform_tile")
            drawn = f"uniform_tile(tl.load(rng), 0, ({row})[:, None], j[None, :], ROWS, KEYS)"
        else:
            self.helpers.append("uniform")
            drawn = f"uniform(tl.load(rng), 0, ({row})[:, None] + j[None, :])"
        kept = f"{drawn} >= {spec.dropout!r}"
        return f"kept = {kept}" if self.looped == "j" else f"kept = tl.trans({kept})"

    def unless_dropped(self, value: str) -> str:
        """A tile, with 0 where a weight is dropped."""
        return f"tl.where(kept, {value}, 0.0)" if self.spec.dropout else value

    def dot(self, left: str, right: str, total: str = "") -> str:
        """The product of two factors in float32, added to a total; of float32, by parts."""
        if self.dtype is DType.FP32:
            self.helpers.append("float32_dot")
            return f"float32_dot({left}, {right}, {total or '0.0'}, {PARTS})"
        return f"tl.dot({left}, {right}, {total and total + ', '}out_dtype=tl.float32)"

    def factor(self, text: str) -> str:
        """A tile as a factor of a product."""
        if self.dtype is not DType.BF16:
            return text
        self.helpers.append("factor")
        return f"factor({text})"

    def rounded(self, text: str) -> str:
        """A float32 tile in the element type."""
        if self.dtype is DType.FP32:
            return text
        if self.dtype is not DType.BF16:
            return f"({text}).to(tl.float16)"
        self.helpers.append("rounded")
        return f"rounded({text})"

    # ---- the launch ----

    def _decorator(self) -> str:
        """The decorator; sizes are not specialised, so that other sizes need no recompilation."""
        any_number = [name for size, name in self.sizes.items() if size_type(size) == SIZE]
        return f"@triton.jit(do_not_specialize={any_number!r})" if any_number else "@triton.jit"

    def _launch(self, options: Mapping[str, int]) -> str:
        spec, tile = self.spec, self.tile
        count, width = (spec.queries, tile.rows) if self.looped == "j" else (spec.keys, tile.keys)
        grid = f"-(-({count}) // {width}) * ({product(spec.stack)})"
        pointers = [operand.name for operand in self.operands.values()]
        settings = [f"{key}={value}" for key, value in {**self.constants, **options}.items()]
        arguments = [*pointers, *map(str, self.sizes), *settings, "INDEX=INDEX"]
        return f"{self.name}[({grid},)]({', '.join(arguments)})"

    def _traffic(self, template: Template) -> KernelTraffic:
        """The cost: operands are read once, caches serve other tiles."""
        spec = self.spec
        widths = {"width": spec.width, "columns": spec.value_width}
        total = sum(widths[name] for name in template.products)
        pairs = (*spec.stack, spec.queries, spec.keys)
        reads = [all_elements(x) for n, x in self.operands.items() if n not in template.writes]
        writes = [all_elements(self.operands[name]) for name in template.writes]
        return KernelTraffic(tuple(reads), tuple(writes), {pairs: 8}, (*pairs, total), self.dtype)
