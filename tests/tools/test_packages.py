"""docs/packages.md is what `python -m tools.packages` prints."""

import pytest

from tools import packages


def test_the_page_is_up_to_date(update: bool) -> None:
    path = packages.ROOT / "docs" / "packages.md"
    if update:
        path.write_text(packages.page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == packages.page()


def test_a_package_without_docstring_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "__init__.py").write_text("import os\n")
    with pytest.raises(ValueError, match=r"new/__init__\.py has no docstring"):
        packages.summary(tmp_path / "new")
