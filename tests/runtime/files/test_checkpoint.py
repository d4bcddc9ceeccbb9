"""The tensor file format against files that the reference wrote, and against damaged ones."""

import random
import struct
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtime.files.checkpoint import (
    DTYPES,
    CheckpointError,
    load_combined,
    load_rows,
    load_tensor,
    read_tensor,
    save_combined,
    save_rows,
    save_tensor,
    tensor_path,
    write_tensor,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
CASES = ["digits_mlp", "fit_a_line", "lenet_bn", "resnet_cifar8"]
SINGLE = [path for path in sorted(GOLDEN.glob("*__separate/*")) if path.name != "__model__"]


def record(array: np.ndarray, lod: tuple[tuple[int, ...], ...] = ()) -> bytes:
    stream = BytesIO()
    write_tensor(stream, array, lod)
    return stream.getvalue()


def raw(desc: str, data: bytes = b"", lod: bytes = bytes(8), lod_version: int = 0) -> bytes:
    """A record put together by hand: `lod` with its count, `desc` in hex."""
    message = bytes.fromhex(desc)
    head = struct.pack("<I", lod_version) + lod + struct.pack("<Ii", 0, len(message))
    return head + message + data


def saved_names(case: str) -> list[str]:
    return [path.name for path in SINGLE if path.parent.name == f"{case}__separate"]


# ---- what the reference wrote ----


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: "/".join(path.parts[-2:]))
def test_files_round_trip_byte_for_byte(path: Path, tmp_path: Path):
    array, lod = load_tensor(path)
    assert array.dtype == np.float32 and lod == ()
    save_tensor(tmp_path / path.name, array, lod)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_combined_files_round_trip_byte_for_byte(case: str, tmp_path: Path):
    names = saved_names(case)
    result = load_combined(GOLDEN / f"{case}__combined" / "params", reversed(names))
    for name in names:
        single, _ = load_tensor(GOLDEN / f"{case}__separate" / name)
        np.testing.assert_array_equal(result[name][0], single)
    save_combined(tmp_path / "params", dict(reversed(result.items())))
    original = (GOLDEN / f"{case}__combined" / "params").read_bytes()
    assert (tmp_path / "params").read_bytes() == original


# ---- the layout ----


def test_header_bytes_of_a_dense_tensor():
    data = record(np.zeros((128, 10), np.float32))
    assert data[:27].hex() == "00000000" + "00" * 8 + "00000000" + "07000000" + "0805108001100a"
    assert data[27:] == bytes(5120)


def test_header_bytes_of_sequences():
    data = record(np.arange(5).reshape(5, 1), ((0, 2, 5),))
    lod = struct.pack("<QQQQQ", 1, 24, 0, 2, 5)
    assert data[:44] == bytes(4) + lod
    assert data[44:58].hex() == "00000000" + "06000000" + "080310051001"


BFLOAT16 = DTYPES[22]
DRAWN = [dtype for dtype in DTYPES.values() if dtype != BFLOAT16]


def test_bfloat16_is_stored_as_later_releases_number_it() -> None:
    array = np.array([[1.0, -2.5, np.inf]], BFLOAT16)
    data = record(array)
    assert b"\x08\x16" in data and data.endswith(bytes.fromhex("803f 20c0 807f"))
    back, _ = read_tensor(BytesIO(data))
    assert back.dtype == BFLOAT16
    np.testing.assert_array_equal(back, array)


@given(
    hnp.arrays(
        st.sampled_from([*DRAWN, np.dtype(">f4"), np.dtype(">i8")]),
        hnp.array_shapes(min_dims=0, max_dims=9, min_side=0, max_side=3),
    )
)
@settings(max_examples=100, deadline=None)
def test_arrays_round_trip(array: np.ndarray):
    back, lod = read_tensor(BytesIO(record(array)))
    assert lod == () and back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable and back.flags.c_contiguous


@given(st.lists(st.integers(0, 3), max_size=4), st.data())
@settings(deadline=None)
def test_sequences_round_trip(outer: list[int], data: st.DataObject):
    inner = data.draw(st.lists(st.integers(0, 3), min_size=sum(outer), max_size=sum(outer)))
    lod = tuple(tuple(int(n) for n in np.cumsum([0, *lengths])) for lengths in (outer, inner))
    array = np.ones((sum(inner), 2), np.float32)
    assert read_tensor(BytesIO(record(array, lod)))[1] == lod


def test_arrays_that_are_not_contiguous_are_written_row_major():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert record(array.T) == record(array.T.copy())
    assert record(array[::2, ::-1]) == record(array[::2, ::-1].copy())


def test_a_stream_holds_one_record_after_another():
    stream = BytesIO(record(np.ones(2)) + record(np.zeros(3)))
    assert read_tensor(stream)[0].tolist() == [1, 1]
    assert read_tensor(stream)[0].tolist() == [0, 0, 0]


# ---- files ----


def test_names_with_slashes_make_folders(tmp_path: Path):
    path = tensor_path(tmp_path / "model", "block/scale_0")
    save_tensor(path, np.ones(2))
    assert (tmp_path / "model" / "block" / "scale_0").is_file()
    assert load_tensor(path)[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../w", "a/../../w", "/etc/w", "a//b", "a/", "a\0b"]
)
def test_names_that_lead_elsewhere_are_rejected(name: str):
    with pytest.raises(CheckpointError, match="expected a plain path inside the folder, given the"):
        tensor_path("model", name)


def test_a_rejected_save_keeps_the_older_file(tmp_path: Path):
    path = tmp_path / "params"
    save_combined(path, {"w": (np.ones(2), ())})
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"x: expected one of bool, .*, given complex128"):
        save_combined(path, {"w": (np.zeros(2), ()), "x": (np.zeros(2, complex), ())})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_combined_file(tmp_path: Path):
    save_combined(tmp_path / "params", {})
    assert load_combined(tmp_path / "params", []) == {}


def test_a_missing_file_reports_which_and_what_to_do(tmp_path: Path):
    folder = tmp_path / "model"
    path = folder / "fc_0.w_0"
    with pytest.raises(FileNotFoundError, match=f"{path}: there is no folder {folder}$"):
        load_tensor(path)
    folder.mkdir()
    for missing, folder_text in ((path, "its folder has no files"), (folder, "its folder has no")):
        with pytest.raises(FileNotFoundError, match=f"no tensor file {missing}: {folder_text}"):
            load_tensor(missing)
    for name in ("params", "a", "b", "__model__"):
        (folder / name).touch()
    with pytest.raises(FileNotFoundError, match=r"has __model__, a, b and 1 more; if one of them"):
        load_tensor(path)


def test_too_few_and_too_many_tensors_name_file_and_counts():
    path = GOLDEN / "digits_mlp__combined" / "params"
    names = saved_names("digits_mlp")
    with pytest.raises(CheckpointError, match=r"params, byte 20222: expected 7 .* given 6: .* 'z'"):
        load_combined(path, [*names, "z"])
    with pytest.raises(CheckpointError, match=r"params, byte .*: expected 4 tensors, given 6"):
        load_combined(path, names[:4])
    with pytest.raises(CheckpointError, match=r"expected the end of the file, given .* combined"):
        load_tensor(path)


def test_damage_in_a_combined_file_names_the_variable(tmp_path: Path):
    path = tmp_path / "params"
    path.write_bytes(record(np.ones(2)) + b"\1" + record(np.ones(2))[1:])
    with pytest.raises(CheckpointError, match=r"params \(b\), byte 44: expected LoD version 0"):
        load_combined(path, ["a", "b"])


# ---- damage ----


@pytest.mark.parametrize("lod", [(), ((0, 1, 2), (0, 2, 3))])
def test_every_truncation_is_rejected(lod: tuple[tuple[int, ...], ...]):
    data = record(np.arange(6, dtype=np.float32).reshape(3, 2), lod)
    for length in range(len(data)):
        with pytest.raises(CheckpointError, match=r"^w, byte \d+: expected .*, given "):
            read_tensor(BytesIO(data[:length]), "w")


def test_random_damage_is_rejected_or_read():
    chance = random.Random(1)
    plain = (GOLDEN / "fit_a_line__separate" / "fc_0.w_0").read_bytes()
    originals = [plain, record(np.ones((5, 1), bool), ((0, 2), (0, 2, 5)))]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            read_tensor(BytesIO(bytes(data)))
            outcomes["read"] += 1
        except CheckpointError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50


@given(st.binary(max_size=64))
def test_noise_is_rejected_or_read(data: bytes):
    for start in (b"", bytes(16)):
        try:
            read_tensor(BytesIO(start + data))
        except CheckpointError as error:
            assert "byte" in str(error)


HUGE = "ffffffffffffffff7f"  # 2**63 - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "byte 0: expected 4 bytes of the LoD version, given the 0 that are left"),
        (raw("0805", lod_version=3), "byte 4: expected LoD version 0, given 3: is it a tensor"),
        (
            raw("0805", lod=b"\xff" * 8),
            "byte 20: expected 8589934592 bytes of LoD offsets, given the 2",
        ),
        (raw("", lod=struct.pack("<QQ", 1, 0)), "a LoD level of 8 bytes an offset, given 0"),
        (raw("", lod=struct.pack("<QQ", 1, 12)), "a LoD level of 8 bytes an offset, given 12"),
        (raw("", lod=struct.pack("<QQ", 1, 2**60)), "1152921504606846976 bytes of LoD offsets"),
        (raw("08051002", bytes(8), struct.pack("<QQQ", 1, 8, 1)), "offsets that start at 0"),
        (
            raw("08051002", bytes(8), struct.pack("<QQQQQ", 1, 24, 0, 3, 2)),
            r"LoD offsets that start at 0 and never fall, given \(\(0, 3, 2\),\)",
        ),
        (raw("08051002", bytes(8), struct.pack("<QQQQ", 1, 16, 0, 3)), "offsets that end at 2"),
        (bytes(12) + b"\1" + bytes(8), "byte 16: expected tensor version 0, given 1"),
        (bytes(16) + b"\xff" * 4, "a TensorDesc of at most 128 bytes, given -1"),
        (bytes(16) + b"\xff\xff\xff\x7f", "a TensorDesc of at most 128 bytes, given 2147483647"),
        (raw(""), "a TensorDesc, data type then dims, given nothing"),
        (raw("1002"), "a TensorDesc, data type then dims, given 1002"),
        (raw("08051802"), "a TensorDesc, data type then dims, given 08051802"),
        (raw("080510"), "a TensorDesc, data type then dims, given 080510"),
        (raw("0817"), r"a data type of 0 \(bool\), .* given 23, which later releases may write"),
        (raw("0805" + "10ffffffffffffffffff01"), r"dims of 0 or more, given \[-1\]"),
        (raw("0805" + f"10{HUGE}"), "dims whose product fits in 63 bits"),
        (raw("0805" + f"10{HUGE}" * 2 + "1000"), "dims whose product fits in 63 bits"),
        (raw("0805" + "1001" * 10, bytes(4)), "at most 9 dims"),
        (raw("0814" + f"10{HUGE}", b"x"), r"bytes of data for uint8\[9223372036854775807\]"),
        (raw("08051003", bytes(8)), r"12 bytes of data for float32\[3\], given the 8 that are"),
        (raw("08001002", b"\1\2"), "bools of 0 or 1, given 2"),
    ],
)
def test_errors_name_offset_expected_and_actual(data: bytes, message: str):
    with pytest.raises(CheckpointError, match=message):
        read_tensor(BytesIO(data), "w")


def test_no_elements_take_no_memory_however_long_the_other_dims():
    array, _ = read_tensor(BytesIO(raw("0814" + "10" + "80" * 8 + "40" + "1000")))
    assert array.shape == (2**62, 0)


@pytest.mark.parametrize(
    ("array", "lod", "message"),
    [
        (np.zeros(2, object), (), "fc_0.w_0: expected one of .*, given object; cast it"),
        (np.zeros(2, np.uint16), (), "fc_0.w_0: expected one of .*, given uint16; cast it"),
        (np.zeros((1,) * 10), (), "fc_0.w_0: expected at most 9 dims, given .*; reshape it"),
        (np.zeros(5), ((0, 2, 4),), r"expected LoD offsets that end at 5, given \(\(0, 2, 4\),\)"),
        (np.zeros(5), ((0, 2), (0, 5)), "expected LoD offsets that end at 1"),
        (np.zeros(5), ((),), "expected LoD offsets that start at 0 and never fall"),
    ],
)
def test_unsupported_arrays_are_not_written(array: np.ndarray, lod, message: str):
    stream = BytesIO()
    with pytest.raises(CheckpointError, match=message):
        write_tensor(stream, array, lod, "fc_0.w_0")
    assert stream.getvalue() == b""


def test_sparse_rows_are_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    save_rows(path, ((0, 4), 7, np.ones((2, 3), "float32")))
    numbers, height, values = load_rows(path)
    assert (numbers, height, values.tolist()) == ((0, 4), 7, [[1.0] * 3] * 2)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", whole[:4] + b"\xff" * 8 + whole[12:], whole[:9]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_rows(path)
