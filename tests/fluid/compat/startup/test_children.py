"""Python processes that a script under `fluid run` starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluid.compat.startup import children

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = """
import json, multiprocessing, os, subprocess, sys
import numpy as np
import paddle.fluid as fluid

def spawned(number):
    x = fluid.layers.data("x", [1])
    (y,) = fluid.Executor(fluid.CUDAPlace(0)).run(feed={"x": np.ones((1, 1), "f")}, fetch_list=[x * 2.0])
    return float(np.exp(y)) + number

def printed(*line, env=None):
    done = subprocess.run(line, capture_output=True, text=True, env=env)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        results = {"spawn": pool.map(spawned, [0])}
    results["python"] = printed("python", "no_paddle.py")
    results["PYTHONPATH"] = printed("sh", "-c", "PYTHONPATH=. python3 no_paddle.py")
    few = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    results["few variables"] = printed("python", "no_paddle.py", env=few)
    results["isolated"] = printed(sys.executable, "-I", "no_paddle.py")
    results["other"] = printed(sys._base_executable, "no_paddle.py")
    results["foreign"] = printed(sys.executable, "-c", "import sys; sys.path.insert(0, 'other'); import compiler, paddle")
    print(json.dumps(results))
"""
NO_PADDLE = """
import sys
heavy = [name for name in ("numpy", "fluid", "typing") if name in sys.modules]
own = [each for each in sys.path if "on_path" in each]
import collections, json, os
from importlib.util import find_spec
names = hasattr(collections, "Iterable"), hasattr(__import__("time"), "clock")
print(json.dumps([heavy, own, *names, find_spec("paddle") is not None, "user" in sys.modules]))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What children print under `fluid run --cpu` with no `python` on PATH."""
    folder = tmp_path_factory.mktemp("folder")
    files = {"main.py": SCRIPT, "no_paddle.py": NO_PADDLE, "user.py": ""}
    files["sitecustomize.py"] = "import user"
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "other").mkdir()
    (folder / "other" / "compiler.py").write_text("")
    (folder / "bin").mkdir()
    (folder / "bin" / "sh").symlink_to("/bin/sh")
    more = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PATH": str(folder / "bin")}
    done = subprocess.run(
        [sys.executable, "-m", "fluid", "run", "--cpu", "main.py"],
        cwd=folder, env=os.environ | more, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_children_import_paddle_with_the_options_of_the_script(results: dict[str, object]) -> None:
    assert results["spawn"] == [pytest.approx(7.389056)]


def test_python_is_found_and_nothing_is_imported_before_it_is_needed(
    results: dict[str, object],
) -> None:
    assert results["python"] == [[], [], True, True, True, True]
    assert results["PYTHONPATH"] == results["few variables"] == results["python"]


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_other_interpreters_run_as_before(results: dict[str, object]) -> None:
    assert results["other"][1:] == [[], False, False, False, True]


def test_isolated_interpreters_run_as_before(results: dict[str, object]) -> None:
    assert results["isolated"][2:5] == [False, False, False]


def test_a_module_with_the_name_of_ours_is_reported(results: dict[str, object]) -> None:
    assert "paddle cannot be imported after" in results["foreign"]
    assert "fluid has a package 'compiler' too; import paddle first" in results["foreign"]


def test_finder_leaves_other_packages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = children.PaddleFinder()
    assert finder.find_spec("json") is None and finder.find_spec("paddle.fluid") is None
    for name in children.OWN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert finder.find_spec("compiler") is None
    spec = finder.find_spec("fluid")
    assert spec is not None and spec.origin == str(ROOT / "fluid" / "__init__.py")
