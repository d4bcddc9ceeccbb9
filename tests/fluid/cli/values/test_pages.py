"""Pages that cannot be written leave nothing."""

import errno
import resource
from pathlib import Path

import pytest

from fluid.cli.values.pages import write_text


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"page\.html") as caught:
            write_text(page, "long" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(page))
    assert not page.exists()


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "page.html", "text")
    assert not (tmp_path / "page.html").exists()


def test_a_file_that_cannot_be_opened_remains(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "page.html", "text")
    assert (tmp_path / "page.html").is_dir()
