"""Attention as one Triton kernel: an online softmax over blocks of keys.

A program has a block of queries of one matrix. For each block of keys it computes scores, and
rescales sums and results whenever a row's maximum grows (M. Milakov and N. Gimelshein, "Online
normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022). Scores are
float32, in powers of 2. The weight of a key whose score is far below the maximum is 0, where the
op `softmax` has exp(-64).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.triton.cost import KernelTraffic, all_elements
from compiler.codegen.triton.expressions import pointer_type, power_of_two, size_type
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.numpy_names import SIZE
from compiler.codegen.triton.tiling.tiles import MIN_SIDE
from compiler.codegen.writer import Names, comment_lines
from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.types import DType
from compiler.support.thresholds import threshold

MOST_COLUMNS = threshold(
    "attention_columns", 128, "columns",
    "wider queries or values of an attention do not fit into the registers of a GPU's program",
    small=16,
)  # fmt: skip
WIDE_TILE = threshold(
    "attention_wide_tile", 64, "columns",
    "blocks of keys of wider queries are half as long on a GPU", small=8,
)  # fmt: skip

LOG2_E = 1.4426950408889634

_HEAD = """
tile = tl.program_id(0).to(INDEX)
blocks = tl.cdiv({queries}, ROWS)
matrix = tile // blocks
i = tile % blocks * ROWS + tl.arange(0, ROWS)
d = tl.arange(0, WIDTH)
e = tl.arange(0, COLUMNS)
query = {q}
most = tl.full((ROWS,), float("-inf"), tl.float32)
total = tl.zeros((ROWS,), tl.float32)
result = tl.zeros((ROWS, COLUMNS), tl.float32)
for start in range(0, {keys}, KEYS):
""".strip().split("\n")

_LOOP = """
j = start + tl.arange(0, KEYS)
key = {k}
score = tl.dot({query}, tl.trans({key}), out_dtype=tl.float32) * {scale}
{masked}
higher = tl.maximum(most, tl.max(score, 1))
reference = tl.where(higher == float("-inf"), 0.0, higher)
power = tl.exp2(score - reference[:, None])
rescale = tl.exp2(most - reference)
total = total * rescale + tl.sum(power, 1)
value = {v}
result = tl.dot({power}, {value}, result * rescale[:, None], out_dtype=tl.float32)
most = higher
""".strip().split("\n")

_TAIL = """
result = result * ({factor} / total)[:, None]
tl.store({out}, {rounded}{live})
""".strip().split("\n")


@dataclass(frozen=True)
class AttentionTile:
    """Queries and keys of a program's tile, and how the loop over keys is pipelined."""

    rows: int
    keys: int
    stages: int


def tile_of(spec: Attention) -> AttentionTile:
    """Return the tile for an attention: the fastest of those measured on an H200."""
    by_key = not spec.mask or spec.mask[-2] == 0
    if spec.width <= WIDE_TILE.value and by_key and is_multiple(spec.keys, 128):
        return AttentionTile(64, 128, 2)
    return AttentionTile(64, 64, 3)


def emit_attention(
    spec: Attention, operands: Mapping[str, NumpyOperand], name: str, names: Names,
    comment: Sequence[str] = (),
) -> KernelSource:  # fmt: skip
    """Emit the kernel of an attention in half precision; `operands` are those it names."""
    return _Emitter(spec, operands, names.make(name), comment).emit()


@dataclass
class _Emitter:
    spec: Attention
    operands: Mapping[str, NumpyOperand]
    name: str
    comment: Sequence[str]
    sizes: dict[Size, str] = field(default_factory=dict[Size, str])

    def __post_init__(self) -> None:
        spec = self.spec
        self.tile = tile_of(spec)
        self.dtype = self.operands["q"].type.dtype
        self.constants = {
            "ROWS": self.tile.rows, "KEYS": self.tile.keys,
            "WIDTH": max(MIN_SIDE, power_of_two(spec.width)),
            "COLUMNS": max(MIN_SIDE, power_of_two(spec.value_width)),
        }  # fmt: skip

    def emit(self) -> KernelSource:
        """Emit the source and its launch."""
        body = [*self._filled(_HEAD), *(f"    {line}" for line in self._filled(_LOOP) if line)]
        body += self._filled(_TAIL)
        parameters = [*self.operands, *self.sizes.values()]
        parameters += [f"{constant}: tl.constexpr" for constant in (*self.constants, "INDEX")]
        head = [self._decorator(), f"def {self.name}({', '.join(parameters)}):"]
        lines = [*head, *comment_lines(self.comment), *(f"    {line}" for line in body)]
        types = {name: pointer_type(operand) for name, operand in self.operands.items()}
        types |= {name: size_type(size) for size, name in self.sizes.items()}
        options = {"num_stages": self.tile.stages}
        helpers = ["factor", "rounded"] if self.dtype is DType.BF16 else []
        return KernelSource(
            self.name, lines, helpers, self._launch(options), types, self.constants,
            self._traffic(), options,
        )  # fmt: skip

    def _filled(self, lines: Sequence[str]) -> list[str]:
        """Lines with what differs between attentions."""
        spec = self.spec
        texts = {
            "queries": self._size(spec.queries), "keys": self._bound(),
            "q": self._loaded("q", "i", "d"), "k": self._loaded("k", "j", "d"),
            "v": self._loaded("v", "j", "e"), "out": self._address("out", "i", "e"),
            "scale": repr(spec.scale * LOG2_E), "factor": repr(spec.factor),
            "masked": self._masked(), "query": self._factor("query"), "key": self._factor("key"),
            "value": self._factor("value"), "power": self._factor(self._rounded("power")),
            "rounded": self._rounded("result"), "live": self._guard(i="[:, None]", e="[None, :]"),
        }  # fmt: skip
        return [part for line in lines for part in line.format(**texts).split("\n")]

    # ---- operands ----

    def _loaded(self, name: str, row: str, column: str) -> str:
        """A tile of an operand, padded with 0."""
        guard = self._guard(**{row: "[:, None]", column: "[None, :]"})
        return f"tl.load({self._address(name, row, column)}{guard and guard + ', 0'})"

    def _address(self, name: str, row: str, column: str) -> str:
        """The addresses of a tile of an operand."""
        return self._moved_along(name, (f"{row}[:, None]", f"{column}[None, :]"))

    def _moved_along(self, name: str, indices: Sequence[str]) -> str:
        """The address of a matrix of an operand, moved along the axes where it is not repeated."""
        *stack, by_row, by_column = self.spec.strides(name)
        places = [*(self._place(axis) for axis in range(len(stack))), *indices]
        pairs = zip(places, (*stack, by_row, by_column), strict=True)
        return " + ".join([name, *filter(None, (self._moved(*pair) for pair in pairs))])

    def _moved(self, index: str, stride: Size) -> str:
        if stride == 0:
            return ""
        return index if stride == 1 else f"{index} * {self._size(stride)}"

    def _place(self, axis: int) -> str:
        """The index of a program's matrix on an axis of the stack."""
        stack = self.spec.stack
        inner = product(stack[axis + 1 :])
        text = "matrix" if inner == 1 else f"(matrix // {self._size(inner)})"
        return text if axis == 0 else f"({text} % {self._size(stack[axis])})"

    def _size(self, size: Size) -> str:
        """A size: a number, or a parameter."""
        if isinstance(size, int):
            return str(size)
        return self.sizes.setdefault(size, f"size{len(self.sizes)}")

    def _bound(self) -> str:
        """The keys of the loop: a parameter if there are several blocks, so that the compiler
        pipelines the loop instead of writing it out, which takes more registers than there are.
        """
        keys = self.spec.keys
        if isinstance(keys, int) and keys <= self.tile.keys:
            return str(keys)
        return self.sizes.setdefault(keys, f"size{len(self.sizes)}")

    def _guard(self, **places: str) -> str:
        """The argument that masks elements that do not exist, for indices and how they broadcast;
        empty if all exist.
        """
        parts = [
            f"({index}{place} < {self._size(size)})"
            for index, place in places.items()
            for size, width in [self._extent(index)]
            if not is_multiple(size, width)
        ]
        return f", {' & '.join(parts)}" if parts else ""

    def _extent(self, index: str) -> tuple[Size, int]:
        """The elements on an axis, and those of a tile."""
        spec, of = self.spec, self.constants
        return {
            "i": (spec.queries, of["ROWS"]), "j": (spec.keys, of["KEYS"]),
            "d": (spec.width, of["WIDTH"]), "e": (spec.value_width, of["COLUMNS"]),
        }[index]  # fmt: skip

    def _masked(self) -> str:
        """The lines that add the mask to scores, and exclude keys that do not exist."""
        lines = [f"score += {self._mask()} * {LOG2_E!r}"] if self.spec.mask else []
        keys, width = self._extent("j")
        if not is_multiple(keys, width):
            inside = f"(j[None, :] < {self._size(keys)})"
            lines.append(f'score = tl.where({inside}, score, float("-inf"))')
        return "\n".join(lines)

    def _mask(self) -> str:
        """The tile of the mask, which is loaded along the axes that it has alone.

        Triton would keep a row of [1, KEYS] in the layout of scores, and run out of registers.
        """
        axes = dict(zip("ij", self.spec.mask[-2:], strict=True))
        moving = {axis: "" for axis, stride in axes.items() if stride != 0}
        if len(moving) == 2:
            moving = {"i": "[:, None]", "j": "[None, :]"}
        guard = self._guard(**moving)
        places = [f"{axis}{moving.get(axis, '')}" for axis in axes]
        loaded = f"tl.load({self._moved_along('mask', places)}{guard and guard + ', 0'})"
        broadcast = {"i": "[:, None]", "j": "[None, :]"}.get("".join(moving), "")
        return f"{loaded}.to(tl.float32){broadcast}"

    def _factor(self, text: str) -> str:
        return f"factor({text})" if self.dtype is DType.BF16 else text

    def _rounded(self, text: str) -> str:
        return f"rounded({text})" if self.dtype is DType.BF16 else f"{text}.to(tl.float16)"

    # ---- the launch ----

    def _decorator(self) -> str:
        """The decorator; sizes are not specialised, so that other sizes need no recompilation."""
        any_number = [name for size, name in self.sizes.items() if size_type(size) == SIZE]
        return f"@triton.jit(do_not_specialize={any_number!r})" if any_number else "@triton.jit"

    def _launch(self, options: Mapping[str, int]) -> str:
        blocks = f"-(-({self.spec.queries}) // {self.tile.rows})"
        grid = f"{blocks} * ({product(self.spec.stack)})"
        pointers = [operand.name for operand in self.operands.values()]
        settings = [f"{key}={value}" for key, value in {**self.constants, **options}.items()]
        arguments = [*pointers, *map(str, self.sizes), *settings, "INDEX=INDEX"]
        return f"{self.name}[({grid},)]({', '.join(arguments)})"

    def _traffic(self) -> KernelTraffic:
        """The cost: keys and values are read once, caches serve the other blocks of queries."""
        spec = self.spec
        reads = [all_elements(x) for name, x in self.operands.items() if name != "out"]
        sizes = (*spec.stack, spec.queries, spec.keys, spec.width + spec.value_width)
        scores = (*spec.stack, spec.queries, spec.keys)
        writes = (all_elements(self.operands["out"]),)
        return KernelTraffic(tuple(reads), writes, {scores: 8}, sizes, self.dtype)
