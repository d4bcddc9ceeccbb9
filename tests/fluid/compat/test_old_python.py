"""Scripts under `fluid run` find what Python and packages dropped since they were written."""

import math
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fluid.compat.old_python.argspec import getargspec
from fluid.compat.old_python.mend import MENDERS, MODULES, StandIns
from fluid.compat.old_python.names import Gone, with_names
from fluid.compat.old_python.notices import Notices

SCRIPT = """
import collections, inspect, string, sys, time
import numpy as np
from collections import Iterable, Mapping
from PIL import Image
import yaml
import PIL.Image as again
print(Image.ANTIALIAS == Image.LANCZOS, again is Image, hasattr(Image, "nothing"))
print(yaml.load("a: [1, 2]"), yaml.load("b: 1", Loader=yaml.SafeLoader), yaml.load("c: 1"))
print(isinstance([], Iterable), isinstance({}, collections.Mapping), time.clock() >= 0.0)
print(inspect.getargspec(lambda a, b=1: a).args, string.letters[:3])
print(np.NaN != np.NaN, np.asscalar(np.ones(1)), np.in1d([1, 2], [2]).tolist())
import imp, distutils.version
print(imp.new_module("m").__name__, distutils.version.LooseVersion("1.10") > "1.9")
np.bool = bool
import paddle.fluid as fluid
place = fluid.CUDAPlace(0)
x = fluid.layers.data("x", [2])
(y,) = fluid.Executor(place).run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[x * 2.0])
print(y.tolist(), place, fluid.core.is_compiled_with_cuda(), fluid.cuda_places())
print(isinstance(fluid.core.CUDAPlace(1), fluid.CPUPlace))
from paddle.fluid.distributed.ps_instance import PaddlePSInstance
PaddlePSInstance()
"""
PRINTED = """\
True True False
{'a': [1, 2]} {'b': 1} {'c': 1}
True True True
['a', 'b'] abc
True 1.0 [False, True]
m True
[[2.0, 2.0]] CPUPlace False [CPUPlace()]
True
"""
TOLD = [
    "collections.Iterable is gone since Python 3.10; taking collections.abc.Iterable",
    "Image.ANTIALIAS is gone since Pillow 10; taking Image.LANCZOS",
    "yaml.load without a Loader is gone since PyYAML 6; taking Loader=yaml.FullLoader",
    "time.clock is gone since Python 3.8; taking time.process_time",
    "string.letters is gone since Python 3; taking string.ascii_letters",
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("PIL")
    pytest.importorskip("yaml")
    folder = tmp_path_factory.mktemp("script")
    (folder / "old.py").write_text(SCRIPT)
    command = [sys.executable, "-W", "ignore", "-m", "fluid", "run", "--cpu", "old.py"]
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True)


def test_a_script_of_that_time_runs_on_the_processor(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout == PRINTED, done.stderr


def test_each_is_reported_once(done: subprocess.CompletedProcess[str]) -> None:
    for line in TOLD:
        assert done.stderr.count(f"fluid run: {line}\n") == 1, done.stderr
    assert done.stderr.count("fluid run --cpu: CUDAPlace is taken as CPUPlace\n") == 1


def test_use_of_an_absent_name_reports_why(done: subprocess.CompletedProcess[str]) -> None:
    assert (
        "NotImplementedError: paddle.fluid.distributed.ps_instance.PaddlePSInstance" in done.stderr
    )
    assert "Executor.train_from_dataset and the fleets do the work" in done.stderr


def test_other_processes_are_left_alone() -> None:
    code = "import fluid, collections, time; print(hasattr(collections, 'Iterable'), "
    code += "hasattr(time, 'clock'), any('old_python' in m for m in __import__('sys').modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False False False\n"


def test_names_that_a_module_has_stay(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("some")
    module.own = 1  # type: ignore[attr-defined]
    vars(module)["__getattr__"] = lambda name: f"before {name}"
    with_names(
        module, {"own": Gone("1", "two", "math:pi"), "old": Gone("1", "three", "math:e")}, Notices()
    )
    assert (module.own, module.old, module.old, module.other) == (1, math.e, math.e, "before other")
    assert capsys.readouterr().err == "fluid run: some.old is gone since 1; taking three\n"
    module.old = 4  # type: ignore[attr-defined]
    assert module.old == 4


def replacement(name: str) -> Any:
    """A fake of one of Python's modules, whether or not this Python has it."""
    place = Path(MODULES).joinpath(*name.split("."))
    loader = SourceFileLoader(f"replacement_{name}", str(place.with_suffix(".py")))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_finder_of_replacements(capsys: pytest.CaptureFixture[str]) -> None:
    finder = StandIns(Notices())
    assert finder.find_spec("json") is None
    assert finder.find_spec("distutils.nothing") is None
    spec = finder.find_spec("distutils")
    assert spec is not None and spec.submodule_search_locations
    assert "the module distutils is gone since Python 3.12" in capsys.readouterr().err


def test_imp(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("value = __name__")
    imp = replacement("imp")
    assert imp.load_source("named_one", str(tmp_path / "one.py")).value == "named_one"
    assert sys.modules.pop("named_one").value == "named_one"


def test_versions_and_words() -> None:
    version, util = replacement("distutils.version"), replacement("distutils.util")
    assert sorted(["1.10", "1.9", "1.9.1"], key=version.LooseVersion) == ["1.9", "1.9.1", "1.10"]
    assert version.LooseVersion("1.8.5") == "1.8.5" and str(version.LooseVersion("2a")) == "2a"
    with pytest.raises(ValueError, match="invalid version number 'x'"):
        version.StrictVersion("x")
    assert [util.strtobool(word) for word in ("YES", "0")] == [1, 0]
    with pytest.raises(ValueError, match="invalid truth value 'maybe'"):
        util.strtobool("maybe")


def test_folders_and_files(tmp_path: Path) -> None:
    folders, files = replacement("distutils.dir_util"), replacement("distutils.file_util")
    created = folders.mkpath(str(tmp_path / "a" / "b"))
    assert created == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    files.write_file(str(tmp_path / "a" / "b" / "c"), ["x", "y"])
    (tmp_path / "d").mkdir()
    copied = folders.copy_tree(str(tmp_path / "a"), str(tmp_path / "d"))
    assert copied == [str(tmp_path / "d" / "b" / "c")]
    assert files.copy_file(copied[0], str(tmp_path)) == (str(tmp_path / "c"), 1)
    assert (tmp_path / "c").read_text() == "x\ny\n"
    folders.remove_tree(str(tmp_path / "d"))
    assert not (tmp_path / "d").exists()
    assert replacement("distutils.spawn").find_executable("no such program") is None
    assert Path(replacement("distutils.sysconfig").get_python_lib()).name in {
        "site-packages", "dist-packages",
    }  # fmt: skip


def test_getargspec_errors() -> None:
    with pytest.raises(ValueError, match="keyword-only"):
        getargspec(lambda *, a: a)


def test_every_library_that_is_mended_is_named_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "old_scripts.md").read_text()
    named = {"numpy": "np.NaN", "PIL.Image": "Image.ANTIALIAS", "yaml": "yaml.load"}
    assert set(named) == set(MENDERS)
    assert all(re.search(re.escape(each), page) for each in named.values())
