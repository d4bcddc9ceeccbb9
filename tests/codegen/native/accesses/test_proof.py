"""What kernels access lies within their operands: proved, compared with sizes, or tested."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as every
from typing import Any

import numpy as np
import pytest

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.index_ranges import Facts, IndexRanges
from compiler.codegen.kernel.ranges import ANY, Range
from compiler.codegen.native.accesses.proof import SizeCheck, bounded
from compiler.codegen.native.host import detected
from compiler.codegen.trace import Expr
from compiler.errors import ShapeError
from compiler.ir.dims import Dim, evaluate
from compiler.ir.types import DType
from tests.codegen.native.loops_support import Case, operand, run

N, M = Dim.named("N"), Dim.named("M")


def copied(case: Case, source: Any, *indices: Any, where: Any = None) -> KernelBody:
    """A kernel that copies an element of a source for each of its own."""
    out = case.ref("out", case.k.shape)
    case.k.store(out, case.indices, source.at(*indices, where=where))
    return case.k


def conditions(kernel: KernelBody) -> int:
    """How many loads and stores of a kernel have a condition."""
    loads = kernel.stores[0].value
    assert isinstance(loads, Expr)
    return (len(loads.args) > len(loads.extra.shape)) + (kernel.stores[0].where is not None)


def test_plain_indices_need_nothing() -> None:
    case = Case((N, 4))
    kernel = copied(case, case.ref("x", (N, 4)), *case.indices)
    assert bounded(kernel, Facts(), set()) == []
    assert conditions(kernel) == 0


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 3), (0, 4)])
def test_an_axis_with_too_few_elements_is_refused(rows: int, columns: int) -> None:
    case = Case((4, 4))
    kernel = copied(case, case.ref("x", (rows, columns)), *case.indices)
    with pytest.raises(
        ShapeError, match=f"4 elements of an axis of x are needed, it has {min(rows, columns)}"
    ):
        bounded(kernel, Facts(), set())


def test_a_view_with_more_elements_than_its_operand_is_refused() -> None:
    case = Case((8,))
    kernel = copied(case, case.ref("x", (7,), view=(8,)), *case.indices)
    with pytest.raises(ShapeError, match="8 elements of x are needed, it has 7"):
        bounded(kernel, Facts(), set())


def test_open_sizes_are_compared_at_bind_time() -> None:
    case = Case((N, 2))
    kernel = copied(case, case.ref("x", (M, 6)), case.indices[0], case.indices[1] * 3)
    assert bounded(kernel, Facts(), set()) == [SizeCheck("x", N, M)]
    assert conditions(kernel) == 0


def test_a_size_that_each_iteration_has_its_own_of_is_tested_in_the_kernel() -> None:
    case = Case((Dim.named("count"), 2))
    kernel = copied(case, case.ref("x", (N, 2)), *case.indices)
    assert bounded(kernel, Facts(), {"count"}) == []
    assert conditions(kernel) == 1


def test_a_size_that_the_host_checks_needs_nothing() -> None:
    begin, count = Dim.named("begin"), Dim.named("count")
    case = Case((count,))
    kernel = copied(case, case.ref("x", (N,)), case.indices[0] + case.k.size(begin))
    assert bounded(kernel, Facts(sizes=[(begin + count, N)]), {"begin", "count"}) == []
    assert conditions(kernel) == 0


def test_loaded_indices_are_tested_unless_their_range_is_known() -> None:
    for facts, expected in ((Facts(), 1), (Facts({"ids": Range((0,), (N - 1,))}), 0)):
        case = Case((5,))
        row = case.ref("ids", (5,), DType.INT64)[case.indices[0]]
        kernel = copied(case, case.ref("x", (N,)), row)
        bounded(kernel, facts, set())
        assert conditions(kernel) == expected


@pytest.mark.parametrize(("spare", "tests"), [(1, 0), (0, 1), (-2, 1)])
def test_random_indices_are_tested_unless_there_is_one(spare: int, tests: int) -> None:
    case = Case((5,))
    key = case.k.key(operand("seed", (1,), DType.INT64))
    row = case.k.randint(key, case.indices[0], case.k.size(N) + spare)
    kernel = copied(case, case.ref("x", (N + 1,)), row)
    bounded(kernel, Facts(), set())
    assert conditions(kernel) == tests


def test_a_condition_that_bounds_an_index_proves_it() -> None:
    case = Case((5,))
    row = case.ref("ids", (5,), DType.INT64)[case.indices[0]]
    within = (row >= 0) & (row < case.k.size(N))
    kernel = copied(case, case.ref("x", (N,)), row, where=within)
    (load,) = [kernel.stores[0].value]
    bounded(kernel, Facts(), set())
    assert kernel.stores[0].value is load


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
def test_indices_outside_of_an_array_load_and_store_nothing() -> None:
    ids = np.array([0, -1, 3, 2**40, 2, -(2**62), 4])
    x = np.arange(1, 5, dtype=np.float32)
    case = Case((7,))
    row = case.ref("ids", (7,), DType.INT64)[case.indices[0]]
    bounded(copied(case, case.ref("x", (4,)), row), Facts(), set())
    machine = detected()
    assert machine is not None
    arrays = {"ids": ids, "x": x, "out": np.full(7, 9, np.float32)}
    loaded = run(case.k, machine, arrays, None)["out"]
    assert loaded.tolist() == [1, 0, 4, 0, 3, 0, 0]
    case = Case((7,))
    row = case.ref("ids", (7,), DType.INT64)[case.indices[0]]
    case.k.store(case.ref("out", (4,)), (row,), 5.0)
    bounded(case.k, Facts(), set())
    stored = run(case.k, machine, {"ids": ids, "out": x.copy()}, None)["out"]
    assert stored.tolist() == [5, 2, 5, 5]


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
def test_indices_modulo_an_axis_without_elements_load_nothing() -> None:
    machine = detected()
    assert machine is not None
    case = Case((3, 20))
    row = case.k.mod(case.indices[0], case.k.size(N))
    bounded(copied(case, case.ref("x", (N, 20)), row, case.indices[1]), Facts(), set())
    arrays = {"x": np.ones((0, 20), np.float32), "out": np.ones((3, 20), np.float32)}
    assert not run(case.k, machine, arrays, {"N": 0})["out"].any()


# ---- ranges ------------------------------------------------------------------------------------


def evaluated(term: Any, indices: dict[int, int], sizes: dict[str, int]) -> int:
    """The value of an index for one element."""
    if not isinstance(term, Expr):
        return int(term)
    if term.fn == "index":
        return indices[term.extra]
    if term.fn == "size":
        return evaluate(term.extra, sizes)
    args = [evaluated(arg, indices, sizes) for arg in term.args]
    plain: dict[str, Callable[..., int]] = {
        "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
        "index_div": lambda a, b: a // b, "index_mod": lambda a, b: a % b,
        "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b,
        "maximum": max, "minimum": min, "negative": lambda a: -a,
        "less": lambda a, b: a < b, "greater_equal": lambda a, b: a >= b,
        "where": lambda c, a, b: a if c else b,
    }  # fmt: skip
    return plain[term.fn](*args)


def random_index(kernel: KernelBody, rng: np.random.Generator, depth: int) -> Any:
    """A random expression of a kernel's indices."""
    if depth == 0 or rng.random() < 0.1:
        leaves = [*kernel.indices, kernel.size(N), int(rng.integers(-3, 5))]
        return leaves[rng.integers(len(leaves))]
    a, b = (random_index(kernel, rng, depth - 1) for _ in range(2))
    number = int(rng.integers(1, 5))
    choices: list[Callable[[], Any]] = [
        lambda: kernel.call("add", a, b), lambda: kernel.call("subtract", a, b),
        lambda: kernel.call("multiply", a, number), lambda: kernel.call("maximum", a, b),
        lambda: kernel.call("minimum", a, b), lambda: kernel.call("floor_divide", a, number),
        lambda: kernel.call("remainder", a, number),
        lambda: kernel.where(kernel.call("less", a, b), a, b),
        lambda: kernel.where(kernel.call("greater_equal", a, 0), a, number),
    ]  # fmt: skip
    return choices[rng.integers(len(choices))]()


def test_every_value_of_an_index_is_in_its_range() -> None:
    rng = np.random.default_rng(3)
    bounds = 0
    for _ in range(400):
        kernel = KernelBody("k", (N, 3))
        index = random_index(kernel, rng, 3)
        range_ = IndexRanges(kernel).of(index)
        bounds += len(range_.low) + len(range_.high)
        for n in (1, 2, 5):
            ends = [[evaluate(end, {"N": n}) for end in side] for side in (range_.low, range_.high)]
            for place in every(range(n), range(3)):
                value = evaluated(index, dict(enumerate(place)), {"N": n})
                assert all(end <= value for end in ends[0]), (str(range_), n, place)
                assert all(end >= value for end in ends[1]), (str(range_), n, place)
    assert bounds > 600  # most ranges have ends


def test_conditions_give_ranges() -> None:
    kernel = KernelBody("k", (N,))
    x = kernel.indices[0] * 2 - 3
    assert IndexRanges(kernel).where((x >= 0) & (x < kernel.size(M))).of(x).low == (0,)
    assert M - 1 in IndexRanges(kernel).where(x < kernel.size(M)).of(x).high


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
def test_indices_that_overflow_load_nothing() -> None:
    machine = detected()
    assert machine is not None
    case = Case((4,))
    number = case.k.maximum(case.ref("ids", (4,), DType.INT64)[case.indices[0]], 0)
    row = number * 7 + 3
    assert IndexRanges(case.k).of(row) == ANY
    bounded(copied(case, case.ref("x", (14,)), row), Facts(), set())
    ids, x = np.array([0, 2**61, 1, -5]), np.arange(1, 15, dtype=np.float32)
    arrays = {"ids": ids, "x": x, "out": np.zeros(4, np.float32)}
    assert run(case.k, machine, arrays, None)["out"].tolist() == [4, 0, 11, 4]


def test_a_cast_to_a_type_that_is_too_narrow_has_no_range() -> None:
    kernel = KernelBody("k", (200, N))
    i, j = kernel.indices
    assert IndexRanges(kernel).of(kernel.astype(i, DType.UINT8)) == Range((0,), (199,))
    assert IndexRanges(kernel).of(kernel.astype(i, DType.INT8)) == ANY
    assert IndexRanges(kernel).of(kernel.astype(j, DType.INT8)) == ANY
    assert IndexRanges(kernel).of(kernel.astype(j, DType.INT32)) == Range((0,), (N - 1,))
    assert IndexRanges(kernel).of(kernel.astype(j, DType.BOOL)) == Range((0,), (1,))


def test_floats_that_are_not_numbers_have_no_range() -> None:
    case = Case((4,))
    coordinate = case.ref("at", (4,))[case.indices[0]]
    clipped = case.k.astype(case.k.clip(coordinate, 0.0, 3.0), DType.INT32)
    assert IndexRanges(case.k).of(clipped) == ANY
    tested = case.k.where((coordinate >= 0.0) & (coordinate <= 3.0), coordinate, 0.0)
    assert IndexRanges(case.k).of(case.k.astype(tested, DType.INT32)) == Range((0,), (3,))
