"""Pages that cannot be written leave nothing."""

import errno
from pathlib import Path

import pytest

from compiler.support.text_files import append_line, write_text
from tests.support.full_disk import files_of_at_most


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(OSError, match=r"page\.html") as caught, files_of_at_most(100):
        write_text(page, "long" * 100_000)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(page))
    assert not page.exists()


def test_a_line_is_appended_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_text(table, "one\n")
    with pytest.raises(OSError, match="table"), files_of_at_most(100):
        append_line(table, "long" * 100)
    append_line(table, "two")
    assert table.read_text() == "one\ntwo\n"


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "page.html", "text")
    assert not (tmp_path / "page.html").exists()


def test_a_file_that_cannot_be_opened_remains(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "page.html", "text")
    assert (tmp_path / "page.html").is_dir()
