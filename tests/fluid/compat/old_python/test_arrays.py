"""Arrays as scripts of 1.8 use them, in a process whose `numpy.ndarray` is changed."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fluid.compat.old_python import arrays

ROOT = Path(__file__).resolve().parents[4]
CODE = """
import json, math, pickle, sys
import numpy as np
from fluid.compat.old_python.mend import mend
mend()
mend()
class Own(np.ndarray): pass
one, two, places = np.array([2.5]), np.ones(2), np.zeros(2)
places[0] = one
print(json.dumps({
    "float": [float(each) for each in (
        one, np.exp([0.0]), np.array([[7]]), np.array(4.0), np.float32(3), one.view(Own),
        np.matrix([[1.5]]), np.ma.array([1.5]), np.array([np.array(3.0)], object), places[0],
    )],
    "int": [int(one), int(np.array(["5"])), round(complex(one).real), math.trunc(math.sqrt(one))],
    "text": "%d %.2f" % (one, one),
    "bytes": [one.tostring() == one.tobytes(), np.fromstring(b"ab", "uint8").tolist()],
    "methods": [two.ptp(), one.view(Own).ptp(), one.newbyteorder().dtype.byteorder],
    "copies": [np.array(one, copy=False) is one, np.array([1], copy=False).tolist()],
    "ragged": [np.array([[1], [2, 3]]).tolist(), np.array([1.0, one]).dtype.kind],
    "bool": [bool(np.array([])), bool(one), bool(np.zeros(1)), bool(np.array(1))],
    "calls": [
        np.sum(x for x in (1, 2)), np.vstack(map(list, ([1], [2]))).tolist(),
        np.unique([[1, 2], [1, 2]], return_inverse=True)[1].tolist(),
        np.unique([[1, 2], [1, 2]], True, axis=0)[1].tolist(),
        np.reshape(two, newshape=(2, 1)).shape, int(np.percentile([1, 2], 50, interpolation="lower")),
    ],
    "printed": repr([np.float32(0.5), np.bool_(True), one]),
    "pickled": pickle.loads(pickle.dumps(np.array)) is np.array,
    "warning": issubclass(np.VisibleDeprecationWarning, UserWarning),
}))
one.itemset(3)
assert one[0] == 3
for attempt in (
    lambda: float(two), lambda: setattr(np.ndarray, "other", 1), lambda: np.array([[1], 2], int)
):
    try: attempt()
    except (TypeError, ValueError) as error: print(error)
"""
EXPECTED = {
    "float": [2.5, 1, 7, 4, 3, 2.5, 1.5, 1.5, 3, 2.5], "int": [2, 5, 2, 1], "text": "2 2.50",
    "bytes": [True, [97, 98]], "methods": [0, 0, ">" if sys.byteorder == "little" else "<"],
    "copies": [True, [1]], "ragged": [[[1], [2, 3]], "O"],
    "bool": [False, True, False, True], "calls": [3, [[1], [2]], [0, 1, 0, 1], [0], [2, 1], 1],
    "printed": "[0.5, True, array([2.5])]", "pickled": True, "warning": True,
}  # fmt: skip


def test_old_idioms_have_their_meaning() -> None:
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    values, *errors = done.stdout.splitlines()
    assert json.loads(values) == EXPECTED
    assert errors[0] == "only size-1 arrays can be converted to Python scalars"
    assert "immutable type" in errors[1] and "setting an array element" in errors[2]
    assert done.stderr.count("array.ptp() is gone since NumPy 2.0;") == 1


def test_types_of_another_layout_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrays.has_expected_layout(np.ndarray)
    monkeypatch.setattr(arrays, "_word", lambda cls, at: ctypes.c_size_t(at))
    assert not arrays.has_expected_layout(np.ndarray)
    arrays.mend_arrays(arrays.Notices())
    assert not hasattr(np.ndarray, "itemset")
