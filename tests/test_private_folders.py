"""Caches of code are used where only their user can write to them."""

import hashlib
import os
import warnings
from pathlib import Path

import pytest

from compiler.codegen.ahead import build
from compiler.private_folders import is_due, is_private, trim
from runtime.gpu import cuda


def quietly(folder: Path) -> bool:
    """Whether a folder is private, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return is_private(folder, "FLUID_CACHE")


def test_folders_are_made_for_the_user_alone(tmp_path):
    mask = os.umask(0)
    try:
        assert quietly(tmp_path / "cache" / "kernels")
    finally:
        os.umask(mask)
    made = (tmp_path / "cache", tmp_path / "cache" / "kernels")
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700, 0o700]


def test_a_folder_that_others_may_only_read_is_used(tmp_path):
    (tmp_path / "kernels").mkdir(mode=0o755)
    assert quietly(tmp_path / "kernels")


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o702, 0o1777])
@pytest.mark.parametrize("name", ["cache", "cache/kernels"])
def test_a_folder_that_others_may_write_to_is_not(tmp_path, mode, name):
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    (tmp_path / name).chmod(mode)
    if (name, mode) == ("cache", 0o1777) and os.geteuid() == 0:
        pytest.skip("a sticky folder of root is safe, as /tmp is")
    text = (
        rf"neither read nor written: others may write to {tmp_path / name}, its mode is {mode:o}; "
    )
    with pytest.warns(UserWarning, match=f"{text}set FLUID_CACHE to a folder of your own, or"):
        assert not is_private(folder, "FLUID_CACHE")


def test_a_folder_in_a_sticky_one_of_root_is_used(tmp_path, monkeypatch):
    sticky = Path("/tmp")
    if sticky.stat().st_mode & 0o1777 != 0o1777 or sticky.stat().st_uid:
        pytest.skip("/tmp is not as usual")
    own = sticky / f"fluid-private-{os.getpid()}"
    assert quietly(own)
    own.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
@pytest.mark.parametrize("name", ["cache", "cache/kernels"])
def test_a_folder_of_another_user_is_not(tmp_path, name):
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    os.chown(tmp_path / name, 65534, 65534)
    with pytest.warns(UserWarning, match=r"belongs to the user 65534, not to you \(0\)"):
        assert not is_private(folder, "FLUID_CACHE")


def test_what_is_no_folder_holds_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert quietly(tmp_path / "file" / "kernels")


def test_kernels_are_neither_taken_from_nor_put_into_a_folder_of_others(tmp_path):
    pytest.importorskip("triton")
    assert build._kernel_cache(tmp_path / "kernels", 1) is not None
    (tmp_path / "kernels").chmod(0o777)
    with pytest.warns(UserWarning, match="neither read nor written"):
        assert build._kernel_cache(tmp_path / "kernels", 1) is None
    assert build._cached([], None) == {}


def test_triton_is_given_a_folder_of_its_own_instead(tmp_path, monkeypatch):
    cuda.use_private_cache.cache_clear()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cuda.use_private_cache()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path)
    cuda.use_private_cache.cache_clear()
    tmp_path.chmod(0o777)
    with pytest.warns(UserWarning, match="set TRITON_CACHE_DIR to a folder of your own"):
        cuda.use_private_cache()
    own = Path(os.environ["TRITON_CACHE_DIR"])
    assert own != tmp_path
    assert own.stat().st_mode & 0o777 == 0o700
    cuda.use_private_cache.cache_clear()


def test_what_was_used_least_recently_is_removed_whether_file_or_folder(tmp_path):
    folder, used, kept = tmp_path / "folder", tmp_path / "folder" / "about", tmp_path / "file"
    folder.mkdir()
    used.write_bytes(bytes(60))
    kept.write_bytes(bytes(50))
    entries = {kept: kept, folder: used, tmp_path / "gone": tmp_path / "gone"}
    os.utime(used, (1, 1))
    os.utime(kept, (2, 2))
    trim(entries, 110)
    assert folder.exists()
    trim(entries, 109)
    assert [each.exists() for each in (folder, kept)] == [False, True]
    trim(entries, 0)
    assert not kept.exists()


def test_large_entries_are_trimmed_after_and_one_of_eight_others():
    digests = [hashlib.sha256(bytes([n])).hexdigest() for n in range(256)]
    assert all(is_due(each, 4, 1024) for each in digests)
    assert 16 <= sum(is_due(each, 3, 1024) for each in digests) <= 48
