"""Reads of device memory that nobody wrote are found, in kernels and in whole steps."""

import numpy as np
import pytest

import fluid
from fluid.__main__ import main
from fluid.inference.packages import load_compiled
from runtime.gpu.launches import Launcher
from tests.tools.ptx.support import kernel
from tools.ptx import Memory
from tools.ptx.errors import Unwritten
from tools.ptx.hazards import Hazards
from tools.ptx.launch import kernels, launch
from tools.ptx.unwritten import mark

WORD = "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nadd.u64 %rd4, %rd1, %rd2;\n"
READ, WRITE = "ld.global.b32 %r6, [%rd3];\n", "st.global.b32 [%rd4], %r6;\n"


def run(body, source, out=None):
    """Run two threads over words of `source` and `out`, and look for hazards."""
    (program,) = kernels(kernel(WORD + body)).values()
    memory = Memory()
    arrays = (source, np.zeros(2, "u4") if out is None else out)
    parameters = {f"p{i}": memory.add(f"p{i}", array) for i, array in enumerate(arrays)}
    packed = {name: at.to_bytes(8, "little") for name, at in parameters.items()}
    with Hazards().launch(program, memory) as seen:
        launch(seen, (1, 1, 1), (2, 1, 1), 0, packed, memory)
    return arrays[1]


def marked(count):
    array = np.zeros(count, "u4")
    mark(array.ctypes.data, array.nbytes)
    return array


def test_unwritten_read_is_found():
    source = marked(2)
    assert np.isnan(source.view("f4")).all()
    with pytest.raises(Unwritten, match=r"thread 0 and 1 more: .* nobody wrote, byte 0 of p0"):
        run(READ + WRITE, source)
    source[0] = 5
    with pytest.raises(Unwritten, match=r"thread 1: .* nobody wrote, byte 4 of p0"):
        run(READ + WRITE, source)
    source[1] = 6
    assert run(READ + WRITE, source).tolist() == [5, 6]


def test_written_memory_is_marked():
    again = "mov.u32 %r6, 3;\n" + WRITE + "ld.global.b32 %r7, [%rd4];\n"
    assert run(again, marked(2), marked(2)).tolist() == [3, 3]


def test_an_atomic_reads():
    add = "atom.global.add.u32 %r6, [%rd3], 1;\n"
    with pytest.raises(Unwritten):
        run(add, marked(2))
    run(add, np.zeros(2, "u4"))


def test_unwritten_half_words_are_found():
    half = "mul.wide.u32 %rd2, %r0, 2;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.b16 %rs1, [%rd3];\n"
    with pytest.raises(Unwritten, match="thread 0 and 1 more"):
        run(half, marked(1))


def test_partly_unwritten_vectors_are_found():
    source = marked(4)
    source[:3] = 1
    vector = "ld.global.v4.b32 {%r6, %r7, %r8, %r9}, [%rd0];\n"
    with pytest.raises(Unwritten):
        run(vector, source)
    source[3] = 1
    run(vector, source)


# ---- whole steps ----


@pytest.fixture
def machine(monkeypatch):
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("FLUID_GPU", "ptx:80")
    monkeypatch.setenv("FLUID_CHECK", "1")


@pytest.fixture
def one_launch_less(monkeypatch):
    """Leave out the first launch."""
    launched, whole = [], Launcher._launch

    def fewer(self, grid, *arguments, **constants):
        launched.append(self.row.kernel)
        if len(launched) > 1:
            whole(self, grid, *arguments, **constants)

    monkeypatch.setattr(Launcher, "_launch", fewer)


def network():
    main_program, startup = fluid.Program(), fluid.Program()
    main_program.random_seed = startup.random_seed = 3
    with fluid.program_guard(main_program, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 13], "float32")
        hidden = fluid.layers.fc(x, 8, act="relu")
        return main_program, startup, fluid.layers.softmax(fluid.layers.fc(hidden, 5))


def trained(place):
    """The loss of two steps, with momentum and a penalty: tables of addresses are used too."""
    main_program, startup, out = network()
    with fluid.program_guard(main_program, startup), fluid.unique_name.guard("more"):
        loss = fluid.layers.mean(fluid.layers.square(out))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(startup)
        executor, feed = fluid.Executor(place), {"x": np.ones((3, 13), "f4")}
        return [executor.run(main_program, feed=feed, fetch_list=[loss])[0] for _ in range(2)]


def test_steps_read_no_unwritten_memory(machine):
    result = trained(fluid.CUDAPlace(0))
    np.testing.assert_allclose(result, trained(fluid.CPUPlace()), rtol=1e-5)


@pytest.mark.usefixtures("one_launch_less")
def test_missing_launch_names_op_and_line(machine):
    with pytest.raises(Unwritten, match="nobody wrote, byte 0 of argument") as result:
        trained(fluid.CUDAPlace(0))
    (note,) = result.value.__notes__
    assert "fc_1.tmp_0 = mul(fc_0.tmp_2, fc_1.w_0)" in note
    assert "test_unwritten.py:" in note


def test_a_finding_in_a_package_names_the_op_and_its_line(
    machine, one_launch_less, tmp_path, monkeypatch, capsys
):
    model, out = str(tmp_path / "model"), str(tmp_path / "out")
    main_program, startup, result = network()
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(model, ["x"], [result], executor, main_program)
    assert main(["compile", model, "--target", "cuda:80", "-o", out]) == 0
    with pytest.raises(Unwritten) as actual:
        load_compiled(out).run([np.ones((3, 13), "f4")])
    assert "mul(fc_0.tmp_2" in actual.value.__notes__[0]
    capsys.readouterr()
