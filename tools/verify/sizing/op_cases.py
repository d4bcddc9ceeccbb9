"""Cases of single ops: every sample of `tests/ops/samples` scaled, forward and backward."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from compiler.ir.dims import Dim
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find, listed, type_of
from compiler.ir.program import GRAD
from compiler.ir.types import DType, is_floating
from tests.ops.backward import each, gradient_inputs, types_of
from tests.ops.samples import Sample, samples
from tests.ops.scaled import Growth, Scaling, drift, is_lod, resized, scaling_of
from tools.verify.sizing.composites import composite_problem
from tools.verify.sizing.problem import REFERENCE_SECONDS, Built, Case, Problem, Refused, within

PRIMES = (
    7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65537, 131071, 262139,
    524287, 1048573, 2097143, 4194301, 10000019,
)  # fmt: skip
"""A prime near each power of two."""
MIB = 2**20
EXPENSIVE = frozenset(
    "conv2d conv3d conv2d_transpose conv3d_transpose depthwise_conv2d depthwise_conv2d_transpose "
    "deformable_conv deformable_conv_v1 quantized_conv2d conv2d_fusion kron tree_conv "
    "fusion_seqconv_eltadd_relu bilinear_tensor_product".split()
)
"""Ops whose reference takes long for arrays of a few MiB."""
EXPENSIVE_FAMILIES = ("detection", "control", "matching", "collective", "ps")
REDUCING = ("norm", "math.reduce", "math.softmax", "loss", "math.vector_norm", "math.row_pairs")
"""Families of ops whose kernels share long sums: these also have arrays of 40 MiB."""
HAS_BYTES = ("lookup_table_dequant",)
TOO_LARGE, TOO_MANY = 100_000_000, 300
"""Bytes of one result, and number of results."""


@dataclass(frozen=True)
class Shape:
    """The sizes of one case of a sample: a label, and the size of each growth."""

    label: str
    sizes: tuple[tuple[Growth, int], ...]
    dtype: str = "float32"
    has_names: bool = False


def op_cases(scale: str, only: str = "", part: tuple[int, int] = (0, 1)) -> Iterator[Case]:
    """All cases of a scale: "small" (some thousand elements) or "real" (0.3 to 40 MiB).

    Of `part` (i, n) those of every n-th sample, from sample i on. Samples of ops that `only`
    excludes, where it begins with the name of an op, are not scaled.
    """
    first, step = part
    for name, sample in list(_named_samples(only))[first::step]:
        scaling = scaling_of(sample)
        if scaling is not None and scaling.growths:
            yield from _cases(scaling, name, scale)


def _named_samples(only: str) -> Iterator[tuple[str, Sample]]:
    """The samples that can be scaled, each with its op and its number among those of the op."""
    numbers = dict[str, int]()
    chosen = only.partition(".")[0].partition("/")[0]
    is_op = any(sample.op == chosen for sample in samples())
    for sample in samples():
        number = numbers[sample.op] = numbers.get(sample.op, -1) + 1
        if _is_scaled(sample) and not (is_op and sample.op != chosen):
            yield f"{sample.op}.{number}", sample


def _is_scaled(sample: Sample) -> bool:
    """Whether a sample computes numbers, from its inputs alone."""
    op = find(sample.op)
    arrays = [a for value in sample.inputs.values() if value is not None for a in listed(value)]
    return bool(arrays) and not op.has_effects and not (op.is_random and "Key" not in sample.inputs)


def _cases(scaling: Scaling, name: str, scale: str) -> Iterator[Case]:
    """The cases of a sample, each shape once."""
    seen = set[Any]()
    is_first = name.endswith(".0")
    shapes = _small(scaling) if scale == "small" else _real(scaling, is_first)
    for shape in shapes:
        key = (shape.sizes, shape.dtype, shape.has_names)
        if key in seen or not _is_moderate(scaling, shape):
            continue
        seen.add(key)
        sizes = "x".join(str(n * (g.size if g.repeats else 1)) for g, n in shape.sizes)
        full = f"{name}/{shape.label}/{sizes}/{shape.dtype}" + "/named" * shape.has_names
        yield Case(f"{full}/forward", partial(forward, scaling, shape, full))
        if scaling.sample.grads and gradient_inputs(scaling.sample.op) is not None:
            yield Case(f"{full}/backward", partial(backward, scaling, shape, full))


# ---- shapes ------------------------------------------------------------------------------------


def _small(scaling: Scaling) -> Iterator[Shape]:
    """Shapes of about 1,000 and 5,000 elements."""
    for bytes, is_odd in ((4 * 1000, True), (4 * 4096, False)):
        yield _fitted(scaling, "all", scaling.growths, bytes, is_odd)
    for place, growth in enumerate(scaling.growths[:4]):
        yield _fitted(scaling, f"axis{place}", [growth], 4 * 3000, place % 2 == 0)


def _real(scaling: Scaling, is_first: bool) -> Iterator[Shape]:
    """Shapes of 0.3 to 40 MiB; of an op's first sample more, in more types."""
    op, growths = scaling.sample.op, scaling.growths
    module = find(op).__module__.removeprefix("compiler.ops.")
    is_expensive = op in EXPENSIVE or module.startswith(EXPENSIVE_FAMILIES)
    size = MIB / 2 if is_expensive else 3 * MIB
    yield _fitted(scaling, "all", growths, size, False)
    for place, growth in enumerate(growths[: 4 if is_first else 2]):
        yield _fitted(scaling, f"axis{place}", [growth], size, True)
    if not is_first:
        return
    for bytes in (0.3 * MIB, 3 * size):
        yield _fitted(scaling, "all", growths, bytes, True)
    yield replace(_fitted(scaling, "all", growths, size, False), has_names=True)
    yield replace(_fitted(scaling, "all", growths, 2 * size, False), dtype="float64")
    yield replace(_fitted(scaling, "all", growths, size / 2, False), dtype="bfloat16")
    if len(growths) > 2:
        for pair in list(combinations(range(len(growths)), 2))[:2]:
            label = f"axes{pair[0]}{pair[1]}"
            yield _fitted(scaling, label, [growths[i] for i in pair], size, False)
    for fixed, label in ((growths[0], "row"), (growths[-1], "column")):
        others = [g for g in growths if g is not fixed]
        yield _fitted(scaling, label, others, size, True, {fixed: 1})
    others = dict(_fitted(scaling, "", growths[1:], 4096, False).sizes)
    yield Shape("empty", tuple((g, others.get(g, 0)) for g in growths))
    if module.startswith(REDUCING) and not is_expensive:
        yield _fitted(scaling, "all", growths, 40 * MIB, True)


def _fitted(
    scaling: Scaling,
    label: str,
    growths: Sequence[Growth],
    bytes: float,
    is_odd: bool,
    fixed: dict[Growth, int] | None = None,
) -> Shape:
    """A shape in which some growths are as large as makes the largest array about so many bytes."""
    low, high = 0.0, 24.0
    for _ in range(18):
        middle = (low + high) / 2
        sizes = _sizes(growths, 2**middle, is_odd)
        largest = _largest(scaling, sizes | (fixed or {}))
        low, high = (middle, high) if largest <= bytes else (low, middle)
    sizes = _sizes(growths, 2**low, is_odd) | (fixed or {})
    return Shape(label, tuple((g, sizes[g]) for g in scaling.growths if g in sizes))


def _sizes(growths: Sequence[Growth], factor: float, is_odd: bool) -> dict[Growth, int]:
    """Sizes of growths, each multiplied by a factor and rounded to a prime or a power of two."""
    share = factor ** (1 / max(1, len(growths)))
    return {g: _round(g, g.size * share, is_odd) for g in growths}


def _round(growth: Growth, size: float, is_odd: bool) -> int:
    if growth.repeats:
        return max(1, round(size))
    log = math.log2(max(size, 2))
    near = min(PRIMES, key=lambda p: abs(math.log2(p) - log)) if is_odd else 2 ** round(log)
    return max(1, round(near / growth.step)) * growth.step


def _largest(scaling: Scaling, sizes: dict[Growth, int]) -> float:
    """Bytes of the largest input of a sample with growths at these sizes."""
    axes = {axis: (g, n) for g, n in sizes.items() for axis in g.axes}
    largest = 0.0
    for slot, value in scaling.sample.inputs.items():
        for place, array in enumerate(listed(value) if value is not None else ()):
            if not is_lod(scaling.sample, slot):
                total = float(array.itemsize)
                for axis, old in enumerate(array.shape):
                    growth, n = axes.get((slot, place, axis), (None, old))
                    total *= old * n if growth is not None and growth.repeats else n
                largest = max(largest, total)
    return largest


def _is_moderate(scaling: Scaling, shape: Shape) -> bool:
    """Whether the results that type inference finds are not too large, and not too many."""
    sizes = dict(shape.sizes)
    if _largest(scaling, sizes) > TOO_LARGE:
        return False
    sample = _typed(scaling, sizes)
    try:
        inferred = find(sample.op)(sample.attrs).infer_types(types_of(sample.inputs))
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        return False
    types = [t for value in inferred.values() if value is not None for t in listed(value)]
    sizes_of = [math.prod(n for n in t.shape if isinstance(n, int)) * 8 for t in types]
    return len(types) < TOO_MANY and max(sizes_of, default=0) < 2 * TOO_LARGE


def _typed(scaling: Scaling, sizes: dict[Growth, int]) -> Sample:
    """The sample at other sizes, of arrays without memory of their own."""
    axes = {axis: (g, n) for g, n in sizes.items() for axis in g.axes}
    times = next((n for g, n in sizes.items() if g.repeats), 1)

    def shaped(slot: str, place: int, array: np.ndarray) -> np.ndarray:
        if is_lod(scaling.sample, slot):
            shape = [(len(array) - 1) * times + 1]
        else:
            pairs = (axes.get((slot, place, i), (None, n)) for i, n in enumerate(array.shape))
            shape = [
                old * n if g is not None and g.repeats else n
                for old, (g, n) in zip(array.shape, pairs, strict=True)
            ]
        return np.broadcast_to(array.reshape(-1)[:1].sum(dtype=array.dtype), shape)

    inputs = {}
    for slot, value in scaling.sample.inputs.items():
        values_of_slot = listed(value) if value is not None else ()
        arrays = [shaped(slot, place, array) for place, array in enumerate(values_of_slot)]
        inputs[slot] = value if value is None else arrays if isinstance(value, list) else arrays[0]
    empty = replace(scaling, sample=replace(scaling.sample, inputs={}))
    return replace(resized(empty, sizes), inputs=inputs)


# ---- problems ----------------------------------------------------------------------------------


def forward(scaling: Scaling, shape: Shape, name: str, seed: int) -> Problem:
    """The problem of an op itself."""
    sample = _sample(scaling, shape, name, seed)
    return _problem(sample.op, sample.attrs, sample.inputs, shape.has_names)


def backward(scaling: Scaling, shape: Shape, name: str, seed: int) -> Problem:
    """The problem of an op's gradient: its inputs, its outputs and weights for their gradients."""
    sample = _sample(scaling, shape, name, seed)
    results = _outputs(sample, shape.dtype)
    cls, slots = find(sample.op).grad_class, find(sample.op).slots
    assert cls is not None
    values = {**sample.inputs, **results}
    for slot in [s for s in results if s + GRAD in cls.inputs() and not slots[s].companion]:
        values[slot + GRAD] = each(results[slot], partial(_weights, f"{name} {slot}", seed))
    inputs = {slot: values[slot] for slot in cls.inputs() if values.get(slot) is not None}
    wanted = [slot + GRAD for slot in sample.inputs]
    return _problem(cls.kind, sample.attrs, inputs, shape.has_names, wanted)


def _outputs(sample: Sample, dtype: str) -> dict[str, Any]:
    """The outputs of an op, computed in double precision; raises Refused."""
    narrow = DType.BF16.numpy if dtype == "bfloat16" else np.dtype(dtype)
    wide = {slot: v if v is None else each(v, _wide) for slot, v in sample.inputs.items()}
    results = _asked(lambda: find(sample.op)(sample.attrs).evaluate(wide))

    def narrowed(array: np.ndarray) -> np.ndarray:
        return array.astype(narrow) if is_floating(array.dtype) else array

    return {slot: each(value, narrowed) for slot, value in results.items()}


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if is_floating(array.dtype) else array


def _weights(name: str, seed: int, array: np.ndarray) -> np.ndarray:
    """A weight for each element of an output."""
    if not is_floating(array.dtype):
        return np.zeros_like(array)
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    return drift(rng, -0.7, 1.0, array.size, array.dtype).reshape(array.shape)


def _sample(scaling: Scaling, shape: Shape, name: str, seed: int) -> Sample:
    """The sample with arrays of a shape and a type."""
    sample = resized(scaling, dict(shape.sizes), name, seed)
    if shape.dtype == "float32":
        return sample
    dtype = DType.BF16.numpy if shape.dtype == "bfloat16" else np.dtype(shape.dtype)

    def typed(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype) if array.dtype == np.float32 else array

    inputs = {slot: v if v is None else each(v, typed) for slot, v in sample.inputs.items()}
    return replace(sample, inputs=inputs)


def _asked(function: Any) -> Any:
    """The result of the reference; raises Refused if it does not accept its inputs."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), within(REFERENCE_SECONDS):
            warnings.simplefilter("ignore")
            return function()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


def _problem(
    op: str, attrs: Any, values: Any, has_names: bool, wanted: Sequence[str] = ()
) -> Problem:
    """The problem of one op; of its results those in `wanted`, or all that have elements."""
    inputs = {slot: value for slot, value in values.items() if value is not None}
    if find(op).is_composite:
        return composite_problem(op, attrs, inputs)
    feed = {
        f"{slot}.{i}": np.ascontiguousarray(a)
        for slot, value in inputs.items()
        for i, a in enumerate(listed(value))
    }
    first = next((a for a in feed.values() if a.ndim), np.empty(0))
    batch = len(first) if has_names and len(first) > 1 else -1
    build = partial(_graph, op, attrs, inputs, batch, tuple(wanted))
    _asked(build)
    return Problem(build, feed, {}, op in HAS_BYTES)


def _graph(op: str, attrs: Any, given: Any, batch: int, wanted: tuple[str, ...]) -> Built:
    """The graph of one op, in which sizes equal to `batch` have a name; and its results' names."""
    graph, cls = Graph(), find(op)

    def fed(slot: str, place: int, array: np.ndarray) -> Var:
        type = type_of(array)
        sizes = [Dim.named("N") if size == batch else size for size in type.shape]
        return graph.feed(f"{slot}.{place}", type.with_shape(sizes))

    vars = {
        slot: [fed(slot, i, a) for i, a in enumerate(listed(value))]
        for slot, value in given.items()
    }
    types = {
        slot: cls.slots[slot].hold([var.type for var in slot_vars])
        for slot, slot_vars in vars.items()
    }
    inferred = {
        slot: listed(t) for slot, t in cls(attrs).infer_types(types).items() if t is not None
    }
    names = {slot for slot in inferred if not wanted or slot in wanted}
    wanted_slots = {slot for slot in inferred if slot in names or not cls.slots[slot].optional}
    outputs = {
        slot: [graph.var(f"{slot}:{j}", type) for j, type in enumerate(inferred[slot])]
        for slot in inferred
        if slot in wanted_slots
    }
    graph.op(op, vars, outputs, attrs)
    graph.results = [var for slot in outputs if slot in names for var in outputs[slot]]
    return graph, [var.name for var in graph.results]
