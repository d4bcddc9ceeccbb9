"""Old scripts run: `import paddle` is served on request, and `fluid run` runs what imports it."""

import os
import pickle  # noqa: TID251  what processes hand each other arrays with
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.cli import run as run_command
from fluid.compat.paddle import dataset
from tests.fluid.compat.paddle.dataset_files import make_all

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(__file__).parents[1] / "scripts"
PRINTED = {
    "price": r"pass 0: .*\npass 10: .*\nfirst .*, last .*\nsizes \(4, 1\) of type float64",
    "pictures": r"mnist: from .* to .*\ncifar: from .* to",
    "reviews": r"8 words, one is so\nfrom .* to .*\nclasses \[0, 1\]",
}


def python(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the project in a folder, warnings being errors."""
    path = os.pathsep.join([str(ROOT), *environment.pop("others", "").split()])
    settings = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "error"} | environment
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with tiny files of every data set."""
    folder = tmp_path_factory.mktemp("datasets")
    make_all(folder)
    return folder


@pytest.mark.parametrize("name", PRINTED)
def test_script_of_that_time_runs(name: str, home: Path, tmp_path: Path) -> None:
    script = str(SCRIPTS / f"{name}.py")
    done = python("-m", "fluid", "run", script, folder=tmp_path, PADDLE_DATASET_HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[name], done.stdout)


IMPORTS = """
import math, random
import fluid
paddle = fluid.install_as_paddle()
paddle.enable_static()
assert not hasattr(paddle, "nn")
import paddle.fluid.layers.collective as collective
from paddle.fluid.layers.collective import _c_allgather
assert collective._c_allgather is _c_allgather is paddle.fluid.layers.collective._c_allgather
import paddle.fluid.layers.nn as nn, paddle.fluid.layers.ops as ops, paddle.fluid.layers.io as lio
import paddle.fluid.core as core, paddle.batch, paddle.reader.decorator, paddle.dataset.common
from paddle.fluid.layers import *
from paddle.fluid.layers.learning_rate_scheduler import _decay_step_counter, noam_decay
from paddle.fluid import framework, io, optimizer, initializer, regularizer, clip, nets
from paddle.reader import shuffle, buffered, map_readers, chain, compose, firstn, xmap_readers
from paddle.reader import cache, multiprocess_reader, ComposeNotAligned
from paddle.dataset import uci_housing, mnist, cifar, imdb, imikolov, movielens, conll05
from paddle.dataset import wmt14, wmt16, flowers, sentiment, common
import paddle.version, paddle.compat
assert fluid.install_as_paddle() is paddle
assert nn.fc is fc is fluid.layers.fc and ops.cos is cos and lio.data is data
assert paddle.fluid.layers.learning_rate_scheduler.noam_decay is noam_decay
assert paddle.fluid.framework.Program is fluid.Program is framework.Program
assert paddle.fluid.default_main_program() is fluid.default_main_program()
assert core.CPUPlace is fluid.CPUPlace and callable(paddle.batch)
assert paddle.fluid.data is fluid.data and not hasattr(paddle.fluid.data, "data")
assert paddle.__version__ == paddle.version.full_version == "1.8.5"
assert "fc" in dir(paddle.fluid.layers) and "fc" in paddle.fluid.layers.__all__
assert paddle.fluid.__all__ == fluid.__all__ and math.pi > 3 and random.random() < 1
assert paddle.fluid.layers.core.Scope is core.Scope and paddle.fluid.layers.Variable
from paddle.fluid.optimizer import append_regularization_ops, framework, unique_name
assert not hasattr(paddle.fluid.optimizer, "embedding")
import paddle.regularizer, paddle.utils.image_util
from paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler, wait_server_ready
assert len(paddle.version.commit) == 40 and core.save_op_compatible_info(core.ProgramDesc())
common.DATA_HOME = "/elsewhere"
try:
    mnist.train()
except common.DatasetError as error:
    assert "/elsewhere/mnist" in str(error)
paddle.fluid.io.batch = 5
assert fluid.io.batch == 5
for missing in ("paddle.fluid.dygraph.jit", "paddle.v2"):
    try:
        __import__(missing)
    except ModuleNotFoundError as error:
        assert error.name == missing
try:
    from paddle.fluid.layers import nothing_like_it
except ImportError as error:
    print(error)
"""


def test_paddle_imports_are_served(tmp_path: Path) -> None:
    done = python("-c", IMPORTS, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cannot import name 'nothing_like_it' from 'paddle.fluid.layers'" in done.stdout


def test_paddle_is_not_served_by_default(tmp_path: Path) -> None:
    done = python("-c", "import fluid, paddle", folder=tmp_path)
    assert "No module named 'paddle'" in done.stderr


def other_paddle(folder: Path) -> None:
    (folder / "paddle").mkdir()
    (folder / "paddle" / "__init__.py").write_text("answer = 42\n")


def test_another_paddle_stays_unless_forced_away(tmp_path: Path) -> None:
    other_paddle(tmp_path)
    (tmp_path / "script.py").write_text("import paddle\nprint(paddle.__version__)\n")
    done = python("-m", "fluid", "run", "script.py", folder=tmp_path)
    where = tmp_path / "paddle" / "__init__.py"
    assert done.returncode == 2
    assert done.stderr.startswith(f"fluid run: another paddle is installed at {where}: uninstall")
    forced = python("-m", "fluid", "run", "--force", "script.py", folder=tmp_path)
    assert (forced.returncode, forced.stdout) == (0, "1.8.5\n")


def test_another_paddle_that_is_imported_already(tmp_path: Path) -> None:
    other_paddle(tmp_path)
    source = (
        "import paddle, fluid\n"
        "try:\n    fluid.install_as_paddle()\n"
        "except ImportError as error:\n    print(error)\n"
        "fluid.install_as_paddle(force=True)\n"
        "import paddle\n"
        "print(paddle.fluid.Program is fluid.Program)\n"
    )
    done = python("-c", source, folder=tmp_path)
    first, second = done.stdout.splitlines()
    assert first.startswith("another paddle is installed at ") and second == "True"


def test_a_mere_folder_called_paddle_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "paddle").mkdir()
    done = python("-c", "import fluid; fluid.install_as_paddle()", folder=tmp_path)
    assert done.returncode == 0, done.stderr


# fluid run


def run(source: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "inner").mkdir()
    (folder / "inner" / "script.py").write_text(source)
    (folder / "inner" / "neighbour.py").write_text("value = 7\n")
    return python("-m", "fluid", "run", "inner/script.py", *arguments, folder=folder)


def test_a_missing_data_set_shows_the_line_of_the_script_alone(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import paddle\npaddle.dataset.mnist.train()\n")
    own = {"FLUID_TRACEBACK": "", "PADDLE_DATASET_HOME": str(tmp_path)}
    done = python("-m", "fluid", "run", "script.py", folder=tmp_path, **own)
    assert done.stderr.count('File "') == 1 and "PADDLE_DATASET_HOME" in done.stderr


def test_script_sees_its_arguments_name_and_neighbours(tmp_path: Path) -> None:
    source = "import sys, neighbour\nprint(sys.argv, __name__, __file__, neighbour.value)\n"
    done = run(source, tmp_path, "--force", "-x", "1")
    shown = "['inner/script.py', '--force', '-x', '1'] __main__ inner/script.py 7\n"
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_traceback_starts_in_the_script(tmp_path: Path) -> None:
    source = "import paddle.fluid as fluid\ndef f():\n    fluid.layers.fc(3, size=2)\nf()\n"
    done = run(source, tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[:2] == [
        "Traceback (most recent call last):",
        '  File "inner/script.py", line 4, in <module>',
    ]
    assert "ArgumentError" in lines[-1] or "TypeError" in lines[-1]


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("open('not there')", 1, "FileNotFoundError"),
        ("x = (", 1, '  File "inner/script.py", line 1\n'),
        ("raise KeyboardInterrupt", 130, "stopped at inner/script.py:1 (KeyboardInterrupt)"),
    ],
)
def test_end_of_a_script_is_what_python_makes_of_it(
    source: str, code: int, said: str, tmp_path: Path
) -> None:
    done = run(source, tmp_path)
    assert done.returncode == code
    assert said in done.stderr and "runpy" not in done.stderr


def test_names_that_numpy_had_are_there(tmp_path: Path) -> None:
    done = run("import numpy as np\nprint(np.zeros(2, np.float).dtype, np.int(3.5))\n", tmp_path)
    assert done.stdout == "float64 3\n", done.stderr


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="it is a number there")
def test_array_that_is_no_number_comes_with_a_hint_where_it_cannot_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(TypeError) as error:
        float(np.ones(1))
    run_command._show("", False, TypeError, error.value, None)
    assert capsys.readouterr().err.endswith("install 'numpy<2.4'.\n")


def test_module_of_the_wheel_comes_with_the_name_of_its_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ModuleNotFoundError("No module named 'google.protobuf'", name="google.protobuf")
    run_command._show("", False, ModuleNotFoundError, error, None)
    assert capsys.readouterr().err.endswith("brought it along: pip install protobuf\n")


def test_no_script(tmp_path: Path) -> None:
    done = python("-m", "fluid", "run", "no.py", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "fluid run: no.py is not a file: expected a script, followed by its arguments\n"
    )


# The page about it

PAGE = (ROOT / "docs" / "old_scripts.md").read_text(encoding="utf-8")


def test_example_of_the_page_runs(tmp_path: Path) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert python("-c", source, folder=tmp_path).stdout == "True\n"


def test_page_names_every_data_set_its_folder_and_its_files(home: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    parts = {"archive", "common", "image", "matlab"}
    assert {name for name, *_ in rows} == set(dataset.__all__) - parts
    assert {folder for _, folder, _ in rows} == {path.name for path in home.iterdir()}
    for _, folder, text in rows:
        named = set(re.findall(r"`([^`]+)`", text))
        assert named <= {path.name for path in (home / folder).iterdir()}


def test_page_names_every_example() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.partition("## Examples")[2]))
    others = {"make_digits", "launched_training", "reptile"}  # nothing of that time
    assert named == {path.stem for path in (ROOT / "examples").glob("*.py")} - others


# What is fetched


def test_fetched_loss_is_a_number_wherever_one_is_wanted(
    exe: fluid.Executor, fresh_programs: object
) -> None:
    loss = fluid.layers.mean(fluid.data("x", [None, 2], "float32"))
    feed = {"x": np.array([[1.0, 2.0]], np.float32)}
    (value,) = exe.run(feed=feed, fetch_list=[loss])
    assert value.shape == (1,) and value.tolist() == [1.5]
    assert (float(value), int(value), "%.1f" % value) == (1.5, 1, "1.5")  # noqa: UP031
    total = np.zeros(3, np.float32) + value
    assert type(total) is np.ndarray and type(value.mean()) is np.float32
    assert float(value * 2 + value) == 4.5 and repr(value) == "array([1.5], dtype=float32)"


def test_rows_of_a_fetched_column_are_numbers(exe: fluid.Executor, fresh_programs: object) -> None:
    doubled = fluid.layers.scale(fluid.data("x", [None, 1], "float32"), 2.0)
    (column,) = exe.run(feed={"x": np.array([[1], [2.5]], np.float32)}, fetch_list=[doubled])
    assert ["%.1f" % row for row in column] == ["2.0", "5.0"]  # noqa: UP031
    assert float((column + 1)[0]) == 3.0 and type(column.sum()) is np.float32
    with pytest.raises(TypeError, match=r"shape \(2, 1\) is not a number"):
        float(column)
    again = pickle.loads(pickle.dumps(column))  # noqa: S301  what was just dumped
    assert type(again) is np.ndarray and again.tolist() == [[2.0], [5.0]]


ABSENT = """
import importlib.util
import fluid
fluid.install_as_paddle()
import paddle.fluid.contrib.slim.quantization.mkldnn_post_training_strategy as onednn
from paddle.fluid import multiprocess_utils
from paddle.fluid.contrib.slim.quantization import QatInt8MkldnnPass
from paddle.fluid.contrib.slim.nas.lock import lock
class Derived(QatInt8MkldnnPass):
    pass
passes = importlib.import_module("paddle.fluid.contrib.slim.quantization")
print(
    hasattr(passes, "QatInt8MkldnnPass"), hasattr(onednn, "MKLDNNPostTrainingQuantStrategy"),
    isinstance(3, QatInt8MkldnnPass),
)
for use in (
    lambda: QatInt8MkldnnPass(3), Derived, lock,
    lambda: onednn.MKLDNNPostTrainingQuantStrategy, lambda: passes.QatInt8MkldnnPass,
    lambda: __import__("paddle.v2"),
):
    try:
        use()
    except (AttributeError, ImportError, NotImplementedError) as error:
        name, _, why = str(error).partition(" of release 1.8.5 is not here. ")
        print(type(error).__name__, name.split(";")[0], why[:34])
print(importlib.util.find_spec("nothing_of_that_name"))
"""


def test_absent_names_are_imported_and_say_why_when_they_are_used(tmp_path: Path) -> None:
    done = python("-c", ABSENT, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    why = "Of compression all but what needs "
    name = "paddle.fluid.contrib.slim.quantization.QatInt8MkldnnPass"
    assert done.stdout.splitlines() == [
        "False False False",
        f"NotImplementedError {name} {why}",
        f"NotImplementedError {name} {why}",
        f"NotImplementedError paddle.fluid.contrib.slim.nas.lock.lock {why}",
        f"AttributeError paddle.fluid.contrib.slim.quantization.mkldnn_post_training_strategy {why}",
        f"AttributeError {name} {why}",
        "ModuleNotFoundError No module named 'paddle.v2' ",
        "None",
    ]
