"""Arrays from files: what comes back, and what is refused before memory is taken."""

import numpy as np
import pytest

from fluid.cli.model import CommandError
from fluid.cli.values.arrays import read_arrays, write_arrays


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="float32").reshape(3, 4),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.float64(3.5),
        np.zeros((0, 4), "int64"),
        np.array([True, False]),
    ],
)
def test_arrays_come_back(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    found = read_arrays(tmp_path / "x.npy")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == np.asarray(array).dtype


def test_python_objects_are_not_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(CommandError, match="holds Python objects"):
        read_arrays(tmp_path / "x.npy")


def test_a_header_that_asks_for_more_than_there_is(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(8))
    large = b"(8000000000,), }"
    path.write_bytes(path.read_bytes().replace(b"(8,), }".ljust(len(large)), large))
    with pytest.raises(CommandError, match="declares 64000000000 bytes, but is 192"):
        read_arrays(path)


@pytest.mark.parametrize("kept", [0, 3, 40, 130])
def test_a_cut_array(tmp_path, kept):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(8))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CommandError, match=r"x\.npy"):
        read_arrays(path)


def test_a_cut_archive(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(8))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CommandError, match=r"x\.npz"):
        read_arrays(path)


def test_a_damaged_archive(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(800))
    data = bytearray(path.read_bytes())
    data[2000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CommandError, match="Bad CRC"):
        read_arrays(path)


def test_archives_hold_any_name(tmp_path):
    arrays = {"file": np.arange(3), "save_infer_model/scale_0.tmp_0": np.eye(2, dtype="float32")}
    write_arrays(tmp_path / "x.npz", arrays)
    for found in (read_arrays(tmp_path / "x.npz"), dict(np.load(tmp_path / "x.npz"))):
        assert list(found) == list(arrays)
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    ("name", "message"),
    [("x.txt", "must end in"), ("x.npy", "write a .npz"), ("none/x.npz", "make the folder first")],
)
def test_what_cannot_be_written(tmp_path, name, message):
    with pytest.raises(CommandError, match=message):
        write_arrays(tmp_path / name, {"a": np.zeros(1), "b": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []
