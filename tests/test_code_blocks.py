"""Every code block of the pages runs: Python as it stands, commands beside a model and a script.

A page's blocks of Python run one after another; one that imports starts with empty programs, the
others go on. Commands of all pages run once each in one folder. Other tests run the blocks of the
pages in `ELSEWHERE`; blocks without a language are excerpts and output.
"""

import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from doctest import ELLIPSIS, OutputChecker
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fluid
from compiler.__main__ import main as compiler_main
from fluid.cli.main import COMMANDS, main, parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*.md")),
]
LANGUAGES = {"", "python", "sh", "console", "ir", "diff", "{toctree}", "{eval-rst}"}
ELSEWHERE = {
    "CONTRIBUTING.md": "test_readme.py",
    "docs/architecture.md": "test_readme.py",
    "docs/cookbook.md": "test_cookbook.py",
    "docs/old_scripts.md": "fluid/compat/test_as_paddle.py",
    "docs/transpilers.md": "test_transpilers_page.py",
}
"""Pages whose Python another test runs: in an extra copy of the tree, or as doctests."""


FENCED, FLAGS = r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL


class Block(NamedTuple):
    """A code block of a page."""

    page: str
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    """The code blocks of a language, of all pages in order."""
    return [
        block for page in sorted(PAGES) for block in blocks_of(page) if block.language == language
    ]


def blocks_of(page: str) -> list[Block]:
    """The code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = re.findall(FENCED, text, FLAGS)
    return [Block(page, language, body) for _, language, body in fenced]


def test_blocks_have_a_known_language() -> None:
    assert {block.language for page in PAGES for block in blocks_of(page)} <= LANGUAGES


def test_pages_whose_blocks_run_elsewhere_are_read_there() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


# ---- Python ------------------------------------------------------------------------------------

NETWORK = """
import numpy as np
import fluid

def network():
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    ids = fluid.layers.reshape(fluid.layers.cast(y, "int64"), [-1])
    row = fluid.embedding(ids, [10, 4], is_sparse=True, param_attr=fluid.ParamAttr("table"))
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x + row, 1), y))

batch = {"x": np.eye(4, dtype="float32"), "y": np.ones((4, 1), "float32")}
batches = [batch] * 2
"""
TRAIN = (
    NETWORK
    + """
loss = network()
fluid.optimizer.SGD(0.1).minimize(loss)
main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
"""
)
BEFORE = {
    "docs/distributed.md": """
import os
import numpy as np
import fluid
os.environ.update(CPU_NUM="1", PADDLE_TRAINER_ID="0")
loss = fluid.layers.mean(fluid.data("x", [None, 4]))
main, exe, batch = fluid.default_main_program(), fluid.Executor(), np.eye(4, dtype="float32")
""",
    "docs/distribute_transpiler.md": TRAIN + "trainer_id = 0",
    "docs/gpu.md": TRAIN
    + """
scores = fluid.layers.fc(main.global_block().var("x"), 2)
exe.run(fluid.default_startup_program())
fluid.io.save_inference_model("model", ["x"], [scores], exe)
main_of_command(["compile", "model", "--target", "cuda:90", "-o", "OUT"])
rows = batch["x"]
""",
    "docs/inspect.md": TRAIN,
    "docs/mixed_precision.md": TRAIN
    + """
fluid.io.save_inference_model("out/demo/model", ["x", "y"], [loss], exe)
""",
}
"""What the blocks of a page take for granted."""
JOBS = ("docs/fleet.md", "docs/parameter_servers.md")
"""Pages whose Python is the script of a job: `test_script_of_a_job_ends` runs it."""
IN_PROCESS = sorted({block.page for block in blocks("python")} - {*ELSEWHERE, *JOBS})


def python_of(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return [block.text for block in blocks_of(page) if block.language == "python"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; the environment is restored after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return tmp_path


@pytest.mark.parametrize("page", IN_PROCESS)
def test_python_of_a_page_runs(page: str, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "page", "main_of_command": main}
    with ExitStack() as programs:
        for source in python_of(page):
            before = "" if "import " in source else BEFORE.get(page, "")
            if "import " in before + source:
                programs.close()
                programs.enter_context(fluid.program_guard(fluid.Program(), fluid.Program()))
                programs.enter_context(fluid.unique_name.guard())
                programs.enter_context(fluid.scope_guard(fluid.Scope()))
            exec(compile(before, "what the page takes for granted", "exec"), names)
            lines = source.splitlines(keepends=True)
            linecache.cache[page] = (len(source), None, lines, page)  # read by rewriting
            exec(compile(source, page, "exec"), names)


def test_first_example_learns(
    folder: Path, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(python_of("docs/start.md")[1], "start.md", "exec"), {})
    losses = [float(loss) for loss in re.findall(r"loss\s+(\S+)", capsys.readouterr().out)]
    assert len(losses) > 2
    assert losses[-1] < 1e-3 * losses[0]


def test_examples_of_the_chinese_page_are_those_of_the_english_one() -> None:
    examples = python_of("docs/start_zh.md")
    assert examples and set(examples) <= set(python_of("docs/start.md"))


# ---- commands ----------------------------------------------------------------------------------

SHOWN = ("docs/passes.md", "docs/files.md")
"""Pages whose commands must also print what is shown below them."""
ORDER = ["docs/start.md", *sorted({*PAGES} - {"docs/start.md", *SHOWN})]
"""A command that several pages have is run for the first of them."""
NOT_HERE = {
    r"make |.*\bpip install": "tests of the Makefile and of pyproject.toml",
    r"kubectl|srun": "a cluster",
    r".*(10\.0\.0|ps0|_ID=0)|export ": "several machines",
    r".*(--target cuda$|selected_gpus|CUDA_VISIBLE)": "a GPU",
    r".*(bench/|examples/|tools\.verify)": "they have tests of their own",
    r".*/data/model_files": "files that someone has",
}
"""Commands that need more than this machine; of those that are ours the arguments are parsed."""
LONG = {
    r".*launch|torchrun|CPU_NUM=4": "processes that import torch",
    r"fluid selftest": "two minutes",
    r"FLUID_GPU=ptx|TRITON_INTERPRET|.*--counters": "a GPU in NumPy",
}
"""Commands for `make slow`."""
STARTS_SCRIPTS = ("run", "shell", "profile", "launch", "launch_ps")
MODELS = {"words=": "sentences", "img=": "pictures", "": "numbers"}
"""The model of a command, by what it is fed."""


def command_lines(page: str) -> list[str]:
    """The commands of a page, without comments and prompts, each in one line."""
    lines: list[str] = []
    for block in blocks_of(page):
        prompt = {"sh": "", "console": "$ "}.get(block.language)
        if prompt is not None:
            joined = block.text.replace("\\\n", "").splitlines()
            lines += [each.removeprefix(prompt) for each in joined if each.startswith(prompt)]
    texts = (" ".join(re.sub(r"(^|\s+)#.*", "", line).split()) for line in lines)
    return [text for text in texts if text]


def commands_by_page() -> dict[str, list[str]]:
    """The commands of each page that are on no page before it."""
    earlier: set[str] = set()
    commands: dict[str, list[str]] = {}
    for page in ORDER:
        commands[page] = [each for each in command_lines(page) if each not in earlier]
        earlier |= {*commands[page]}
    return {page: own for page, own in commands.items() if own}


def is_listed(table: dict[str, str], command: str) -> bool:
    """Whether a pattern of a table fits the beginning of a command."""
    return any(re.match(pattern, command) for pattern in table)


HERE = {
    page: [each for each in own if not is_listed(NOT_HERE, each)]
    for page, own in commands_by_page().items()
}
SHORT = {page: [each for each in own if not is_listed(LONG, each)] for page, own in HERE.items()}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands of the pages name: models, scripts and inputs."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "train.py").write_text(TRAIN)
    (folder / "train.sh").write_text("python train.py\n")
    (folder / "prepare.py").write_text("print(input())\n")
    (folder / "raw.txt").write_text("1\n")
    (folder / "ids.txt").write_text("1 2 3\n4 5\n")
    np.save(folder / "x.npy", np.eye(2, 4, dtype=np.float32))
    np.save(folder / "ids.npy", np.arange(9).reshape(9, 1))
    for name in MODELS.values():
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.scope_guard(fluid.Scope()),
        ):
            save_model(name, folder)
    picture = pytest.importorskip("PIL.Image").new("RGB", (40, 30), "red")
    (folder / "photos").mkdir()
    picture.save(folder / "photos" / "red.png")
    shutil.copytree(folder / "numbers", folder / "out" / "demo" / "model")
    shutil.copy(folder / "x.npy", folder / "out" / "demo" / "digits.npy")
    return folder


def save_model(name: str, folder: Path) -> None:
    """Save a model of sentences, of pictures or of rows of numbers, and a program that trains it."""
    if name == "sentences":
        feed = fluid.data("words", [None, 1], "int64", lod_level=1)
        rows = fluid.layers.sequence_pool(fluid.embedding(feed, [10, 4]), "sum")
    elif name == "pictures":
        feed = fluid.data("img", [None, 3, 224, 224])
        rows = fluid.layers.pool2d(feed, global_pooling=True)
    else:
        feed = rows = fluid.data("x", [None, 4])
    scores = fluid.layers.fc(rows, 3, act="softmax")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder / name), [feed.name], [scores], exe)
    if name == "numbers":
        x = np.load(folder / "x.npy")
        (result,) = exe.run(feed={"x": x}, fetch_list=[scores])
        np.savez(folder / "feeds.npz", x=x)
        np.savez(folder / "theirs.npz", **{scores.name: result})
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(scores))
        for file in ("train.pdmodel", "lenet.pdmodel"):
            (folder / file).write_bytes(fluid.default_main_program().desc.serialize_to_string())


@pytest.fixture
def workspace(examples: Path, folder: Path) -> Path:
    """The current folder, with what commands of the pages name."""
    shutil.copytree(examples, folder, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("page", [page for page, own in SHORT.items() if own])
def test_commands_of_a_page_run(
    page: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in SHORT[page]:
        expect_success(command, workspace, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in HERE if HERE[page] != SHORT[page]])
def test_long_commands_of_a_page_run_too(
    page: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in HERE[page]:
        expect_success(command, workspace, capsys)


def expect_success(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command with the model that it can be fed with; its exit code is 0."""
    model = next(MODELS[feed] for feed in MODELS if feed in command)
    code, output = outcome(re.sub(r"\b(MODEL_DIR|DIR)\b", model, command), folder, capsys)
    assert code == 0, (command, output)


def outcome(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command in this process if it is one of ours that starts no script, else in bash.

    Returns the exit code and what was printed.
    """
    words = [] if re.search(r"[|<>&$*]|^\w+=", command) else shlex.split(command)
    match words:
        case ["fluid", name, *_] if name not in STARTS_SCRIPTS:
            run = partial(main, words[1:])
        case ["python", "-m", "compiler", *_]:
            run = partial(compiler_main, words[3:])
        case _:
            done = in_bash(command, folder)
            return done.returncode, done.stdout
    capsys.readouterr()
    code = run()
    out, err = capsys.readouterr()
    return code, out + err


def in_bash(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a page in bash, as a user who has installed the package."""
    environment = {"PYTHONPATH": str(ROOT), "EXECUTABLE": sys.executable, "LC_ALL": "C.UTF-8"}
    programs = """
python() { "$EXECUTABLE" "$@"; }
fluid() { "$EXECUTABLE" -m fluid "$@"; }
torchrun() { "$EXECUTABLE" -m torch.distributed.run "$@"; }
"""
    return subprocess.run(
        ["bash", "-c", programs + command], cwd=folder, env=os.environ | environment | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300,
    )  # fmt: skip


def test_commands_that_need_other_machines_have_arguments_of_ours() -> None:
    commands = [each for own in commands_by_page().values() for each in own]
    for command in commands:
        words = command.split()
        if is_listed(NOT_HERE, command) and words[0] == "fluid":
            assert words[1] in COMMANDS
            parser(words[1]).parse_args(words[1:])


@pytest.mark.parametrize("page", SHOWN)
def test_commands_print_what_the_page_shows(
    page: str, folder: Path, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in python_of(page):
        exec(compile(source, page, "exec"), {})
    for block in blocks_of(page):
        if block.language == "ir":
            (folder / "small.ir").write_text(block.text, encoding="utf-8")
    console = "".join(block.text for block in blocks_of(page) if block.language == "console")
    for text in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, wanted = text.partition("\n")
        _, output = outcome(command, folder, capsys)
        assert OutputChecker().check_output(wanted, output, ELLIPSIS), f"{text}\n{output}"


# ---- jobs --------------------------------------------------------------------------------------

FLEET = "docs/fleet.md"
ROLES = """
import fleet
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

loss, exe = network(), fluid.Executor(fluid.CPUPlace())
"""
AFTERWARDS = """
if algorithm.is_server():
    algorithm.init_server()
    algorithm.run_server()
else:
    algorithm.init_worker()
    exe.run(algorithm.startup_program)
    exe.run(algorithm.main_program, feed=batch, fetch_list=[loss])
    algorithm.stop_worker()
"""


@pytest.mark.slow  # several processes, most of which import torch
@pytest.mark.parametrize(
    ("command", "page", "index", "before", "after"),
    [
        ("launch_ps --worker_num 2 --server_num 2", "docs/parameter_servers.md", 0, "", ""),
        ("launch_ps --worker_num 2 --server_num 2", FLEET, 0, NETWORK, ""),
        ("launch --nproc_per_node 2", FLEET, 1, NETWORK + ROLES, ""),
        ("launch_ps --worker_num 2 --server_num 2", FLEET, 2, NETWORK + ROLES, AFTERWARDS),
    ],
)
def test_script_of_a_job_ends(
    command: str, page: str, index: int, before: str, after: str, folder: Path
) -> None:
    (folder / "train.py").write_text(before + python_of(page)[index] + after, encoding="utf-8")
    done = in_bash(f"fluid {command} train.py", folder)
    assert done.returncode == 0, done.stdout
