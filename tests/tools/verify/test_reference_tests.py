"""How operator tests of the reference are run, with some written here in their style."""

from pathlib import Path

import pytest

from tools.verify.reference_tests import report, running
from tools.verify.reference_tests.running import Outcome

HEAD = """
import unittest
import numpy as np
import beside_the_tests
from op_test import OpTest, randomize_probability, skip_check_grad_ci
import paddle.fluid as fluid
import paddle.fluid.core as core
"""

PASSING = """
class TestAdd(OpTest):
    def setUp(self):
        self.op_type = "elementwise_add"
        x, y = np.random.rand(3, 4), np.random.rand(4)
        self.inputs = {"X": OpTest.np_dtype_to_fluid_dtype(x), "Y": y}
        self.attrs = {"axis": -1, "use_mkldnn": False}
        self.outputs = {"Out": x + y}

    def test_output(self):
        self.check_output()

    def test_grad(self):
        self.check_grad(["X", "Y"], "Out")

    def test_grad_of_one(self):
        self.check_grad(["X"], "Out", no_grad_set=set("Y"))

    def test_customized(self):
        self.check_output_customized(lambda outs: self.assertEqual(outs[0].shape, (3, 4)))

class TestLists(OpTest):
    def setUp(self):
        self.op_type = "concat"
        parts = [np.random.rand(2, n).astype("float32") for n in (1, 3)]
        self.inputs = {"X": [("a", parts[0]), ("b", parts[1])]}
        self.attrs = {"axis": 1}
        parts[0][0] = 0.0
        self.outputs = {"Out": np.concatenate(parts, 1).astype("float64")}
        self.outputs["Out"][0, 0] = 1e-6

    def test_output(self):
        self.check_output()
        self.assertEqual(self.dtype, np.float32)

    def test_grad(self):
        self.check_grad(["a", "b"], "Out")

class TestRepeated(OpTest):
    def setUp(self):
        self.op_type = "scale"
        self.inputs, self.attrs = {"X": np.ones((2, 3), "float32")}, {"scale": 2.0}
        self.outputs = {"Out": np.full((1, 3), 2.0, "float32")}

    def test_output(self):
        self.check_output()

class TestEmpty(OpTest):
    def test_output(self):
        self.op_type, self.inputs = "where_index", {"Condition": np.zeros((2, 2), "bool")}
        self.outputs = {"Out": np.zeros(0, "int64")}
        self.check_output()

class TestInternals(OpTest):
    def setUp(self):
        self.op_type, self.dtype = "dropout", np.float64
        self.inputs, self.attrs = {"X": np.ones((2, 3))}, {"dropout_prob": 0.0}
        self.outputs = {"Mask": np.ones((2, 3), "uint8"), "Out": np.ones((2, 3))}

    def test_every_output(self):
        found, names = self._calc_output(core.CPUPlace())
        self.assertEqual(names, ["Mask", "Out"])
        self.assertEqual(np.array(found[names.index("Mask")]).dtype, np.uint8)

    def test_fetched_outputs(self):
        self.fetch_list = ["Out"]
        (out,) = self.calc_output(core.CPUPlace())
        self.assertEqual(np.array(out).dtype, np.float64)

    def test_gradient(self):
        self._check_grad_helper()
        self.assertEqual(type(self).op_type, "dropout")
        gradients = self._get_gradient(["X"], core.CPUPlace(), ["Out"], [])
        self.assertAlmostEqual(gradients[0].sum(), 1.0)

    def test_half_precision_is_for_gpus(self):
        self.dtype = np.float16
        self.outputs = {"Out": np.zeros((7, 7))}
        self.check_output()

class TestSequences(OpTest):
    def setUp(self):
        self.op_type = "sequence_softmax"
        x = np.random.rand(5, 1)
        rows = [np.exp(p) / np.exp(p).sum() for p in (x[:2], x[2:])]
        self.inputs = {"X": (x, [[2, 3]])}
        self.outputs = {"Out": (np.concatenate(rows), [[2, 3]])}

    def test_output(self):
        self.check_output()

    def test_grad(self):
        self.check_grad(["X"], "Out")
"""

FAILING = """
class TestWrong(OpTest):
    def setUp(self):
        self.op_type = "scale"
        x = np.ones((2, 3), "float32")
        self.inputs, self.attrs = {"X": x}, {"scale": 2.0}
        out = x * 2.0
        out[1, 2] = 7.0
        self.outputs = {"Out": out}

    def test_output(self):
        self.check_output()

    def test_grad(self):
        given = [np.full((2, 3), 2.0 / 6), ]
        given[0][0, 1] = 5.0
        self.check_grad(["X"], "Out", user_defined_grads=given)

class TestWrongLengths(OpTest):
    def setUp(self):
        self.op_type = "sequence_softmax"
        self.inputs = {"X": (np.zeros((4, 1), "float32"), [[2, 2]])}
        self.outputs = {"Out": (np.full((4, 1), 0.5, "float32"), [[1, 3]])}

    def test_output(self):
        self.check_output()

class TestSlots(OpTest):
    def test_output(self):
        self.op_type, self.inputs, self.outputs = "relu", {"Input": np.ones(3)}, {}
        self.check_output()
"""

SKIPPING = """
from paddle.fluid.tests.unittests.op_test import OpTest as Same
from paddle.fluid.tests.unittests.beside import TestElsewhere
from white_list import no_grad_set_white_list
import testsuite
from paddle.fluid.op import Operator

@unittest.skipIf(not core.is_compiled_with_cuda(), "core is not compiled with CUDA")
class TestCuda(unittest.TestCase):
    def test_it(self):
        pass

class TestMKLDNN(OpTest):
    def test_output(self):
        self.op_type, self.attrs, self.inputs = "relu", {"use_mkldnn": True}, {"X": np.ones(3)}
        self.check_output()

@skip_check_grad_ci(reason="none is needed")
class TestPlain(unittest.TestCase):
    def test_same(self):
        self.assertIs(Same, OpTest)
        self.assertIn("any", no_grad_set_white_list.NEED_TO_FIX_OP_LIST)
        self.assertAlmostEqual(randomize_probability(3, 4).sum(), 3.0, 5)

    def test_in_a_scope(self):
        scope, place = core.Scope(), core.CPUPlace()
        inputs = {"X": np.ones((2, 2), "float32")}
        op = testsuite.create_op(scope, "scale", inputs, {"Out": 0}, {"scale": 3.0})
        testsuite.set_input(scope, op, inputs, place)
        op.run(scope, place)
        self.assertEqual(np.array(scope.find_var("Out").get_tensor()).sum(), 12.0)
"""

ELSEWHERE = """
import unittest

class TestElsewhere(unittest.TestCase):
    def test_it(self):
        pass
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Outcomes of the tests of all three by name; they are in one file of a folder `sequence`.

    A module that they import is on the PYTHONPATH.
    """
    folder, path = tmp_path_factory.mktemp("unittests"), tmp_path_factory.mktemp("path")
    (folder / "sequence").mkdir()
    (folder / "sequence" / "test_all.py").write_text(HEAD + PASSING + FAILING + SKIPPING)
    (path / "beside_the_tests.py").touch()
    (folder / "beside.py").write_text(ELSEWHERE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(path))
        outcomes = running.run_file(folder, "sequence/test_all", None, 100.0)
    return {outcome.test: outcome for outcome in outcomes}


def of_class(found: dict[str, Outcome], name: str) -> dict[str, str]:
    """Outcomes of a class by method."""
    return {t.partition(".")[2]: o.outcome for t, o in found.items() if t.startswith(f"{name}.")}


def test_right_ops_pass(found: dict[str, Outcome]) -> None:
    methods = {"test_output": "passed", "test_grad": "passed"}
    more = {"test_grad_of_one": "passed", "test_customized": "passed"}
    assert of_class(found, "TestAdd") == methods | more
    assert of_class(found, "TestLists") == of_class(found, "TestSequences") == methods
    assert set(of_class(found, "TestPlain").values()) == {"passed"}
    assert of_class(found, "TestEmpty") == {"test_output": "passed"}
    assert of_class(found, "TestRepeated") == {"test_output": "passed"}
    assert list(of_class(found, "TestInternals").values()) == ["passed"] * 4


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("TestWrong.test_output", "in 1 of 6 elements: at [1, 2] it is 2.0, expected 7.0"),
        ("TestWrong.test_grad", "gradient of X by scale at [0, 1] is 0.33333334, numerically 5.0"),
        ("TestWrongLengths.test_output", "[[2, 2]] != [[1, 3]]"),
        ("TestSlots.test_output", "ValueError: op relu has no slot 'Input'; it has: X"),
    ],
)
def test_a_wrong_one_is_reported(found: dict[str, Outcome], test: str, reason: str) -> None:
    assert found[test].outcome == "failed"
    assert reason in found[test].reason
    assert "test_all.py)" in found[test].reason


def test_unsupported_reference_tests_are_skipped(found: dict[str, Outcome]) -> None:
    row = report.row("test_all", found.values())
    assert {name: row[name] for name in ("CUDA", "MKL-DNN", "other")} == {
        "CUDA": 1,
        "MKL-DNN": 1,
        "other": 0,
    }
    assert (row["passed"], row["failed"]) == (17, 4)


def test_every_failure_is_listed(found: dict[str, Outcome]) -> None:
    lines = report.report([list(found.values())]).splitlines()
    assert lines[1].split() == ["file", "passed", "failed", "CUDA", "MKL-DNN"]
    assert sum(line.startswith("  sequence/test_all Test") for line in lines) == 4
    assert lines[-1] == "  MISSED  4 of 21 tests fail (goal 0)"


def test_a_file_that_does_not_end_or_import(tmp_path: Path) -> None:
    (tmp_path / "test_ends.py").write_text("import os\nos._exit(3)\n")
    (ended,) = running.run_file(tmp_path, "test_ends", None, 100.0)
    assert (ended.test, ended.outcome) == ("(process)", "failed")
    assert ended.reason.startswith("ended with 3: ")
    (stopped,) = running.run_file(tmp_path, "test_ends", None, 0.01)
    assert stopped.reason == "stopped after 0.01 s"


def test_files_are_chosen_by_parts_of_their_names(tmp_path: Path) -> None:
    for name in ("test_a_op", "test_b_op", "op_test"):
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "sequence").mkdir()
    (tmp_path / "sequence" / "test_c_op.py").touch()
    assert running.files_of(tmp_path, []) == ["sequence/test_c_op", "test_a_op", "test_b_op"]
    assert running.files_of(tmp_path, ["b_op"]) == ["test_b_op"]


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "test_broken.py"
    path.write_text("from paddle.fluid import nothing_of_that_name\n")
    (failed,) = running.run_file(tmp_path, "test_broken", None, 100.0)
    assert (failed.test, failed.outcome) == ("(import)", "failed")
    assert "nothing_of_that_name" in failed.reason


def test_failures_are_compared_with_release_1_8_5() -> None:
    here = [Outcome("f", "A.a", "passed"), Outcome("f", "A.b", "failed", "is 1, expected 2")]
    there = [Outcome("f", "A.a", "failed", "no"), Outcome("f", "A.b", "passed")]
    assert running.compared(here, there) == [
        here[0], Outcome("f", "A.b", "failed", "is 1, expected 2 (1.8.5: passed)"),
    ]  # fmt: skip
