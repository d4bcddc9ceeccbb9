"""On CPUs nothing of Linux, torch, triton or gRPC is needed: scripts run where all are missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.support.processors import available_processors
from runtime import blas

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = "torch triton grpc matplotlib PIL"
OF_UNIX = "fcntl resource grp pwd termios syslog"
SCRIPT = """
import numpy as np
import paddle.fluid as fluid

fluid.default_startup_program().random_seed = 1
words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
label = fluid.layers.data(name="label", shape=[1], dtype="float32")
vectors = fluid.layers.embedding(words, size=[50, 8], is_sparse=True)
pooled = fluid.nets.sequence_conv_pool(vectors, num_filters=4, filter_size=3)
score = fluid.layers.fc(pooled, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(score, label))
fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)

place = fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()
executor = fluid.Executor(place)
executor.run(fluid.default_startup_program())
program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name)

def batches(seed):
    random = np.random.default_rng(seed)
    for _ in range(20):
        lengths = random.integers(1, 9, 8).tolist()
        ids = random.integers(0, 50, (sum(lengths), 1))
        yield fluid.create_lod_tensor(ids, [lengths], place), np.ones((8, 1), "float32")

losses = []
for sentences, labels in fluid.io.multiprocess_reader([lambda: batches(0), lambda: batches(1)])():
    feed = {"words": sentences, "label": labels}
    losses += executor.run(program, feed=feed, fetch_list=[loss])
assert np.mean(losses[-1]) < 0.1 * np.mean(losses[0]), losses
for _ in range(2):
    fluid.io.save_inference_model("model", ["words"], [score], executor)
fluid.save(fluid.default_main_program(), "saved/model")
fluid.load(fluid.default_main_program(), "saved/model", executor)
np.save("words.npy", np.arange(6)[:, None])
print("learnt")
"""


def elsewhere(
    folder: Path, *arguments: str, hidden: str = f"{OPTIONAL} {OF_UNIX}", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python on another system, inside `folder`, where the `hidden` modules do not exist.

    A file opened in the encoding of the system, which differs between systems, is an error.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "another_system"), str(ROOT)]),
        "FLUID_HIDDEN": hidden,
        "PYTHONWARNDEFAULTENCODING": "1",
        "PYTHONWARNINGS": "error::EncodingWarning",
    }
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment | variables,
        capture_output=True, text=True, encoding="utf-8", timeout=300,
    )  # fmt: skip


def printed(folder: Path, *arguments: str, **more: str) -> str:
    """Return what a command prints that succeeds on another system."""
    done = elsewhere(folder, *arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which an old script ran on another system."""
    return train(tmp_path_factory.mktemp("elsewhere"))


def train(folder: Path, script: str = SCRIPT, **more: str) -> Path:
    """Run a script on another system that trains and saves a model; return its folder."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    assert "learnt" in printed(folder, "-m", "fluid", "run", "train.py", **more)
    return folder


INFER = ("infer", "model", "--input", "words.npy", "--lod", "words=2,4", "--time-limit", "60")


def test_numpy_and_networkx_suffice(tmp_path: Path) -> None:
    hidden = f"{OPTIONAL} {OF_UNIX} llvmlite ml_dtypes"
    train(tmp_path, hidden=hidden)
    done = elsewhere(tmp_path, "-m", "fluid", *INFER, hidden=hidden)
    assert done.returncode == 0 and "float32 [2, 1]" in done.stdout
    assert done.stderr.count("llvmlite is not installed: programs run as NumPy calls") <= 1


WITHOUT = """
import warnings
import numpy as np
from compiler import Options
from compiler.errors import CompileError
from compiler.ir.types import DType
from fluid.running import targets
from fluid.running.targets import chosen_target

targets._runs_native_code = lambda: True
with warnings.catch_warnings(record=True) as noted:
    warnings.simplefilter("always")
    print(chosen_target("", Options()), chosen_target("", Options()), len(noted))
print(noted[0].message)
try:
    DType.of("bfloat16").numpy
except CompileError as error:
    print(error)
"""


def test_without_llvmlite_the_numpy_target_says_so_once(tmp_path: Path) -> None:
    shown = printed(tmp_path, "-c", WITHOUT, hidden="llvmlite ml_dtypes")
    assert shown.startswith("numpy numpy 1\nllvmlite is not installed")
    assert shown.count("pip install 'fluid-compiler[native]'") == 2


def test_commands_run(trained: Path) -> None:
    commands = [
        f"{' '.join(INFER)} --memory-limit 1GiB",
        "infer model --describe",
        "compile model --target numpy -o packaged",
        "convert model converted --combined",
        "inspect model --html report.html --roofline h200",
        "bisect model",
    ]
    shown = printed(trained, "-c", RUN, *commands)
    for text in ("[2, 1]", "all ops are supported", "module.py", "report.html", "keeps all"):
        assert text in shown


RUN = """
import sys
from fluid.cli.main import main
for command in sys.argv[1:]:
    assert main(command.split()) == 0, command
"""


def test_no_draft_is_left(trained: Path) -> None:
    assert list(trained.rglob(".*")) == []


def test_the_demo_runs(tmp_path: Path) -> None:
    assert "held-out accuracy" in printed(tmp_path, "-m", "fluid", "demo", "--epochs", "2")


def test_locks_of_windows_serve_saves(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    short = SCRIPT.replace("range(20)", "range(1)").replace("assert", "# assert")
    train(tmp_path, short, FLUID_LOCKS="windows", TMPDIR=str(tmp_path / "temporary"))
    assert len(list((tmp_path / "temporary").glob("fluid-*.lock"))) >= 2


MISSING = [
    ("fluid.Executor(fluid.CUDAPlace(0)).run(fluid.Program())", "needs torch and triton", "gpu"),
    ("distributed()", "collective operations need torch", "dist"),
    ("grpc()", "parameter servers need grpcio", "dist"),
    ("main('launch --nproc_per_node 2 train.py'.split())", "need torch", "dist"),
    ("main('launch_ps --worker_num 1 --server_num 1 train.py'.split())", "need torch", "dist"),
    ("main('compile model --target cuda:90 -o kernels'.split())", "needs triton", "gpu"),
]
TRY = """
import sys
import fluid
from fluid.cli.main import main
from runtime.collective.engine import distributed
from runtime.ps.wire.transport import grpc
sys.stderr = sys.stdout
for code in sys.argv[1:]:
    print(f"> {code}")
    try:
        assert eval(code) == 2
    except RuntimeError as error:
        print(error)
"""


def test_missing_packages_name_the_extra(trained: Path) -> None:
    shown = printed(trained, "-c", TRY, *[code for code, _, _ in MISSING]).split("> ")[1:]
    for (code, what, extra), text in zip(MISSING, shown, strict=True):
        assert text.startswith(code)
        assert what in text
        assert f"pip install 'fluid-compiler[{extra}]'" in text


def test_processors_are_counted_where_no_affinity_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert available_processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_processors() == os.cpu_count()


def test_the_threads_of_blas_are_found_where_no_library_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = blas._libraries()
    monkeypatch.setattr(blas, "loaded_libraries", lambda name: [])
    result = blas._libraries()
    assert len(result) <= 1  # none if NumPy has none
    assert all(any(Path(path).samefile(each) for each in listed) for path in result)


def test_several_devices_of_a_process(tmp_path: Path) -> None:
    train(tmp_path, CPU_NUM="2")
