"""Files of named arrays: the bytes of the reference both ways, and nothing else is believed."""

import io
import os
import pickle  # noqa: TID251  what hostile and other releases' files are made with
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluid.saving.state_file import dump_state, load_state
from runtime.files.checkpoint import CheckpointError

GOLDEN = Path(__file__).parents[2] / "golden" / "state"
KINDS = "float32 float64 float16 int64 int32 int16 int8 uint8 bool".split()
ARRAYS = {
    **{kind: np.arange(6).reshape(3, 2).astype(kind) for kind in KINDS},
    **{f"one {kind}": np.array([98]).astype(kind) for kind in KINDS},
    "none": np.zeros((0, 3), "float32"),
    "deep": np.arange(4.0).reshape(1, 2, 1, 2, 1),
    "wide": np.zeros((300, 70_000), "bool")[:2],
    "b": np.zeros(1, "float32"),
}


@pytest.mark.parametrize("name", ["model.pdparams", "model.pdopt"])
def test_the_bytes_are_those_of_the_reference(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    assert dump_state(load_state(data, name)) == data


def same(found: dict[str, Any]) -> bool:
    equal = (
        np.array_equal(found[n], a) and (found[n].dtype, found[n].shape) == (a.dtype, a.shape)
        for n, a in ARRAYS.items()
    )
    return list(found) == list(ARRAYS) and all(equal)


def test_every_kind_of_array_comes_back() -> None:
    result = load_state(dump_state(ARRAYS), "state")
    assert same(result)
    assert all(array.flags.writeable for array in result.values())


def test_python_reads_what_is_written() -> None:
    assert same(pickle.loads(dump_state(ARRAYS)))  # noqa: S301
    assert same(pickle.loads(dump_state(ARRAYS), encoding="latin1"))  # noqa: S301


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_other_releases_of_python_and_numpy_are_read(protocol: int) -> None:
    assert same(load_state(pickle.dumps(ARRAYS, protocol), "state"))
    many = {f"name {i}": np.array([i]) for i in range(2001)}
    assert len(load_state(pickle.dumps(many, protocol), "state")) == 2001
    assert load_state(dump_state(many), "state") == many
    assert load_state(dump_state({}), "state") == {}


def test_orders_of_bytes_and_axes_are_made_the_usual_ones() -> None:
    arrays = {"big": np.arange(3, dtype=">f4"), "columns": np.asfortranarray(np.eye(2, 3))}
    result = load_state(pickle.dumps(arrays, 2), "state")
    assert (result["big"].dtype, result["big"].tolist()) == (np.dtype("float32"), [0, 1, 2])
    assert result["columns"].flags.c_contiguous
    assert np.array_equal(result["columns"], np.eye(2, 3))


def test_what_later_releases_add_is_kept() -> None:
    state = {"w": np.ones(2), "StructuredToParameterName@@": {"fc.weight": "w"}}
    result = load_state(pickle.dumps(state, 2), "state")
    assert result["StructuredToParameterName@@"] == {"fc.weight": "w"}


# ---- what is refused


class Attack:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_is_called(protocol: int, tmp_path: Path) -> None:
    file = tmp_path / "made"
    for attack in [Attack(os.system, f"touch {file}"), Attack(open, str(file), "w")]:
        with pytest.raises(CheckpointError, match="state is not a file of named arrays"):
            load_state(pickle.dumps({"w": attack}, protocol), "state")
    assert not file.exists()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (OrderedDict(), "it uses collections.OrderedDict"),
        ({"w": np.array([object()])}, "no fluid type|it takes|it uses"),
        ({"w": np.array(["text"])}, "has no fluid type|element type"),
        ({"w": 3}, r"\(w\): expected an array, got int"),
        ({"w": {"a": 3}}, "expected a string, got int"),
        ({3: np.ones(1)}, "expected a string, got int"),
        ([np.ones(1)], "expected arrays by name"),
        ((1, 2), "expected arrays by name, got tuple"),
    ],
)
def test_anything_but_arrays_by_name(value: Any, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        load_state(pickle.dumps(value, 2), "state")


def test_damaged_files() -> None:
    data = dump_state({"w": np.arange(6.0), "v": np.ones(1)})
    for end in range(len(data)):
        with pytest.raises(CheckpointError):
            load_state(data[:end], "state")
    for index in range(len(data)):
        broken = data[:index] + bytes([data[index] ^ 0x55]) + data[index + 1 :]
        try:
            assert isinstance(load_state(broken, "state"), dict)
        except CheckpointError as error:
            assert "state" in str(error)


def test_sizes_are_believed_only_with_data() -> None:
    data = dump_state({"w": np.zeros((2, 3), "float32")})
    assert data.count(b"K\x02K\x03\x86") == 1
    huge = data.replace(b"K\x02K\x03\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86")
    with pytest.raises(CheckpointError, match="24 bytes are not an array of f4"):
        load_state(huge, "state")


def test_one_text_is_not_copied_again_and_again() -> None:
    text = b"X" + (1000).to_bytes(4, "little") + b"a" * 1000 + b"q\x00"
    again = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    with pytest.raises(CheckpointError, match="more data than the file"):
        load_state(b"\x80\x02" + text + again * 1000 + b".", "state")


def test_nothing_but_the_data_is_read() -> None:
    """The reader of opcodes takes from a stream what it needs, and so never more than there is."""
    length = (1 << 31) - 1
    with pytest.raises(CheckpointError, match="expected"):
        load_state(b"\x80\x02X" + length.to_bytes(4, "little") + b"abc", "state")
    assert io.BytesIO(b"abc").read(length) == b"abc"


def test_types_that_the_reference_does_not_have() -> None:
    with pytest.raises(CheckpointError, match=r"w: .*complex128"):
        dump_state({"w": np.zeros(2, "complex128")})
