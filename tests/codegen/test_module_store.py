"""Modules on disk: found again, thrown away where damaged, trimmed, refused in others' folders."""

import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.codegen import module_store
from compiler.codegen.module import Module, without_ir
from compiler.codegen.module_store import ModuleStore, module_key, params_digest
from compiler.ir.types import Array, DType
from compiler.options import Options
from compiler.support import private_folders
from compiler.support.private_folders import PrivateFolder
from fluid.running.targets import chosen_target

OPTIONS = Options(memory_limit="2GiB")


def made(target: str = "numpy") -> Module:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        y = fluid.layers.scale(fluid.data("x", [None, 3]), 2.0)
    return compiler.compile(
        main, feed={"x": ("N", 3)}, fetch=[y.name], options=OPTIONS, target=target
    )


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path, 1 << 20)


def test_module_store_returns_stored_modules(store: ModuleStore) -> None:
    module = made()
    store.put("a", module)
    result = store.find("a", OPTIONS)
    assert result == module
    assert result is not None
    assert result.record == module.record
    assert result.memory_limit == module.memory_limit == 2 << 30
    assert store.find("b", OPTIONS) is None


ARRAYS: dict[str, Array] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.arange(3).astype(DType.BF16.numpy),
    "none": np.empty((0, 4), np.float32),
    "number": np.array(2.5),
}


def test_arrays_are_found_with_the_module(store: ModuleStore) -> None:
    store.put("a", made(), ARRAYS)
    results: dict[str, Array] = {"w": np.zeros(1), "other": np.ones(1)}
    assert store.find("a", OPTIONS, results) == made()
    assert sorted(results) == ["half", "none", "number", "other", "w"]
    for name, array in ARRAYS.items():
        assert (results[name].dtype, results[name].shape) == (array.dtype, array.shape)
        assert results[name].tobytes() == array.tobytes()
        assert results[name].flags.writeable


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data[1:]])
def test_a_module_whose_arrays_were_damaged_is_thrown_away(store: ModuleStore, damage) -> None:
    store.put("a", made(), ARRAYS)
    place = store.root / "a.arrays"
    place.write_bytes(damage(place.read_bytes()))
    os.utime(place, ns=(0, 0))  # the times of a file may not differ within some milliseconds
    results: dict[str, Array] = {}
    assert store.find("a", OPTIONS, results) is None
    assert results == {}
    assert not (store.root / "a.json").exists()


def test_a_module_whose_arrays_are_gone_is_compiled_again(store: ModuleStore) -> None:
    store.put("a", made(), ARRAYS)
    (store.root / "a.arrays").unlink()
    assert store.find("a", OPTIONS) is None


def test_arrays_that_take_more_than_half_of_the_limit_are_not_kept(tmp_path: Path) -> None:
    ModuleStore(tmp_path, 1 << 20).put("a", made(), {"w": np.zeros((1 << 19) + 1, np.uint8)})
    assert list(tmp_path.iterdir()) == []


def test_every_byte_of_parameters_is_in_their_digest() -> None:
    def digest(**params: Array) -> str:
        return params_digest(params, ["a", "b"])

    one = np.array([1.0, 2.0], np.float32)
    kinds = [
        {"a": one}, {"b": one}, {"a": one, "b": one}, {"a": one[:1], "b": one},
        {"a": one.reshape(2, 1)}, {"a": one.view(np.int32)}, {"a": np.nextafter(one, 9)}, {},
    ]  # fmt: skip
    assert len({digest(**kind) for kind in kinds}) == len(kinds)
    assert digest(a=one, other=one) == digest(a=np.repeat(one, 2)[::2])


def written(place: Path, text: str) -> None:
    """Write an entry whose digest is right."""
    place.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", "null", '{"source": "x", "values": {}, "made": {}, "arrays": false}',
        '{"source": 1, "values": [], "made": [], "arrays": 2}', '"' * 100, "[" * 100_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("write", [written, Path.write_text])
def test_a_damaged_entry_is_thrown_away(store: ModuleStore, write: Any, text: str) -> None:
    write(store.root / "a.json", text)
    assert store.find("a", OPTIONS) is None
    assert list(store.root.iterdir()) == []


def test_another_source_in_an_entry_is_not_executed(store: ModuleStore) -> None:
    store.put("a", made())
    place = store.root / "a.json"
    digest, _, text = place.read_text().partition("\n")
    entry = json.loads(text)
    entry["source"] += "\nraise SystemExit\n"
    place.write_text(f"{digest}\n{json.dumps(entry)}")
    assert store.find("a", OPTIONS) is None
    assert not place.exists()


@pytest.mark.skipif(chosen_target("", Options()) != "native", reason="this CPU has no native code")
def test_a_module_of_kernels_is_found_as_it_was(store: ModuleStore) -> None:
    module = made("native")
    assert module.kernels_ir
    store.put("a", module)
    result = store.find("a", OPTIONS)
    assert result == module == Module.parse(module.source)
    assert result.code.co_code == module.code.co_code
    assert "define void" not in without_ir(module.source)


def test_arrays_that_a_user_copied_are_compared_with_their_checksum(
    store: ModuleStore, tmp_path: Path
) -> None:
    store.put("a", made(), ARRAYS)
    store.put_prepared("a", {"packed": ARRAYS["w"]})
    copied = ModuleStore(tmp_path / "copy", store.limit)
    shutil.copytree(store.root, copied.root)
    results: dict[str, Array] = {}
    assert copied.find("a", OPTIONS, results) == made()
    assert sorted(results) == sorted(ARRAYS)
    assert copied.prepared("a")["packed"].tolist() == ARRAYS["w"].tolist()


def test_prepared_arrays_go_with_their_entry(tmp_path: Path) -> None:
    store = ModuleStore(tmp_path, 1 << 20)
    store.put_prepared("a", {"packed": ARRAYS["w"]})  # there is no entry
    assert store.prepared("a") == {}
    store.put("a", made(), ARRAYS)
    store.put_prepared("a", {"packed": ARRAYS["w"]})
    assert list(store.prepared("a")) == ["packed"]
    os.utime(tmp_path / "a.json", (1, 1))
    room = sum(path.stat().st_size for path in tmp_path.iterdir())
    ModuleStore(tmp_path, room).put("b", made(), ARRAYS)
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"b"}


def test_writing_to_mapped_arrays_changes_no_file(store: ModuleStore) -> None:
    store.put("a", made(), ARRAYS)
    store.arrays("a")["w"][:] = 7
    assert store.arrays("a")["w"].tolist() == ARRAYS["w"].tolist()


def test_entries_that_were_used_long_ago_go_first(tmp_path: Path) -> None:
    module = made()
    whole = ModuleStore(tmp_path, 1 << 20)
    whole.put("a", module)
    size = (tmp_path / "a.json").stat().st_size
    small = ModuleStore(tmp_path, 2 * size)
    small.put("b", module)
    for place, time in (("a", 2), ("b", 1)):
        module_store.os.utime(tmp_path / f"{place}.json", (time, time))
    small.put("c", module)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_disk_that_takes_nothing_keeps_nothing(tmp_path: Path) -> None:
    ModuleStore(tmp_path / "missing", 1 << 20).put("a", made())
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("written", range(5))
def test_a_disk_that_is_full_in_between_keeps_no_part_of_an_entry(
    store: ModuleStore, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    sizes, write = [0] * written, PrivateFolder.write

    def write_some(folder: PrivateFolder, name: str, parts: Any) -> None:
        if not sizes:
            raise OSError(errno.ENOSPC, "No space left on device")
        sizes.pop()
        write(folder, name, parts)

    module = made()
    monkeypatch.setattr(PrivateFolder, "write", write_some)
    private_folders._warn_full.cache_clear()
    with pytest.warns(UserWarning, match=f"the disk of {store.root.parent} is full") as warned:
        for key in "ab":
            store.put(key, module, {"w": np.ones(3)}, {"packed": np.ones(3)})
    assert len(warned) == 1
    assert not [*store.root.iterdir()]


def test_everything_that_decides_the_code_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        module_key("numpy", Options(), "program"),
        module_key("numpy", Options(), "another"),
        module_key("numpy", Options(check=1), "program"),
        module_key("numpy", Options(disable=frozenset({"schedule"})), "program"),
    }
    monkeypatch.setattr(module_store, "sources_digest", lambda: "edited")
    keys.add(module_key("numpy", Options(), "program"))
    assert len(keys) == 5


def test_files_of_the_runtime_are_in_the_key() -> None:
    assert [package.name for package in module_store._PACKAGES] == ["compiler", "runtime"]
    assert any(
        "/runtime/loader.py" in name
        for name, *_ in module_store._files(str(module_store._PACKAGES[1]))
    )


def test_an_edited_file_of_the_compiler_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "a.py").write_text("1")
    before = list(module_store._files(str(tmp_path)))
    (tmp_path / "passes" / "a.py").write_text("12")
    assert list(module_store._files(str(tmp_path))) != before


def test_the_user_chooses_the_folder_and_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path / "own"))
    assert ModuleStore.from_env() == ModuleStore(tmp_path / "own" / "modules", 2_000_000_000)
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    assert ModuleStore.from_env() is None


def test_a_folder_that_others_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules").chmod(0o777)
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    with pytest.warns(UserWarning, match="compiled code in .* is neither read nor written"):
        assert ModuleStore.from_env() is None


def test_a_module_without_a_record_is_kept(store: ModuleStore) -> None:
    store.put("a", replace(made(), record=None))
    result = store.find("a", OPTIONS)
    assert result is not None
    assert result.record is None
