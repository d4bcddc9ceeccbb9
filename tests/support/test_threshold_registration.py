"""Numbers that sizes are compared with are thresholds, defined by `compiler.support.thresholds`.

The packages that generate code are read as syntax trees. A comparison, `min`, `max`, `//`, `%` or
step of a range with an integer above BOUND is a complaint, whether it is written there or is a
constant of a module, unless the list below says why it is no threshold. The last tests feed the
rule little modules with a fault.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler/codegen", "compiler/ops")
BOUND = 8
"""Numbers up to this, such as axes of an array or bytes of an element, are no sizes."""

HARDWARE = "a property of the machine, not a size of arrays"
LIMIT = "values beyond it are an error, not another kernel"
NUMBERS = "random numbers and hashes are computed modulo it"
MACHINE = ("registers", "bits")
"""What literals may be compared with: properties of machines and types."""

CONSTANTS: Mapping[str, str] = {
    "compiler.codegen.ahead.pool._MOST": "the most processes that compile",
    "compiler.codegen.native.bounds.accesses._MOST_LANES": LIMIT,
    "compiler.codegen.native.bounds.instrument.RECORD": "bytes of a record of an access",
    "compiler.codegen.native.image_ops.MAX_LISTED_PHASES": LIMIT,
    "compiler.codegen.native.images.register_transpose._LANE": HARDWARE,
    "compiler.codegen.native.limit_kernels.BLOCK": "the work of a kernel that measures the machine",
    "compiler.codegen.native.products.prefetching.CACHE_LINE": HARDWARE,
    "compiler.codegen.native.products.tiles.PAGE": "the cost of tiles, whose code is the same",
    "compiler.codegen.native.products.tiles.RESULT_WAYS": "the cost of tiles, whose code is the same",
    "compiler.codegen.onnx.export.OPSET": "the version of a format",
    "compiler.codegen.triton.emit.THREADS": HARDWARE,
    "compiler.codegen.triton.emit.VECTOR": HARDWARE,
    "compiler.codegen.triton.multi_tensor.operand_tables.ALIGNED": HARDWARE,
    "compiler.codegen.triton.tiling.schedules.MAX_WARPS": HARDWARE,
    "compiler.codegen.triton.tiling.schedules.SECTOR": HARDWARE,
    "compiler.codegen.triton.row_sums.THREAD_BYTES": "the warps of a program, whose code is the same",
    "compiler.codegen.triton.tiling.measured.MOST": "which of the measured products is nearest",
    "compiler.codegen.triton.tiling.tiles.MOST_SUMS": HARDWARE,
    "compiler.codegen.triton.tiling.tiles.THREADS": HARDWARE,
    "compiler.codegen.triton.tiling.tiles.MAX_INNER": "a multiple of the steps of all tiles",
    "compiler.codegen.triton.tiling.tiles.MIN_SIDE": "the least that `tl.dot` accepts",
    "compiler.codegen.triton.tiling.tuning.MIN_PART": "which tiles of a product are timed",
    "compiler.codegen.triton.tiling.tuning.ROWS": "which products are timed",
    "compiler.codegen.triton.values.MAX_INLINE_LENGTH": "characters of a line of a kernel",
    "compiler.ops.collective.buckets.ALIGNED": HARDWARE,
    "compiler.ops.detection.box_coder.BLOCK": "NumPy code; its own test crosses it",
    "compiler.ops.detection.yolov3_loss.MAX_ANCHORS": LIMIT,
    "compiler.ops.detection.nms.POLYGONS": "the numbers of coordinates that boxes may have",
    "compiler.ops.fused.attention_lstm.LONG_SEQUENCE": "NumPy code; its own test crosses it",
    "compiler.ops.image.interpolate.EXACT": "the denominator of a scale",
    "compiler.ops.matching.term_hashes.FILTER_MAGIC": "the first bytes of a file",
    "compiler.ops.matching.term_hashes.MAX_HASHES": LIMIT,
    "compiler.ops.matching.term_hashes.XX_1": NUMBERS,
    "compiler.ops.matching.term_hashes.XX_2": NUMBERS,
    "compiler.ops.ps.splits.MAX_PARTS": LIMIT,
    "compiler.ops.shape.concat_kernels.SECTOR": HARDWARE,
    "compiler.ops.shape.dropout.SEED_LIMIT": NUMBERS,
    "compiler.ops.shape.random.SEEDS": NUMBERS,
    "compiler.ops.shape.slicing.AXIS_END": "the end that Paddle writes for that of an axis",
}
"""Constants that are no thresholds, each with the reason."""

LITERALS: Mapping[tuple[str, int], str] = {
    ("compiler.codegen.native.images.winograd_tiles", 64): HARDWARE,
    ("compiler.codegen.native.loops.values", -40): "logarithms of what a float can hold",
    ("compiler.codegen.native.loops.values", 80): "logarithms of what a float can hold",
    ("compiler.ops.detection.nms_classes_numpy", 256): "NumPy code; test_nms_numpy.py crosses it",
    ("compiler.ops.detection.nms_classes_numpy", 128): "NumPy code; test_nms_numpy.py crosses it",
    ("compiler.ops.detection.nms_numpy", 128): "NumPy code; test_nms_numpy.py crosses it",
    ("compiler.ops.math.linalg", 9): "an attribute's value for none",
    ("compiler.ops.matching.pyramid_hash", 2**32): NUMBERS,
    ("compiler.ops.matching.term_hashes", 2**32): NUMBERS,
    ("compiler.ops.metric.detection_map", 10): "the levels of recall of a metric",
    ("compiler.ops.ps.tables", 1 << 24): LIMIT,
    ("compiler.ops.ps.tables", 1 << 38): LIMIT,
    ("compiler.ops.quantize.dequantize", 128): "the sign bit of a byte",
    ("compiler.ops.shape.hashing", 2**64): NUMBERS,
    (
        "compiler.ops.train.norm_optimizers",
        16384,
    ): "steps of training, as the reference counts them",
}
"""Numbers that are no thresholds, by module, each with the reason."""

ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # fmt: skip
FUNCTIONS = ("min", "max")
CACHES = ("cache", "lru_cache")


class Modules:
    """Modules by dotted name, and the integers that their constants are."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.trees = {name: ast.parse(text) for name, text in sources.items()}
        self.constants: dict[str, dict[str, frozenset[int]]] = {name: {} for name in sources}
        self.thresholds: dict[str, set[str]] = {name: set() for name in sources}
        for name, tree in self.trees.items():
            for target, value in _assigned(tree):
                self._define(name, target, value)

    def _define(self, module: str, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for elt, part in zip(target.elts, value.elts, strict=True):
                self._define(module, elt, part)
        elif isinstance(target, ast.Name) and _is_call(value, ("threshold",)):
            self.thresholds[module].add(target.id)
        elif isinstance(target, ast.Name):
            known = self.constants[module]
            parts = ast.walk(value) if isinstance(value, ast.Tuple | ast.Dict) else [value]
            numbers = {number_of(part, known) for part in parts} - {None}
            known[target.id] = frozenset(n for n in numbers if n is not None)

    def names(self, module: str) -> dict[str, tuple[str, frozenset[int]]]:
        """What names of a module are constants: where each is defined, and its numbers."""
        results = {n: (f"{module}.{n}", v) for n, v in self.constants[module].items()}
        for source, name, alias in _imported(self.trees[module]):
            if name in self.constants.get(source, {}):
                results[alias] = (f"{source}.{name}", self.constants[source][name])
        return results

    def registered(self, module: str) -> set[str]:
        """The names of a module that are thresholds."""
        imported = _imported(self.trees[module])
        others = {alias for source, n, alias in imported if n in self.thresholds.get(source, ())}
        return self.thresholds[module] | others


def _assigned(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets and values of a module's assignments."""
    for each in tree.body:
        if isinstance(each, ast.Assign):
            yield each.targets[0], each.value
        elif isinstance(each, ast.AnnAssign) and each.value is not None:
            yield each.target, each.value


def _imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Modules, names imported from them, and what these are called."""
    for each in tree.body:
        if isinstance(each, ast.ImportFrom) and each.module:
            yield from ((each.module, name.name, name.asname or name.name) for name in each.names)


def _is_call(node: ast.AST, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def number_of(node: ast.AST, known: Mapping[str, frozenset[int]]) -> int | None:
    """The integer that an expression of literals and constants is; None for others."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if len(known.get(name, ())) == 1:
            return next(iter(known[name]))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = number_of(inner, known)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            a, b = number_of(left, known), number_of(right, known)
            return None if a is None or b is None else ARITHMETIC[type(op)](a, b)
        case _:
            return None


def compared(node: ast.AST) -> list[ast.expr]:
    """The operands of what may decide by a size: comparisons, min, max, //, % and strides."""
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            return [] if any(map(_is_of_machine, operands)) else operands
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
            return [left, right]
        case ast.Call(func=ast.Name(id="range")):
            return node.args[2:]
        case ast.Call() if _is_call(node, FUNCTIONS):
            return node.args
        case _:
            return []


def _is_of_machine(operand: ast.expr) -> bool:
    """Whether an operand is a property of a machine or a type."""
    match operand:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in MACHINE
        case _:
            return False


def unregistered(modules: Modules, module: str) -> Iterator[str]:
    """Complaints about numbers of a module that sizes are compared with."""
    for line, place, number in numbers(modules, module):
        if (place not in CONSTANTS) if place else ((module, number) not in LITERALS):
            said = place.rpartition(".")[2] if place else number
            yield f"{module}:{line}: {said} is no threshold"


def numbers(modules: Modules, module: str) -> Iterator[tuple[int, str, int]]:
    """The numbers of a module that are compared: lines, constants ("" for literals), values."""
    names = modules.names(module)
    for node in ast.walk(modules.trees[module]):
        for operand in compared(node):
            for place, number in _numbers(operand, names, module):
                yield operand.lineno, place, number


def _numbers(
    operand: ast.expr, names: Mapping[str, tuple[str, frozenset[int]]], module: str
) -> Iterator[tuple[str, int]]:
    """The integers above BOUND in an operand, with the constant that each is, "" for a literal."""
    literal = number_of(operand, {})
    if literal is not None:
        if abs(literal) > BOUND:
            yield "", literal
        return
    if isinstance(operand, ast.Name) and operand.id in names:
        place, numbers = names[operand.id]
        yield from ((place, number) for number in numbers if abs(number) > BOUND)
    elif isinstance(operand, ast.BinOp | ast.UnaryOp | ast.Subscript | ast.IfExp):
        for child in ast.iter_child_nodes(operand):
            if isinstance(child, ast.expr):
                yield from _numbers(child, names, module)


def frozen(modules: Modules, module: str) -> Iterator[str]:
    """Complaints about thresholds whose value is taken when a module is imported, or cached."""
    known = modules.registered(module)
    if not known:
        return

    def values(node: ast.AST) -> Iterator[ast.Attribute]:
        for each in ast.walk(node):
            match each:
                case ast.Attribute(attr="value", value=ast.Name(id=name)) if name in known:
                    yield each
                case _:
                    pass

    for node in ast.walk(modules.trees[module]):
        if isinstance(node, ast.FunctionDef):
            cached = any(_called(each) in CACHES for each in node.decorator_list)
            late = [value for default in node.args.defaults for value in values(default)]
            for each in [*late, *(values(node) if cached else ())]:
                yield f"{module}:{each.lineno}: a threshold's value is kept: see cached_by_thresholds"
    for statement in modules.trees[module].body:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for value in values(statement):
                yield f"{module}:{value.lineno}: a threshold's value is kept by the module"


def _called(decorator: ast.expr) -> str:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.id if isinstance(node, ast.Name) else ""


def complaints(modules: Modules) -> list[str]:
    """All complaints about modules."""
    rules = (unregistered, frozen)
    return [said for name in modules.trees for rule in rules for said in rule(modules, name)]


def test_sizes_are_compared_with_registered_thresholds() -> None:
    result = complaints(modules())
    assert not result, "\n".join(result)


@cache
def modules() -> Modules:
    """Every module of PACKAGES, by its import name."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return Modules({dotted(path): path.read_text(encoding="utf-8") for path in files})


def dotted(path: Path) -> str:
    """The import name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_each_exception_is_still_there() -> None:
    """What the lists name is compared with somewhere; delete a line whose constant is gone."""
    sources = modules()
    results = [(name, number) for name in sources.trees for number in numbers(sources, name)]
    met = {place or (name, number) for name, (_, place, number) in results}
    assert not [each for each in (*CONSTANTS, *LITERALS) if each not in met]


KERNELS = """
from compiler.support.thresholds import threshold

CACHE = 32_000
PAGE, WAYS = 4096, 8
TILES = {False: 1024, True: 64}
WORK = threshold("work", 8192, "elements", "is shared", small=32)
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("size > 100", "100 is no threshold"),
        ("size // 2 > 1 << 14", "16384 is no threshold"),
        ("min(size, 16)", "16 is no threshold"),
        ("range(0, size, 128)", "128 is no threshold"),
        ("size <= CACHE", "CACHE is no threshold"),
        ("size <= CACHE // 2", "CACHE is no threshold"),
        ("size % PAGE == 0", "PAGE is no threshold"),
        ("size > TILES[size > 1]", "TILES is no threshold"),
        ("size > WORK.value", ""),
        ("size < 8", ""),
        ("size > WAYS", ""),
        ("machine.registers > 16", ""),
    ],
)
def test_a_size_is_compared_with_a_number(line: str, said: str) -> None:
    text = f"{KERNELS}\ndef is_large(size, machine):\n    return {line}\n"
    result = complaints(Modules({"kernels": text}))
    assert {each.partition(": ")[2] for each in result} == ({said} if said else set())


def test_a_constant_of_another_module_is_a_complaint_where_it_is_compared() -> None:
    other = "from kernels import CACHE as LARGE\n\ndef f(n):\n    return n > LARGE\n"
    result = complaints(Modules({"kernels": KERNELS, "other": other}))
    assert result == ["other:4: CACHE is no threshold"]


@pytest.mark.parametrize(
    "line",
    [
        "HALF = WORK.value // 2",
        "def f(size, limit=WORK.value):\n    return size > limit",
        "@lru_cache(8)\ndef f(size):\n    return size > WORK.value",
        "@cache\ndef f(size):\n    return size > WORK.value",
    ],
)
def test_a_value_that_is_kept_would_not_be_lowered(line: str) -> None:
    (result,) = complaints(Modules({"kernels": f"{KERNELS}\n{line}\n"}))
    assert "a threshold's value is kept" in result
