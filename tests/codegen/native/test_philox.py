"""Random numbers of native kernels: those of the reference implementation."""

import re

import numpy as np
import pytest

from compiler.codegen.native.llvm_ir import (
    I32,
    I64,
    POINTER,
    Function,
    Value,
    constant,
    lane_numbers,
)
from compiler.codegen.native.machine import AVX512, MACHINES
from compiler.codegen.native.philox import below, normal, uniform, uniform_in_order
from compiler.ir.philox import (
    normal_by_key,
    philox,
    randint_by_key,
    uniform_by_key,
    uniform_float64_by_key,
)
from compiler.ir.types import DType
from tests.codegen.native.function_kernels import (
    Library,
    assembly,
    same,
    ulps,
)
from tests.support.compiled_kernels import RUNNABLE

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="this CPU has no AVX2")

KEYS = (0, 12345, -1, 0x299F31D0_A4093822, -(2**63))
COUNT = 4096
SPANS = (1, 7, 1000, 2**32 + 5, 2**63 - 1)


def drawing(name, draw, nbytes, lanes, vectors=1) -> Function:
    """A kernel `(address of a key, result address, count)` that draws elements in order."""
    f = Function(f"{name}_{lanes}", [("key", POINTER), ("y", POINTER), ("n", I64)])
    key, result, n = f.parameters
    word = f.load(I64, key)

    def step(i: Value, _: object) -> list[Value]:
        for place, value in enumerate(draw(f, word, i, lanes)):
            at = f.add(i, constant(I64, place * lanes))
            f.store(value, f.address(result, at, nbytes))
        return []

    f.loop(0, n, max(lanes, 1) * vectors, step)
    return f


def indices(f: Function, i: Value, lanes: int) -> Value:
    return f.add(f.splat(i, lanes), lane_numbers(I64.vector(lanes)))


def uniform_of(dtype, stream):
    return lambda f, key, i, lanes: [uniform(f, key, stream, indices(f, i, lanes), dtype)]


def narrow_uniform(f, key, i, lanes):
    narrow = f.convert("trunc", indices(f, i, lanes), I32)
    return [uniform(f, key, 0, narrow)]


def normal_of(dtype):
    return lambda f, key, i, lanes: [normal(f, key, 0, indices(f, i, lanes), dtype)]


def below_of(span):
    def draw(f, key, i, lanes):
        return [below(f, key, 3, indices(f, i, lanes), constant(I64.vector(lanes), span))]

    return draw


def in_order(f, key, i, lanes):
    return uniform_in_order(f, key, 2, i, lanes)


def kernels(lanes: int) -> list[Function]:
    """A kernel for every function."""
    results = [
        drawing("even", uniform_of(DType.FP32, 2), 4, lanes),
        drawing("narrow", narrow_uniform, 4, lanes),
        drawing("fine", uniform_of(DType.FP64, 0), 8, lanes),
        drawing("normal", normal_of(DType.FP32), 4, lanes),
        drawing("normal_fine", normal_of(DType.FP64), 8, lanes),
        *(drawing(f"below{span}", below_of(span), 8, lanes) for span in SPANS),
    ]
    return [*results, drawing("in_order", in_order, 4, lanes, 2)] if lanes else results


EVERYWHERE = [(machine, lanes) for machine in RUNNABLE for lanes in (0, 4, 8, 16)]


@pytest.mark.parametrize(
    ("machine", "lanes"), EVERYWHERE, ids=[f"{m.name}-{lanes}" for m, lanes in EVERYWHERE]
)
def test_numbers_are_those_of_the_reference(machine, lanes):
    library = Library(kernels(lanes), machine)
    for number in KEYS:
        key = np.array([number] + [0] * (COUNT - 1))

        def found(name, dtype, key=key):
            return library(f"{name}_{lanes}", dtype, key)

        even = uniform_by_key(key, 0, [COUNT], 2)
        np.testing.assert_array_equal(found("even", np.float32), even)
        if lanes:
            np.testing.assert_array_equal(found("in_order", np.float32), even)
        first = uniform_by_key(key, 0, [COUNT])
        np.testing.assert_array_equal(found("narrow", np.float32), first)
        fine = uniform_float64_by_key(key, 0, [COUNT])
        np.testing.assert_array_equal(found("fine", np.float64), fine)
        for span in SPANS:
            wanted = randint_by_key(key, 0, [COUNT], span, 3)
            np.testing.assert_array_equal(found(f"below{span}", np.int64), wanted)
        for name, dtype in (("normal", np.float32), ("normal_fine", np.float64)):
            wanted = normal_by_key(key, 0, [COUNT], dtype)
            drawn = found(name, dtype)
            assert ulps(drawn, wanted.astype(np.longdouble)).max() <= 4
            assert same(np.sign(drawn), np.sign(wanted)).all()


def test_blocks_beyond_32_bits_are_those_of_the_reference():
    """Element 2**35 is in block 2**33, whose upper half is counted too."""

    def far(f, key, i, lanes):
        start = constant(I64.vector(lanes), 1 << 35)
        return [uniform(f, key, 0, f.add(indices(f, i, lanes), start))]

    result = Library([drawing("far", far, 4, 8)], RUNNABLE[0])(
        "far_8", np.float32, np.arange(5, 13)
    )
    counters = [np.array([each], np.uint64) for each in (0, 2, 0, 0, 1, 2, 0, 0)]
    words = np.concatenate([*philox(5, counters[:4]), *philox(5, counters[4:])])
    np.testing.assert_array_equal(result, (words >> np.uint64(8)).astype(np.float32) * 2.0**-24)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_kernels_call_nothing(machine):
    text = assembly(kernels(machine.vector_bytes // 4), machine)
    assert not re.findall(r"^\s+(?:callq?|bl|blr|jmpq?\s+\*\S+)\s.*", text, re.MULTILINE)


def test_blocks_multiply_lower_halves():
    """The words of a block are vectors of 64-bit lanes, and a product is one instruction."""
    text = assembly([drawing("in_order", in_order, 4, 16, 2)], AVX512)
    assert 18 <= text.count("vpmuludq") <= 20
