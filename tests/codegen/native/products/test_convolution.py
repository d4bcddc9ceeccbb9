"""Convolutions of native code and their gradients equal their definition in float64."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.codegen.native.llvm_ir import F32, F64
from compiler.codegen.native.machine import AVX512, NEON, Machine
from compiler.codegen.native.products.convolution import Convolution, convolution
from compiler.codegen.native.products.epilogue import Epilogue, bias
from compiler.codegen.native.products.filter_gradient import filter_gradient
from compiler.codegen.native.products.image_gradient import image_gradient
from compiler.ir.dims import Dim, Size, evaluate
from compiler.ir.windows import StaticWindow
from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.native.support import run_checked_steps, run_steps
from tests.support.compiled_kernels import assembly, on_machines

N, H = Dim.named("N"), Dim.named("H")
VALUES = {"N": 5, "H": 11}


def _conv(
    images: Size, channels: int, size: Sequence[Size], filters: int, kernel: int, stride: int = 1,
    dilation: int = 1, padding: tuple[int, int] = (0, 0), groups: int = 1,
) -> Convolution:  # fmt: skip
    """A convolution that is alike on all axes."""
    alike = (kernel, stride, dilation, *padding)
    windows = tuple(StaticWindow.fitting(extent, *alike) for extent in size)
    return Convolution(images, channels, filters, windows, groups)


CASES = [
    _conv(1, 3, (20, 21), 19, 7, 2, 1, (3, 3)),
    _conv(2, 16, (9, 9), 32, 3, 1, 1, (1, 1)),
    _conv(2, 5, (9, 11), 7, 3, 1, 2, (1, 2)),
    _conv(2, 5, (9, 11), 7, 3, 2, 2, (1, 2)),
    _conv(2, 5, (9, 11), 7, 3, 3, 2),
    _conv(1, 8, (10, 10), 20, 1),
    _conv(3, 8, (10, 10), 20, 1, 2),
    _conv(2, 12, (7, 8), 18, 3, 2, 1, (1, 1), 3),
    _conv(2, 4, (30,), 9, 5, 2, 1, (2, 2)),
    _conv(1, 3, (5, 6, 7), 10, 3, 1, 1, (1, 1)),
    _conv(N, 8, (7, 7), 20, 1),
    _conv(N, 8, (7, 7), 20, 3, 1, 1, (1, 1)),
    _conv(N, 8, (H, N), 20, 3, 2, 1, (1, 1)),
    _conv(2, 16, (70, 60), 16, 3, 1, 1, (1, 1)),
    _conv(300, 3, (10, 9), 5, 3, 1, 1, (1, 1)),
    _conv(2, 37, (9, 11), 1, 5, 2, 1, (2, 2)),
    _conv(N, 16, (H, 10), 1, 3, 1, 2, (1, 1)),
    _conv(2, 70, (5, 5), 2, 1, groups=2),
    _conv(2, 3, (23, 30), 5, 8, 4, 1, (2, 1)),
    _conv(1, 4, (6, 8, 10), 6, 4, 2, 1, (1, 1), 2),
    _conv(N, 2, (24, 17), 3, 6, 5, 3, (4, 3)),
]
"""Odd sizes, strides, dilations and paddings; groups; 1-D and 3-D; open batch and size; parts; one
filter; phases of gradients that are joined.
"""


def known(conv: Convolution) -> Convolution:
    """The convolution with numbers for open sizes."""
    number = lambda size: evaluate(size, VALUES)  # noqa: E731
    windows = tuple(
        replace(window, size=number(window.size), count=number(window.count))
        for window in conv.windows
    )
    return replace(conv, images=number(conv.images), windows=windows)


def windows(conv: Convolution, padded: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """The view [n, y…, c] of padded images that an entry of the kernel multiplies."""
    spans = [
        slice(k * w.dilation, k * w.dilation + w.stride * (evaluate(w.count, {}) - 1) + 1, w.stride)
        for k, w in zip(place, conv.windows, strict=True)
    ]
    return padded[(slice(None), *spans)]


def pads(conv: Convolution) -> list[tuple[int, int]]:
    """The paddings of an array of images, for NumPy."""
    return [(0, 0), *((window.before, window.after) for window in conv.windows), (0, 0)]


def entries(conv: Convolution) -> list[tuple[int, ...]]:
    """The places in the kernel."""
    return list(product(*map(range, conv.kernel)))


def _groups(conv: Convolution) -> list[tuple[slice, slice]]:
    c, f = conv.group_channels, conv.group_filters
    return [(slice(g * c, g * c + c), slice(g * f, g * f + f)) for g in range(conv.groups)]


def defined(conv: Convolution, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution of images [n, y…, c] and filters [k…, c, f]."""
    padded = np.pad(x, pads(conv))
    out = np.zeros([*windows(conv, padded, entries(conv)[0]).shape[:-1], conv.filters])
    for place, (c, f) in product(entries(conv), _groups(conv)):
        out[..., f] += windows(conv, padded, place)[..., c] @ w[place][..., f]
    return out


def defined_gradients(
    conv: Convolution, x: np.ndarray, w: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients by images and by filters [k…, c, f]."""
    padded = np.pad(x, pads(conv))
    d_padded, d_w = np.zeros_like(padded), np.zeros_like(w)
    for place, (c, f) in product(entries(conv), _groups(conv)):
        windows(conv, d_padded, place)[..., c] += d[..., f] @ w[place][..., f].T
        seen = windows(conv, padded, place)[..., c].reshape(-1, conv.group_channels)
        d_w[place][..., f] = seen.T @ d[..., f].reshape(len(seen), -1)
    inside = [
        slice(before, before + size)
        for before, size in zip((w.before for w in conv.windows), x.shape[1:-1], strict=True)
    ]
    return d_padded[(slice(None), *inside)], d_w


def stored(conv: Convolution, w: np.ndarray) -> np.ndarray:
    """Filters [k…, c, f] in the layout of the convolution."""
    axes = list(range(w.ndim))
    return w if conv.filters_last else np.ascontiguousarray(w.transpose(-1, -2, *axes[:-2]))


def drawn(conv: Convolution, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, filters [k…, c, f] and a gradient of the output."""
    at = known(conv)
    random = np.random.default_rng(0)
    out = [at.images, *at.out_size, at.filters]
    shapes = ([at.images, *at.size, at.channels], [*at.kernel, at.group_channels, at.filters], out)
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def close(got: np.ndarray, want: np.ndarray, bound: float) -> None:
    """Compare, relative to the largest element."""
    assert got.shape == want.shape
    assert abs(got - want).max() <= bound * abs(want).max()


@on_machines
@pytest.mark.parametrize("conv", CASES, ids=str)
def test_convolutions(machine: Machine, conv: Convolution) -> None:
    x, w, d = drawn(conv)
    c = np.arange(conv.filters, dtype=np.float32)
    want = defined(known(conv), x.astype(float), w.astype(float)) + c
    for filters_last in (False, True):
        conv = replace(conv, filters_last=filters_last)
        epilogue = bias(F32, 2 + len(conv.size))
        steps = convolution(machine, F32, conv, epilogue=epilogue, constant=filters_last)
        arrays = {"input": x, "filter": stored(conv, w), "bias": c, "out": np.zeros_like(d)}
        close(run_steps(steps, machine, arrays, VALUES, (30, 55))["out"], want, 3e-6)


@on_machines
@pytest.mark.parametrize("conv", CASES, ids=str)
def test_gradients(machine: Machine, conv: Convolution) -> None:
    x, w, d = drawn(conv)
    by_image, by_filter = defined_gradients(
        known(conv), *(each.astype(float) for each in (x, w, d))
    )
    for filters_last in (False, True):
        conv = replace(conv, filters_last=filters_last)
        filters = stored(conv, w)
        arrays = {"d_out": d, "filter": filters, "out": np.full_like(x, np.nan)}
        steps = image_gradient(machine, F32, conv)
        close(run_steps(steps, machine, arrays, VALUES, (30, 55))["out"], by_image, 3e-6)
        arrays = {"input": x, "d_out": d, "out": np.full_like(filters, np.nan)}
        steps = filter_gradient(machine, F32, conv)
        got = run_steps(steps, machine, arrays, VALUES, (30, 55))["out"]
        close(got, stored(conv, by_filter), 2e-5)


@on_machines
def test_parts_of_a_sum_over_one_axis_differ_in_size(machine: Machine) -> None:
    """The filter gradient of long rows, in parts of which the last has fewer positions."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        test_gradients(machine, _conv(1, 6, (29,), 20, 3))


@on_machines
@pytest.mark.parametrize("images", [2, 23])
def test_packing_a_divided_sum_stays_within_the_gradient(machine: Machine, images: int) -> None:
    """Of an open number of images, the last part has fewer than the others."""
    conv = _conv(N, 64, (7, 7), 256, 3, padding=(1, 1))
    x, w, d_out = drawn(replace(conv, images=images))
    steps = filter_gradient(machine, F32, conv)
    names = [call.kernel.name for call in (*steps.prepare, *steps.calls)]
    assert any(name.startswith("pack_rows") for name in names)
    arrays = {"input": x, "d_out": d_out, "out": np.zeros_like(stored(conv, w))}
    result = run_checked_steps(steps, machine, arrays, {"N": images})["out"]
    _, by_filter = defined_gradients(replace(conv, images=images), x, w, d_out)
    close(result, stored(conv, by_filter), 2e-5)


@pytest.mark.parametrize("padding", [0, 16])
def test_a_gradient_of_windows_far_apart_has_a_few_kernels(padding: int) -> None:
    """Not one for each of 32 x 32 phases."""
    conv = _conv(1, 8, (288 - 2 * padding,) * 2, 8, 64, 32, 1, (padding, padding))
    assert len(image_gradient(AVX512, F32, conv).calls) < 10


def test_the_cost_of_a_gradient_is_that_of_its_images_not_of_whole_parts() -> None:
    first, *_ = filter_gradient(AVX512, F32, _conv(N, 3, (8, 8), 8, 3)).calls
    flops = [evaluate(first.kernel.flops, {"N": images}) for images in (2, 4)]
    assert flops == [2 * images * (6 * 6) * (3 * 3) * 3 * 8 for images in (2, 4)]


@on_machines
def test_doubles(machine: Machine) -> None:
    conv = CASES[1]
    x, w, d = drawn(conv, np.float64)
    arrays = {"input": x, "filter": stored(conv, w), "out": np.zeros_like(d)}
    got = run_steps(convolution(machine, F64, conv), machine, arrays)["out"]
    close(got, defined(conv, x, w), 1e-14)


@on_machines
@pytest.mark.parametrize(
    "conv", [CASES[0], CASES[8], CASES[12], replace(CASES[3], halo=2)], ids=str
)
def test_images_with_channels_first_or_zeros_around_them(
    machine: Machine, conv: Convolution
) -> None:
    x, w, d = drawn(conv)
    want = defined(known(conv), x.astype(float), w.astype(float))
    images = x if conv.halo else np.ascontiguousarray(np.moveaxis(x, -1, 1))
    if conv.halo:
        images = np.pad(x, [(0, 0), *[(conv.halo,) * 2] * len(conv.size), (0, 0)])
    conv = replace(conv, channels_first=not conv.halo)
    arrays = {"input": images, "filter": stored(conv, w), "out": np.zeros_like(d)}
    steps = convolution(machine, F32, conv)
    assert "padded" not in steps.scratch or not conv.halo
    close(run_steps(steps, machine, arrays, VALUES)["out"], want, 3e-6)


@on_machines
def test_gradients_accumulate(machine: Machine) -> None:
    """Pixels that no window reads keep what was there."""
    conv = CASES[6]
    x, w, d = drawn(conv)
    by_image, _ = defined_gradients(conv, x.astype(float), w.astype(float), d.astype(float))
    arrays = {"d_out": d, "filter": stored(conv, w), "out": x}
    steps = image_gradient(machine, F32, conv, epilogue=Epilogue("add", start="out"))
    close(run_steps(steps, machine, arrays)["out"], by_image + x, 3e-6)


@on_machines
@given(st.data())
@settings(max_examples=12)
def test_convolutions_of_any_size(machine: Machine, data: st.DataObject) -> None:
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    groups, kernel, dilation = number(1, 2), number(1, 4), number(1, 2)
    least = dilation * (kernel - 1) + 1
    size = [number(least, least + 12) for _ in range(number(1, 2))]
    paddings = (number(0, kernel), number(0, kernel))
    conv = _conv(
        number(1, 3), groups * number(1, 20), size, groups * number(1, 40), kernel, number(1, 3),
        dilation, paddings, groups,
    )  # fmt: skip
    test_convolutions(machine, conv)
    test_gradients(machine, conv)


@pytest.mark.parametrize("conv", [CASES[0], CASES[1], CASES[7], CASES[12]], ids=str)
def test_code_for_arm(conv: Convolution) -> None:
    """It is verified and becomes assembly; nothing runs it here."""
    for steps in (
        convolution(NEON, F32, conv), image_gradient(NEON, F32, conv), filter_gradient(NEON, F32, conv)
    ):  # fmt: skip
        texts = [assembly(call.kernel, NEON) for call in (*steps.prepare, *steps.calls)]
        assert any("fmla" in text for text in texts)
