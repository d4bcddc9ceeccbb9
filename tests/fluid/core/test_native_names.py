"""Small names of `fluid.core`, as release 1.8.5 answers for them."""

import pytest

from fluid import core

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
