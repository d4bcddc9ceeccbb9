"""What programs see of native code: weights packed again, the target asked for."""

import os
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def line() -> tuple[fluid.Program, fluid.Program, Any]:
    """A program of one product, whose weight it does not write."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        y = fluid.layers.fc(x, 2, param_attr="w", bias_attr=False)
    return main, startup, y


def test_a_weight_set_between_runs_is_packed_again() -> None:
    main, startup, y = line()
    exe, x = fluid.Executor(), np.arange(12, dtype="float32").reshape(4, 3)
    with fluid.scope_guard(fluid.Scope()) as _:
        exe.run(startup)
        for number in (1.0, 2.0, 3.0):
            weight = np.full((3, 2), number, "float32")
            fluid.global_scope().find_var("w").get_tensor().set(weight, fluid.CPUPlace())
            for _ in range(2):
                (found,) = exe.run(main, feed={"x": x}, fetch_list=[y])
                np.testing.assert_allclose(found, x @ weight, rtol=1e-6)


def test_a_program_is_compiled_for_the_target_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUID_TARGET", "other")
    with pytest.raises(ValueError, match="the target is 'other', expected 'native' or 'numpy'"):
        fluid.Executor(fluid.CPUPlace())
    assert os.environ["FLUID_TARGET"] == "other"
