"""Ops on the host: what is printed and how often, Python functions, assertions."""

import numpy as np
import pytest

from compiler.ir.opdef import find
from compiler.ir.program import OpDesc

X = np.array([[1.0, 2.5], [3.0, 4.0]], np.float32)


def printed(capsys, kind="print", lod=None, **attrs):
    find(kind)(attrs).evaluate({"In": X, "In_lod": lod})
    return capsys.readouterr().out


def test_what_is_printed(capsys):
    lod = [np.array([0, 1, 2])]
    text = printed(capsys, "print_named", lod, message="here", summarize=3, In_name="x")
    assert text == (
        "here\nTensor[x]\n\tshape: [2,2,]\n\tdtype: float32\n\tLoD: [[0,1,2,],]\n\tdata: 1,2.5,3,\n"
    )


def test_print_options_select_fields(capsys):
    hidden = dict.fromkeys(["print_tensor_shape", "print_tensor_type", "print_tensor_lod"], False)
    assert (
        printed(capsys, print_tensor_name=False, summarize=-1, **hidden) == "\tdata: 1,2.5,3,4,\n"
    )


@pytest.mark.parametrize(
    ("phase", "is_forward", "seen"),
    [
        ("FORWARD", True, True),
        ("FORWARD", False, False),
        ("BACKWARD", True, False),
        ("BACKWARD", False, True),
        ("BOTH", False, True),
    ],
)
def test_phases(capsys, phase, is_forward, seen):
    assert bool(printed(capsys, print_phase=phase, is_forward=is_forward)) is seen


def test_printing_a_few_times(capsys):
    op = find("print")({"first_n": 2})
    for _ in range(4):
        assert op.evaluate({"In": X})["Out"] is X
    assert capsys.readouterr().out.count("data") == 2


def test_python_functions():
    op = find("py_func")({"forward_callable_id": 1})
    op.callables = [None, lambda arrays: [arrays[0] * 2, arrays[1]]]
    first, second = op.evaluate({"X": [X, X + 1]})["Out"]
    assert (first == X * 2).all()
    assert (second == X + 1).all()


def test_gradient_of_a_python_function():
    attrs = {"forward_callable_id": 3, "backward_callable_id": 4, "backward_skip_vars": ["b", "o"]}
    op = OpDesc("py_func", {"X": ["a", "b"]}, {"Out": ["o", "p"]}, attrs)
    (created,) = find("py_func")(attrs).grad_ops(op, "{}@G".format)
    assert created.inputs == {"X": ["a", "p", "o@G", "p@G"]}
    assert created.outputs == {"Out": ["a@G", "b@G"]}
    assert created.attrs == {"forward_callable_id": 4, "backward_callable_id": -1}


def test_a_python_function_without_gradient():
    op = OpDesc("py_func", {"X": ["a"]}, {"Out": ["o"]}, {"forward_callable_id": 0})
    assert find("py_func")(op.attrs).grad_ops(op, str) == []


def test_assertions():
    op = find("assert")({"summarize": 2})
    op.evaluate({"Cond": np.array([True])})
    with pytest.raises(ValueError, match=r"does not hold: \[1.0, 2.5\]"):
        op.evaluate({"Cond": np.array([False]), "Data": [X]})


def test_a_function_that_this_process_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="py_func: function 3 is not in this process, which has 0"):
        find("py_func")({"forward_callable_id": 3}).evaluate({"X": [np.ones(2, "float32")]})
