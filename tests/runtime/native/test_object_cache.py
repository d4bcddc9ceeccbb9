"""The cache of object files: hits without llvmlite, damage, limits, folders of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.machine import AVX2, AVX512
from compiler.support import digested_files, private_folders
from compiler.support.private_folders import PrivateFolder
from runtime.native import object_cache
from runtime.native.object_cache import digest, objects
from tests.runtime.native.kernels import double, scale, sums

ROOT = Path(__file__).parents[3]
HERE = detected()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    return tmp_path / "native"


def texts(*kernels):
    return {kernel.name: kernel.text() for kernel in kernels}


@pytest.fixture
def builds(monkeypatch):
    """The names of the kernels that were compiled."""
    names = []

    def counting(kernels, *rest):
        names.extend(kernels)
        return build(kernels, *rest)

    build = object_cache.build
    monkeypatch.setattr(object_cache, "build", counting)
    return names


def test_second_time_nothing_is_compiled(builds):
    first = objects(texts(double(), sums()), HERE)
    second = objects(texts(sums(), double(), scale(2.0)), HERE)
    assert builds == ["double", "sums", "scale"]
    assert {name: second[name] for name in first} == first


def test_kernels_of_equal_text_are_compiled_once(builds):
    text = double().text()
    result = objects({"a": text, "b": text}, HERE)
    assert builds == ["a"] and result["a"] == result["b"]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:36] + b"\0" + b[37:]]
)
def test_damaged_files_are_compiled_again(builds, folder, damage):
    before = objects(texts(double()), HERE)
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert objects(texts(double()), HERE) == before
    assert builds == ["double", "double"]
    assert objects(texts(double()), HERE) == before
    assert builds == ["double", "double"]


def test_huge_files_are_not_read(monkeypatch, folder):
    monkeypatch.setattr(digested_files, "LARGEST", 100)
    objects(texts(double()), HERE)
    cache = object_cache.user_cache()
    assert cache.find(digest(double().text(), HERE)) is None


def test_key_depends_on_text_machine_and_llvm(monkeypatch):
    key = digest("a", AVX512)
    assert len({key, digest("b", AVX512), digest("a", AVX2)}) == 3
    for name, value in (("llvm_version", lambda: "another"), ("OPTIONS", ())):
        with monkeypatch.context() as patched:
            patched.setattr(object_cache, name, value)
            object_cache._toolchain.cache_clear()
            assert digest("a", AVX512) != key
    object_cache._toolchain.cache_clear()


def test_no_cache_if_disabled(monkeypatch, folder, builds):
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    objects(texts(double()), HERE)
    objects(texts(double()), HERE)
    assert builds == ["double", "double"]
    assert not folder.exists()


def test_least_recently_used_are_removed(monkeypatch, folder):
    objects(texts(double()), HERE)
    size = next(folder.iterdir()).stat().st_size
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    monkeypatch.setenv("FLUID_CACHE_SIZE", str(size * 3 // 2))
    objects(texts(sums()), HERE)
    assert [path.stem for path in folder.iterdir()] == [digest(sums().text(), HERE)]


def test_folders_that_others_write_to_are_not_used(folder, builds):
    folder.mkdir()
    folder.chmod(0o777)
    for _ in range(2):
        with pytest.warns(UserWarning, match="neither read nor written"):
            objects(texts(double()), HERE)
    assert builds == ["double", "double"]
    assert not [*folder.iterdir()]


def test_full_disk_is_no_error(monkeypatch, folder):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PrivateFolder, "write", full)
    private_folders._warn_full.cache_clear()
    with pytest.warns(UserWarning, match="is full; free some space") as warned:
        assert objects(texts(double()), HERE)["double"]
        assert objects(texts(sums()), HERE)["sums"]
    assert [warning.filename for warning in warned] == [__file__]


WARM = """
import sys
import numpy as np
from runtime.native.sequence import NativeCode
from tests.runtime.native.kernels import double
native = NativeCode({"double": double().text()})
x, y = np.ones((2, 3), "f4"), np.zeros((2, 3), "f4")
native([("double", (x, y, 3), 2)])()
assert (y == 2).all()
print(any(name.split(".")[0] == "llvmlite" for name in sys.modules))
"""


def test_a_warm_start_does_not_import_llvmlite():
    shown = [
        subprocess.check_output([sys.executable, "-c", WARM], cwd=ROOT, text=True).strip()
        for _ in range(2)
    ]
    assert shown == ["True", "False"]


def test_parallel_builds_give_the_same_objects(monkeypatch):
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    kernels = texts(double(), sums(), *(scale(number) for number in (2.0,)))
    assert objects(kernels, HERE, threads=4) == objects(kernels, HERE)
    assert np.all([each.startswith(b"\x7fELF") for each in objects(kernels, HERE).values()])
