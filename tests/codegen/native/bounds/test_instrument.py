"""Native kernels that check bounds: overruns planted in each kind of kernel are found and named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
import runtime
from compiler.codegen.native.bounds.instrument import with_bounds_checks
from compiler.codegen.native.bounds.ir_lines import UncheckedLine
from compiler.codegen.native.host import detected
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, I64, POINTER, Function, module_text
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.errors import OutOfBounds
from runtime.native.bounds import CheckedCode
from tests.ops.compiled_samples import FIRST
from tests.ops.samples import Sample
from tests.ops.test_generated import NOBODY, Case, backward, forward, graph_of, with_elements

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

TARGET = NativeTarget()
SIZES = {"float": 4, "double": 8, "i8": 1, "i32": 4, "i64": 8}
PLAIN = re.compile(r"  (?:%\S+ = (load)|(store)) (?!ptr)(.*?), ptr (%\w+), align")
MASKED = re.compile(r"@llvm\.masked\.(load|store|gather|scatter)\.v\d+[if](\d+)\..*?ptr>? (%\w+), ")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, "f4")


def conv(op: str, channels: int, size: int, groups: int, filter: int = 3) -> Sample:
    inputs = {
        "Input": image(1, size, size, channels),
        "Filter": image(channels, channels // groups, filter, filter),
    }
    attrs = {"paddings": [1, 1], "groups": groups, "data_format": "NHWC"}
    return Sample(op, inputs, attrs, ("Input", "Filter"))


def pool(kind: str, size: int, whole: bool = False) -> Sample:
    attrs = {"pooling_type": kind, "ksize": [size, size], "strides": [2, 2], "data_format": "NHWC"}
    images = {"X": image(2, 9, 9, 20)}
    return Sample("pool2d", images, attrs | {"global_pooling": whole}, ("X",))


SAMPLES = {
    "pointwise": (FIRST["relu"], forward),
    "reductions that keep their rows": (FIRST["softmax"], forward),
    "sorted rows": (FIRST["argsort"], forward),
    "gathers": (FIRST["lookup_table_v2"], forward),
    "additions to rows": (FIRST["lookup_table_v2"], backward),
    "global reductions": (Sample("mean", {"X": image(3, 70)}), forward),
    "products": (Sample("mul", {"X": image(17, 33), "Y": image(33, 19)}), forward),
    "convolutions": (conv("conv2d", 16, 9, 1, 5), forward),
    "gradients of convolutions": (conv("conv2d", 16, 9, 1), backward),
    "depthwise": (conv("depthwise_conv2d", 16, 9, 16), forward),
    "gradients of depthwise": (conv("depthwise_conv2d", 16, 9, 16), backward),
    "pooling": (pool("max", 3), forward),
    "gradients of maxima": (pool("max", 2), backward),
    "gradients of whole images": (pool("max", 9, True), backward),
    "gradients of averages": (pool("avg", 3), backward),
    "transposes": (Sample("transpose2", {"X": image(2, 3, 5, 7)}, {"axis": [0, 2, 3, 1]}), forward),
}


def moved(text: str, kind: str, elements: int) -> str:
    """The text of a kernel in which all loads or stores are some elements further."""
    own = {"%arguments", *re.findall(r"(%\w+) = getelementptr i8, ptr %arguments,", text)}
    lines: list[str] = []
    for number, line in enumerate(text.splitlines()):
        result = PLAIN.match(line) or MASKED.search(line)
        if result is None or result[result.lastindex or 0] in own or kind_of(result) != kind:
            lines.append(line)
            continue
        pointer = result[result.lastindex or 0]
        lines.append(
            f"  %moved{number} = getelementptr i8, {address(line, pointer)}, i64 {elements * size(result)}"
        )
        lines.append(re.sub(rf"{re.escape(pointer)}(?=,)", f"%moved{number}", line, count=1))
    return "\n".join(lines) + "\n"


def kind_of(found: re.Match[str]) -> str:
    """Whether an access is a load or a store."""
    return "store" if {"store", "scatter"} & {*found.groups()} else "load"


def size(found: re.Match[str]) -> int:
    """The bytes of an element that is accessed."""
    if found.re is MASKED:
        return int(found[2]) // 8
    return next(nbytes for name, nbytes in SIZES.items() if re.search(rf"\b{name}\b", found[3]))


def address(line: str, pointer: str) -> str:
    """A pointer with its type."""
    return re.search(rf"(<\d+ x ptr>|ptr) {re.escape(pointer)}(?=,)", line)[0]


def computed(case: Case) -> Any:
    """The module of a case whose kernels check bounds, loaded, and its feed."""
    graph, feed = graph_of(case, with_elements(case), NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    module = TARGET.emit(freeze(graph), poison=True)
    assert module.kernels_ir, "this case has no kernels"
    return runtime.load(module)(feed)


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A function that plants an error in every load or every store of some kernels."""
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    intact = NativeKernel.text

    def plant(kind: str, name: str = "", elements: int = 1) -> None:
        def text(kernel: NativeKernel) -> str:
            result = intact(kernel)
            return moved(result, kind, elements) if name in kernel.name else result

        monkeypatch.setattr(NativeKernel, "text", text)

    yield plant


@pytest.mark.parametrize("kind", ["load", "store"])
@pytest.mark.parametrize("name", SAMPLES)
def test_an_overrun_by_one_element_is_found(name: str, kind: str, planting: Any) -> None:
    sample, make = SAMPLES[name]
    planting(kind)
    verb = {"load": "reads", "store": "writes"}[kind]
    with pytest.raises(OutOfBounds, match=rf"kernel \w+ {verb} \d+ bytes at offset -?\d+ of "):
        computed(make(sample))


@pytest.mark.parametrize("name", ["pointwise", "additions to rows", "depthwise", "sorted rows"])
def test_intact_kernels_pass(name: str) -> None:
    sample, make = SAMPLES[name]
    case = make(sample)
    for found, slot in zip(computed(case), with_elements(case), strict=True):
        np.testing.assert_allclose(found, case.results[slot], rtol=1e-4, atol=1e-4)


def copy(shift: int, lanes: int = 0) -> NativeKernel:
    """A kernel that copies `units` floats, or vectors, from one array to another."""
    f, (x, y), first, last = entry("copy", [POINTER, POINTER])
    width = max(lanes, 1)

    def one(unit: Any, held: Any) -> Any:
        place = f.mul(unit, f.index(width))
        value = f.load(F32.vector(lanes), f.address(x, f.add(place, f.index(shift)), 4))
        f.store(value, f.address(y, place, 4))
        return held

    f.loop(first, last, 1, one)
    return NativeKernel([f], 1)


def code(kernel: NativeKernel) -> CheckedCode:
    return CheckedCode({kernel.name: with_bounds_checks(kernel.text())})


@pytest.mark.parametrize(
    ("shift", "where"), [(1, "offset 32"), (-1, "offset -4"), (999, "offset 3996")]
)
def test_the_error_names_kernel_argument_offset_and_op(shift: int, where: str) -> None:
    native, memory = code(copy(shift)), np.zeros(100, "f4")
    x, y = memory[8:16], np.zeros(8, "f4")
    site = (("x", "y"), ("y = copy(x)  model.py:12",))
    with pytest.raises(OutOfBounds) as raised:
        native([("copy", (x, y), 8, 0, 0, site)])()
    assert f"kernel copy reads 4 bytes at {where}" in str(raised.value)
    assert "argument 0 (x), which has 32 bytes\n" in str(raised.value)
    assert (raised.value.op, raised.value.source) == ("y = copy(x)", "model.py:12")


def test_bounds_separate_arrays_of_one_arena() -> None:
    native, memory = code(copy(0, 16)), np.zeros(64, "f4")
    run = native([("copy", (memory[:16], memory[16:31]), 1)])
    with pytest.raises(OutOfBounds, match=r"writes 64 bytes at offset 0 .*has 60 bytes"):
        run()
    assert not memory.any()
    native([("copy", (memory[:16], memory[16:32]), 1)])()


def test_feeds_have_the_bounds_of_each_call() -> None:
    native, y = code(copy(0)), np.zeros(8, "f4")
    run = native([("copy", (native.feed(0, "float32"), y), 8)])
    run(image(8))
    with pytest.raises(OutOfBounds, match="offset 28 of argument 0, which has 28 bytes"):
        run(image(7))
    x = image(8)
    run(x)
    assert np.array_equal(x, y)


def test_too_few_arguments_are_found() -> None:
    native = code(copy(0))
    with pytest.raises(OutOfBounds, match="offset 8 of its list of arguments, which has 8 bytes"):
        native([("copy", (image(8),), 8)])()
    with pytest.raises(OutOfBounds, match="argument 1"):
        native.call("copy", (image(8), image(7)), 8)


def with_a_line(line: str) -> str:
    f = Function("odd", [("arguments", POINTER), ("first", I64), ("last", I64)])
    f.effect(line)
    return module_text([f])


@pytest.mark.parametrize(
    "line", ["%p = inttoptr i64 %first to ptr", "store ptr %arguments, ptr %arguments, align 8",
             "call void @free(ptr %arguments)", "%v = load atomic i64, ptr %arguments, align 8"],
)  # fmt: skip
def test_a_pointer_of_unknown_origin_is_refused(line: str) -> None:
    with pytest.raises(UncheckedLine, match="no bounds are known"):
        with_bounds_checks(with_a_line(line))


@pytest.mark.usefixtures("fresh_programs")
def test_programs_under_fluid_check(monkeypatch: pytest.MonkeyPatch, planting: Any) -> None:
    def run(environ: Mapping[str, str]) -> np.ndarray:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        x = fluid.layers.data("x", [7])
        y = fluid.layers.softmax(x)
        exe = fluid.Executor(fluid.CPUPlace())
        return exe.run(feed={"x": np.ones((3, 7), "f4")}, fetch_list=[y])[0]

    expected = run({"FLUID_TARGET": "native"})
    assert np.array_equal(run({"FLUID_CHECK": "1"}), expected)
    planting("store")
    with pytest.raises(OutOfBounds, match=r"kernel softmax\w* writes") as raised:
        run({"FLUID_CACHE_SIZE": "0"})
    assert raised.value.op.endswith("softmax(x)") and "test_instrument.py" in raised.value.source


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(
    ("kind", "part"),
    [("load", "filters"), ("load", "images"), ("load", "products"), ("store", "results")],
)
def test_winograd(kind: str, part: str, planting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CHECK", "1")
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    planting(kind, f"winograd4_{part}", 1 << 16)  # its memory is for any number of images
    x = fluid.layers.data("x", [64, 16, 16])
    y = x
    for _ in range(3):
        y = fluid.layers.conv2d(y, 64, 3, padding=1, name=kind + part)  # a program of its own
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(OutOfBounds, match=f"winograd4_{part}"):
        exe.run(feed={"x": np.ones((2, 64, 16, 16), "f4")}, fetch_list=[y])
