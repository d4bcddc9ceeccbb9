"""Sequences of native kernels: arguments, feeds, order, errors, times."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.native.host import host_machine
from compiler.errors import CompileError
from runtime.native import executor as executor_module
from runtime.native import sequence
from runtime.native.addresses import address, documented_address
from runtime.native.elf import ARM, parse
from runtime.native.repeated import at, columns
from runtime.native.sequence import NativeCode, build_objects
from runtime.native.sharing import share
from tests.runtime.native.kernels import double, record_mode, rows, scale, sums

ROOT = Path(__file__).parents[3]
FTZ_DAZ = 0x8040
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads MXCSR")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path / "cache"))


def load(*kernels):
    return NativeCode({kernel.name: kernel.text() for kernel in kernels})


def array(*shape):
    return np.random.default_rng(7).standard_normal(shape, "f4")


def test_commands_run_in_order():
    native = load(double(), sums())
    x, y, z = array(5, 3), np.empty((5, 3), "f4"), np.empty(5, "f4")
    run = native([("double", (x, y, 3), 5), ("sums", (y, z, 3), 5)])
    run()
    assert np.array_equal(y, 2 * x)
    np.testing.assert_allclose(z, y.sum(1), rtol=1e-6)


def test_addresses_are_those_of_the_kernels():
    native = load(double(), sums())
    assert set(native.addresses) == {"double", "sums"}
    assert len({*native.addresses.values()}) == 2


def test_feeds_may_be_other_arrays_in_each_call():
    native = load(double())
    y, z = np.empty((4, 2), "f4"), np.empty((4, 2), "f4")
    run = native([
        ("double", (native.feed(1, "float32"), y, 2), 4),
        ("double", (native.feed(0, "float32"), z, 2), 4),
        ("double", (native.feed(1, "float32"), y, 2), 4),
    ])  # fmt: skip
    for seed in range(3):
        a, b = array(4, 2) + seed, array(4, 2) - seed
        run(a, b)
        assert np.array_equal(y, 2 * b) and np.array_equal(z, 2 * a)


def test_feeds_may_be_empty_or_read_only():
    native = load(double())
    y = np.empty((4, 2), "f4")
    run = native([("double", (native.feed(0, "float32"), y, 0), 4)])
    run(np.empty((4, 0), "f4"))
    x = array(4, 2)
    x.flags.writeable = False
    run = native([("double", (native.feed(0, "float32"), y, 2), 4)])
    run(x)
    assert np.array_equal(y, 2 * x)


def test_numbers_may_be_others_in_each_call():
    native = load(double())
    x, y = array(4, 3), np.empty((4, 3), "f4")
    run = native(
        [("double", (native.feed(2, "float32"), y, native.number(0)), 4, native.number(1))]
    )
    for length in (3, 1, 0, 2):
        y[:] = 0
        run(length, 8 * length, x)
        used = 4 * length
        assert np.array_equal(y.reshape(-1)[:used], 2 * x.reshape(-1)[:used])
        assert not y.reshape(-1)[used:].any()


def test_arrays_of_a_sequence_live_as_long_as_it():
    native = load(double())
    y = np.empty((4, 2), "f4")
    x = array(4, 2)
    expected = 2 * x
    run = native([("double", (x, y, 2), 4)])
    del x, native
    np.full(8, 9, "f4")
    run()
    assert np.array_equal(y, expected)


def test_a_command_without_units_is_not_called():
    native = load(double())
    y = np.zeros((4, 2), "f4")
    native([("double", (array(4, 2), y, 2), 0)])()
    assert not y.any()
    native([])()
    assert native.timed(pytest.fail)([])() is None


def test_equal_kernels_are_loaded_once():
    first, second = load(double()), load(double(), sums())
    assert first.addresses["double"] == second.addresses["double"]


def test_kernels_of_one_name_with_different_code_stay_apart():
    thrice, half = load(scale(3.0)), load(scale(0.5))
    x, y, z = array(2, 2), np.empty((2, 2), "f4"), np.empty((2, 2), "f4")
    thrice([("scale", (x, y, 2), 2)])()
    half([("scale", (x, z, 2), 2)])()
    assert np.array_equal(y, x * 3) and np.array_equal(z, x / 2)


def test_unknown_kernels_and_strided_arrays_are_errors():
    native = load(double())
    with pytest.raises(CompileError, match="no kernel 'dubble'"):
        native([("dubble", (), 1)])
    with pytest.raises(CompileError, match="not contiguous"):
        native([("double", (array(4, 6)[:, ::2], array(4, 3), 3), 4)])


def test_invalid_ir_names_the_kernel_and_the_line():
    text = double().text().replace("fadd", "fadt")
    with pytest.raises(CompileError) as caught:
        NativeCode({"broken": text})
    number, line = next((n, line) for n, line in enumerate(text.split("\n"), 1) if "fadt" in line)
    assert f"line {number} of the IR of kernel broken" in str(caught.value)
    assert line.strip() in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)])
def test_addresses_of_arrays(shape):
    for order in "CF":
        inputs = np.ones(shape, order=order)
        assert address(inputs) == inputs.ctypes.data
    view = np.arange(20)[3:9]
    assert address(view) == view.ctypes.data


def test_denormals_are_zero_inside_and_only_there():
    quarter = rows("quarter", lambda f, v: f.mul(v, f.constant(v.type, 0.25)))
    native = load(quarter)
    tiny = np.finfo("f4").tiny
    x = np.array([[1.0, tiny, tiny / 4]], "f4")
    y = np.empty_like(x)
    native([("quarter", (x, y, 3), 1)])()
    assert y.tolist() == [[0.25, 0.0, 0.0]]
    assert (x * np.float32(0.5))[0, 2] == np.float32(tiny) / 8 > 0


@on_x86
def test_the_mode_of_floats_is_restored():
    native = load(record_mode())
    inside, direct = np.zeros(1, "i4"), np.zeros(1, "i4")
    slots = np.array([direct.ctypes.data])
    import ctypes

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    outside = call(native.addresses["record_mode"])
    outside(slots.ctypes.data, 0, 1)
    before = direct[0]
    native([("record_mode", (inside,), 1)])()
    outside(slots.ctypes.data, 0, 1)
    assert inside[0] & FTZ_DAZ == FTZ_DAZ
    assert direct[0] & ~63 == before & ~63  # but for the flags of exceptions
    assert not before & FTZ_DAZ


def test_times_are_reported_for_each_command():
    native = load(double(), sums())
    reports = []
    timed = native.timed(lambda names, times: reports.append((list(names), list(times))))
    x, y = array(200, 100), np.empty((200, 100), "f4")
    run = timed([("double", (x, y, 100), 200), ("sums", (y, np.empty(200, "f4"), 100), 200)])
    run()
    run()
    assert np.array_equal(y, 2 * x)
    assert [names for names, _ in reports] == [["double", "sums"]] * 2
    assert all(100 < time < 1e9 for _, times in reports for time in times)


def test_small_commands_run_alone_and_threads_wake_if_enough_follows():
    large, some = 1 << 30, 1 << 20
    assert share([1, 8], [large, 100]).tolist() == [0, 0]
    assert share([8, 8], [large, some]).tolist() == [2, 1]
    assert share([8], [some]).tolist() == [1]
    assert share([8] * 6, [10, *[some] * 5]).tolist() == [0, 2, 2, 1, 1, 1]
    with pytest.raises(OverflowError, match=r"a kernel would take 2e\+19 operations; a window"):
        share([8], [2 * 10**19])
    assert share([], []).tolist() == []


def test_object_files_that_are_given_need_neither_llvm_nor_the_cache(tmp_path):
    built = build_objects({"double": double().text()}, host_machine().name)
    folder = tmp_path / "built"
    folder.mkdir()
    for name, data in built.items():
        (folder / name).write_bytes(data)
    script = """
import sys
sys.modules["llvmlite"] = None
from pathlib import Path
import numpy as np
from runtime.native.sequence import NativeCode
from tests.runtime.native.kernels import double
built = {each.name: each.read_bytes() for each in Path(sys.argv[1]).iterdir()}
native = NativeCode({"double": double().text()}, sys.argv[2], built=built)
x, y = np.ones((2, 3), "f4"), np.zeros((2, 3), "f4")
native([("double", (x, y, 3), 2)])()
print((y == 2).all())
"""
    command = [sys.executable, "-c", script, str(folder), host_machine().name]
    environment = os.environ | {"FLUID_CACHE_SIZE": "0"}
    assert subprocess.check_output(command, cwd=ROOT, env=environment, text=True) == "True\n"


def test_without_llvm_an_error_says_what_to_install():
    script = """
import sys
sys.modules["llvmlite"] = None
from runtime.native.sequence import NativeCode
try:
    NativeCode({})
except ValueError as error:
    print(error)
"""
    shown = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True)
    assert "native code needs llvmlite" in shown and "fluid-compiler[native]" in shown


def test_object_files_for_another_machine():
    built = build_objects({"double": double().text()}, "neon")
    assert {parse(each).architecture for each in built.values()} == {ARM}


def test_addresses_by_numpys_interface(monkeypatch):
    """Where arrays are laid out in another way, the documented interface is used."""
    monkeypatch.setattr(sequence, "address", documented_address)
    native = load(double())
    x, y = array(4, 2), np.empty((4, 2), "f4")
    native([("double", (native.feed(0, "float32"), y, 2), 4)])(x)
    assert np.array_equal(y, 2 * x)


def test_repeated_commands_take_other_arguments_each_time():
    native = load(double())
    x, y = array(6, 2), np.zeros((6, 2), "f4")
    begin, count = columns([(0, 2), (5, 1), (2, 3), (0, 0)], 2)
    native.repeat(begin.size, [("double", (at(x, 2 * begin), at(y, 2 * begin), 2), count, 1)])
    assert np.array_equal(y, 2 * x)
    native.repeat(0, [("double", (at(x), at(y), 2), 6, 1)])


@pytest.mark.parametrize("work", [1, 1 << 30])
def test_repeated_commands_run_in_order(work):
    native = load(double())
    x = np.ones((64, 2), "f4")
    native.repeat(5, [("double", (at(x), at(x), 2), 64, work)] * 2)
    assert (x == 2.0**10).all()


def test_a_missing_executor_is_compiled_beside_the_kernels(monkeypatch):
    built = []

    def objects(kernels, *rest):
        built.append(sorted(kernels))
        return real(kernels, *rest)

    real = sequence.objects
    monkeypatch.setattr(sequence, "objects", objects)
    monkeypatch.setattr(executor_module, "_loaded", {})
    monkeypatch.setattr(sequence, "_loaded", {})
    native, again = load(double()), load(double(), scale(2.0))
    assert built == [["double", "executor"], ["scale"]]
    assert native._executor is again._executor
