"""Caches of code are used where only their user can write to them."""

import hashlib
import os
import warnings
from functools import partial
from pathlib import Path

import pytest

from compiler.codegen.ahead import build
from compiler.codegen.ahead.jobs import KernelJob
from compiler.codegen.ahead.kernel_cache import KernelCache
from compiler.codegen.ahead.machine_code import GpuCode
from compiler.codegen.module_store import ModuleStore
from compiler.options import Options
from compiler.support.digested_files import DigestedFiles
from compiler.support.private_folders import NotPrivate, is_due, is_private, private_folder, trim
from compiler.support.settings.fluid import FLUID_CACHE
from compiler.support.settings.systems import TRITON_CACHE_DIR
from runtime.gpu import cuda
from tests.codegen.test_module_store import made

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
OTHER = 65534


def quietly(folder: Path) -> bool:
    """Whether a folder is private, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return is_private(folder, FLUID_CACHE)


def test_folders_are_made_for_the_user_alone(tmp_path):
    mask = os.umask(0)
    try:
        assert quietly(tmp_path / "cache" / "kernels")
    finally:
        os.umask(mask)
    created = (tmp_path / "cache", tmp_path / "cache" / "kernels")
    assert [folder.stat().st_mode & 0o777 for folder in created] == [0o700, 0o700]


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
        assert not is_private(folder, FLUID_CACHE)


def test_a_folder_in_a_sticky_one_of_root_is_used(tmp_path, monkeypatch):
    sticky = Path("/tmp")
    if sticky.stat().st_mode & 0o1777 != 0o1777 or sticky.stat().st_uid:
        pytest.skip("/tmp is not as usual")
    own = sticky / f"fluid-private-{os.getpid()}"
    assert quietly(own)
    own.rmdir()


@AS_ROOT
@pytest.mark.parametrize("name", ["cache", "cache/kernels"])
def test_a_folder_of_another_user_is_not(tmp_path, name):
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    os.chown(tmp_path / name, 65534, 65534)
    with pytest.warns(UserWarning, match=r"belongs to the user 65534, not to you \(0\)"):
        assert not is_private(folder, FLUID_CACHE)


def test_unreadable_folders_are_not_private(tmp_path, monkeypatch):
    monkeypatch.delenv("FLUID_CACHE", raising=False)
    (tmp_path / "file").write_text("")
    assert not quietly(tmp_path / "file" / "kernels")
    (tmp_path / "round").symlink_to("round")
    assert not quietly(tmp_path / "round" / "kernels")


def test_own_links_are_followed_even_to_folders_that_are_missing(tmp_path):
    (tmp_path / "cache").symlink_to(tmp_path / "disk" / "fluid")
    (tmp_path / "disk").mkdir()
    assert quietly(tmp_path / "cache" / "kernels")
    assert (tmp_path / "disk" / "fluid" / "kernels").stat().st_mode & 0o777 == 0o700


@AS_ROOT
@pytest.mark.parametrize("name", ["cache", "cache/kernels"])
@pytest.mark.parametrize("is_dangling", [True, False])
def test_links_of_another_user_are_not_followed(tmp_path, name, is_dangling):
    (tmp_path / "cache").mkdir()
    target = tmp_path / "own"
    if not is_dangling:
        (target / "kernels").mkdir(parents=True)
    if name == "cache":
        (tmp_path / "cache").rmdir()
    (tmp_path / name).symlink_to(target)
    os.chown(tmp_path / name, OTHER, OTHER, follow_symlinks=False)
    with pytest.warns(UserWarning, match=f"is a link of the user {OTHER}, not yours"):
        assert not is_private(tmp_path / "cache" / "kernels", FLUID_CACHE)
    assert target.exists() != is_dangling


@AS_ROOT
def test_a_link_that_is_replaced_while_it_is_read_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "others").mkdir()
    (tmp_path / "cache").symlink_to("own")
    read = os.readlink

    def replacing(*place, **options):
        (tmp_path / "cache").unlink()
        (tmp_path / "cache").symlink_to("others")
        return read(*place, **options)

    monkeypatch.setattr(os, "readlink", replacing)
    with pytest.raises(NotPrivate), private_folder(tmp_path / "cache" / "kernels"):
        pass


def module_of(folder):
    """The module store in a folder, and how to find an entry."""
    store = ModuleStore(folder, 1 << 20)
    put = partial(store.put, "a", made("numpy"))
    return put, lambda: store.find("a", Options()), "a.json"


def object_of(folder):
    cache = DigestedFiles(folder, 1 << 20, ".o")
    return partial(cache.put, {"a": b"code"}), partial(cache.find, "a"), "a.o"


def kernel_of(folder):
    cache, job = KernelCache(folder, 1 << 20, "3"), KernelJob("k", "cuda:90", "", (), (), ())
    put = partial(cache.put, job, GpuCode("k", {"ptx": b""}, 0, 0, 0, (8, 8)))
    return put, partial(cache.find, job), f"{job.digest('3')}/about.json"


CACHES = pytest.mark.parametrize("cache", [module_of, object_of, kernel_of])


@pytest.fixture
def folder(tmp_path):
    """A cache folder of this user."""
    assert quietly(tmp_path / "cache" / "entries")
    return tmp_path / "cache" / "entries"


@CACHES
def test_an_entry_is_found_until_others_can_write_to_it(cache, folder):
    put, find, name = cache(folder)
    put()
    assert find() is not None
    (folder / name).chmod(0o664)
    assert find() is None


def test_the_folder_of_an_entry_is_checked(folder):
    put, find, name = kernel_of(folder)
    put()
    (folder / name).parent.chmod(0o775)
    assert find() is None


@CACHES
def test_a_folder_is_checked_again_when_it_is_used(cache, folder):
    put, find, _ = cache(folder)
    put()
    folder.chmod(0o777)
    assert find() is None
    folder.rename(folder.with_name("before"))
    folder.mkdir()
    folder.chmod(0o777)
    put()
    assert not [*folder.iterdir()]


@AS_ROOT
@CACHES
@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_an_entry_of_another_user_is_neither_read_nor_written(cache, folder, what):
    put, find, name = cache(folder)
    put()
    content = (folder / name).read_bytes()
    if what == "link":
        folder.rename(folder.with_name("others"))
        folder.symlink_to("others")
    chosen = folder / name if what == "file" else folder
    os.chown(chosen, OTHER, OTHER, follow_symlinks=False)
    assert find() is None
    if what != "file":
        put()
        assert (folder / name).read_bytes() == content


@CACHES
@pytest.mark.parametrize("replace", [Path.symlink_to, lambda place, _: os.mkfifo(place)])
def test_an_entry_that_is_no_file_is_removed(cache, folder, replace):
    put, find, name = cache(folder)
    put()
    (folder / name).rename(folder / "moved")
    replace(folder / name, folder / "moved")
    assert find() is None
    assert not os.path.lexists(folder / name)


@CACHES
def test_files_and_folders_of_entries_are_for_their_user_alone(cache, folder):
    mask = os.umask(0)
    try:
        cache(folder)[0]()
    finally:
        os.umask(mask)
    assert [*folder.iterdir()]
    assert not any(path.stat().st_mode & 0o077 for path in folder.rglob("*"))


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


def test_a_folder_that_is_read_by_path_is_safe_from_its_root_on(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    folder = tmp_path / "shared" / "own" / "cache" / "kernels"
    assert quietly(folder)
    with pytest.warns(UserWarning, match=f"others may write to 'shared' on the way to {folder}"):
        assert not is_private(folder, TRITON_CACHE_DIR, by_path=True)
    (tmp_path / "shared").chmod(0o1777)
    assert is_private(folder, TRITON_CACHE_DIR, by_path=True)


def test_trim_removes_least_recently_used_entries(tmp_path):
    entry, file = tmp_path / "folder", tmp_path / "file"
    entry.mkdir()
    (entry / "about").write_bytes(bytes(60))
    file.write_bytes(bytes(50))
    entries = {"file": "file", "folder": "folder/about", "gone": "gone"}
    os.utime(entry / "about", (1, 1))
    os.utime(file, (2, 2))
    with private_folder(tmp_path) as folder:
        trim(folder, entries, 110)
        assert entry.exists()
        trim(folder, entries, 109)
        assert [each.exists() for each in (entry, file)] == [False, True]
        trim(folder, entries, 0)
        assert not file.exists()


def test_large_entries_are_trimmed_after_and_one_of_eight_others():
    digests = [hashlib.sha256(bytes([n])).hexdigest() for n in range(256)]
    assert all(is_due(digest, 4, 1024) for digest in digests)
    assert 16 <= sum(is_due(digest, 3, 1024) for digest in digests) <= 48
