"""docs/transpilers.md: its examples print what the page shows."""

import re
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, DocTestParser, DocTestRunner
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "transpilers.md"


@pytest.mark.usefixtures("fresh_programs")
def test_examples_print_what_the_page_shows() -> None:
    text = re.sub(r"train\.py:\d+", "...", PAGE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "page"}
    result = DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
    runner = DocTestRunner(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(result, out=said.append)
    assert len(result.examples) > 20 and not runner.failures, "".join(said)
