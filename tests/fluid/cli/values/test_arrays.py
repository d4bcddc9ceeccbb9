"""Arrays from files: what comes back, and what is refused before memory is taken."""

import io
import warnings
import zipfile

import numpy as np
import pytest

from fluid.cli.model import CommandError
from fluid.cli.values import archives
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
def test_arrays_round_trip(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    result = read_arrays(tmp_path / "x.npy")
    np.testing.assert_array_equal(result, array)
    assert result.dtype == np.asarray(array).dtype


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
def test_array_write_errors(tmp_path, name, message):
    with pytest.raises(CommandError, match=message):
        write_arrays(tmp_path / name, {"a": np.zeros(1), "b": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []


# ---- archives that declare more than they have ----


def archive(path, *arrays, kind=zipfile.ZIP_DEFLATED, **fields):
    """An archive of members and their bytes, whose directory says what `fields` say of each."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", kind) as created:
        warnings.simplefilter("ignore")  # of two equal names
        for name, content in arrays:
            created.writestr(name, content)
        for info in created.infolist():
            for field, value in fields.items():
                setattr(info, field, value)
    return path


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


SMALL = npy(np.zeros(8))


def test_an_archive_within_the_limit_is_read(tmp_path):
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL), ("y.npy", SMALL))
    assert list(read_arrays(path, limit=2 * len(SMALL))) == ["x", "y"]


def test_an_archive_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL), ("y.npy", SMALL))
    with pytest.raises(CommandError, match="take 384 B, more than the memory limit of 383 B"):
        read_arrays(path, limit=383)
    monkeypatch.setenv("FLUID_MEMORY_LIMIT", "300")
    with pytest.raises(CommandError, match="memory limit of 300 B: nothing was read"):
        read_arrays(path)


def test_an_array_larger_than_the_machine_is_not_read(tmp_path):
    """A bomb: zeros that compress well. Nothing is allocated, so the test is fast."""
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL), file_size=1 << 50, compress_size=1 << 41)
    with pytest.raises(CommandError, match="more than the memory limit"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"file_size": 1 << 30}, "declares 1073741824 bytes, but has"),
        ({"flag_bits": 1}, "is encrypted"),
        ({"compress_type": zipfile.ZIP_LZMA}, "a method that NumPy does not use"),
        ({"compress_type": 77}, "a method that NumPy does not use"),
        ({"header_offset": 1 << 20}, r"x\.npz"),
        ({"extract_version": 255}, r"x\.npz"),
    ],
)
def test_archive_member_unlike_its_header_is_rejected(tmp_path, fields, message):
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL), **fields)
    with pytest.raises(CommandError, match=message):
        read_arrays(path)


@pytest.mark.parametrize("names", [("x.npy", "x.npy"), ("x", "x.npy")])
def test_two_members_of_one_name(tmp_path, names):
    path = archive(tmp_path / "x.npz", *((name, SMALL) for name in names))
    with pytest.raises(CommandError, match="has two arrays 'x': nothing was read"):
        read_arrays(path)


def test_too_many_members(tmp_path, monkeypatch):
    path = archive(tmp_path / "x.npz", *((str(i), b"") for i in range(4)))
    monkeypatch.setattr(archives, "MEMBERS", 3)
    with pytest.raises(CommandError, match="has 4 arrays, more than 3"):
        read_arrays(path)
    monkeypatch.setattr(archives, "DIRECTORY_BYTES", 100)
    with pytest.raises(CommandError, match="declares a directory of 188 B, more than the 100 B"):
        read_arrays(path)


def test_deflated_bytes_that_are_damaged(tmp_path):
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL))
    data = bytearray(path.read_bytes())
    data[35:60] = b"\xff" * 25
    path.write_bytes(data)
    with pytest.raises(CommandError, match=r"x\.npz"):
        read_arrays(path)


def test_a_directory_before_the_start(tmp_path):
    path = archive(tmp_path / "x.npz", ("x.npy", SMALL))
    data = bytearray(path.read_bytes())
    data[-10] ^= 0x7F  # its size, so that it would begin before the file does
    path.write_bytes(data)
    with pytest.raises(CommandError, match=r"x\.npz"):
        read_arrays(path)


def test_a_header_without_an_end(tmp_path):
    (tmp_path / "x.npy").write_bytes(SMALL.replace(b")", b"("))
    with pytest.raises(CommandError, match="is not an array file"):
        read_arrays(tmp_path / "x.npy")


def test_a_long_header_is_not_read(tmp_path):
    """NumPy would read 4 GiB of header, of which 1 KiB is there."""
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b" " * 1024)
    with pytest.raises(CommandError, match="is not an array file"):
        read_arrays(path)


@pytest.mark.parametrize("shape", ["(0, 4611686018427387904, 8)", f"({'1, ' * 65})"])
def test_a_shape_that_no_array_has(tmp_path, shape):
    path = tmp_path / "x.npy"
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    text = header.encode().ljust(500) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(4))
    with pytest.raises(CommandError, match=r"x\.npy declares the shape \([01], "):
        read_arrays(path)
