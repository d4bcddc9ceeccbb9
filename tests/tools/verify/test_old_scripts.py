"""How scripts of others are run, with one made up here in place of theirs."""

from pathlib import Path

import pytest

from bench.real.packages import PACKAGES
from tools.verify import old_scripts
from tools.verify.old_scripts import Finished, Script

SCRIPT = """\
import sys
import paddle.fluid as fluid
from JIEBA import words
print(sys.stdin.read().strip(), words.COUNT, sys.argv[1:])
x = fluid.data("x", [None, 2], "float32")
print(fluid.layers.fc(x, 3).shape)
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Give a folder of packages with one module, and one script of its own, which fails."""
    (tmp_path / "jieba" / "test").mkdir(parents=True)
    (tmp_path / "jieba" / "words.py").write_text("COUNT = 3\n")
    (tmp_path / "jieba" / "test" / "broken.py").write_text("import paddle\npaddle.none()\n")
    return tmp_path


def test_every_script_is_of_a_package() -> None:
    assert {script.package for script in old_scripts.SCRIPTS.values()} <= PACKAGES.keys()


def test_a_script_finds_paddle_its_package_and_what_is_typed(cache: Path) -> None:
    script = Script("jieba", "cut.py", SCRIPT, ["--fast"], "hello\n")
    result = old_scripts.run(script, cache, None)
    assert (result.lines, result.error) == (["hello 3 ['--fast']", "(-1, 3)"], "")


def test_a_script_that_fails_reports_why(cache: Path) -> None:
    result = old_scripts.run(Script("jieba", "test/broken.py"), cache, None)
    assert "AttributeError" in result.error


def test_only_places_may_differ() -> None:
    ours, theirs = Finished(["Load from /a", "x"], 1.0), Finished(["Load from /b", "x"], 1.0)
    assert old_scripts.without_places(ours) == old_scripts.without_places(theirs) == ["x"]


def test_the_report_counts_what_fails() -> None:
    row = {"script": "s", "lines": 1, "ours s": 1.0, "says": "x", "error": ""}
    result = old_scripts.report([{**row, "same": "yes"}, {**row, "same": "no"}])
    assert "MISSED  1 of 2 scripts fail or say other things" in result
