"""What commands print."""

import io
import sys
from pathlib import Path

import pytest

from fluid.cli.terminal import unbuffer_output


def test_unbuffered_output_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper((tmp_path / name).open("wb"), "utf-8", "replace")
        monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, f"__{name}__", stream)
    print("before", end="")
    assert (tmp_path / "stdout").read_text() == ""
    unbuffer_output()
    print(", after", end="")
    assert (tmp_path / "stdout").read_text("utf-8") == "before, after"
    assert sys.stdout is sys.__stdout__ and sys.stdout.errors == "replace"
    sys.stdout.close()
    sys.stderr.close()
