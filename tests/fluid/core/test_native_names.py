"""Small names of `fluid.core`, as release 1.8.5 answers for them."""

import numpy as np
import pytest

import fluid
from fluid import core, layers
from fluid.framework import Program

MARKS = {
    "kControlDepVarName": "__control_var",
    "kEmptyVarName": "@EMPTY@",
    "kGradVarSuffix": "@GRAD",
    "kNewGradSuffix": "@NEWGRAD@",
    "kTempVarName": "@TEMP@",
    "kZeroVarSuffix": "@ZERO",
    "loaded_var_suffix": "@LOADED",
    "is_compiled_with_brpc": False,
    "is_compiled_with_dist": True,
    "avx_supported": True,
}


@pytest.mark.parametrize("name", MARKS)
def test_marks(name: str) -> None:
    assert getattr(core, name)() == MARKS[name]


def test_sizes_and_types() -> None:
    kinds = core.VarDesc.VarType
    assert [core.size_of_dtype(each) for each in (kinds.FP16, kinds.BOOL, kinds.FP64)] == [2, 1, 8]
    with pytest.raises(TypeError, match="is not an element type"):
        core.size_of_dtype(kinds.LOD_TENSOR)
    assert (core.AttrType.BOOL, core.AttrType.BOOLS, core.AttrType.LONGS) == (6, 7, 11)


def test_ignored_settings_are_accepted() -> None:
    core.init_devices(True)
    core.set_num_threads(2)
    assert not core.is_compiled_with_mkldnn()


def test_a_rank_table_is_read_from_the_scope() -> None:
    scope, main = fluid.Scope(), Program()
    with fluid.program_guard(main, Program()):
        x = layers.data("x", [2], lod_level=2)
        table = layers.control_flow.lod_rank_table(x, level=1)
        table.persistable = True
    tensor = fluid.create_lod_tensor(
        np.ones((6, 2), "float32"), [[2, 1], [1, 3, 2]], core.CPUPlace()
    )
    fluid.Executor().run(main, feed={"x": tensor}, scope=scope)
    variable = scope.find_var(table.name)
    assert variable.get_lod_rank_table().items() == [(1, 3), (2, 2), (0, 1)]
    scope.var("y").get_tensor().set(np.ones((2, 3)), core.CPUPlace())
    with pytest.raises(core.EnforceNotMet, match="not a rank table"):
        scope.var("y").get_lod_rank_table()


def test_errors_and_versions() -> None:
    with pytest.raises(core.EnforceNotMet, match="test exception"):
        core.__unittest_throw_exception__()
    assert core._is_program_version_supported(0)
    core._set_fuse_parameter_group_size(3)
    core._set_fuse_parameter_memory_size(131072)
    fluid.Scope()._remove_from_pool()


def test_lists_of_tensors_in_a_scope() -> None:
    scope, tensor = (
        fluid.Scope(),
        fluid.create_lod_tensor(np.ones((4, 2)), [[2, 2]], fluid.CPUPlace()),
    )
    core.set_feed_variable(scope, tensor, "feed", 1)
    found = core.get_fetch_variable(scope, "feed", 1)
    assert found.lod() == [[0, 2, 4]]
    np.testing.assert_array_equal(np.array(found), np.ones((4, 2)))
    assert not core.get_fetch_variable(scope, "feed", 0).is_initialized()
