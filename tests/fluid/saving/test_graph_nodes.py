"""Persistable variables of graphs in files."""

import numpy as np
import pytest

import fluid
from fluid import core
from fluid.framework import IrGraph


def test_variables_of_a_graph_are_saved_and_loaded(exe, fresh_programs, tmp_path):
    fluid.layers.fc(fluid.data("x", [-1, 2]), 1, param_attr="w", bias_attr="b")
    exe.run(fluid.default_startup_program())
    graph = IrGraph(core.Graph(fluid.default_main_program().desc))
    tensor = fluid.global_scope().find_var("w").get_tensor()
    before = np.array(tensor)
    folder = tmp_path / "nodes"
    fluid.io._save_persistable_nodes(exe, str(folder), graph)
    assert sorted(path.name for path in folder.iterdir()) == ["b", "w"]
    tensor.set(np.zeros_like(before), fluid.CPUPlace())
    (folder / "b").unlink()
    with pytest.warns(UserWarning, match="Cannot find the var b"):
        fluid.io._load_persistable_nodes(exe, str(folder), graph)
    np.testing.assert_array_equal(np.array(tensor), before)
