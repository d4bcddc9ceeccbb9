"""`fluid demo`: what it promises, what it writes, the same by the same seed, and Ctrl-C."""

import hashlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.module import Module
from compiler.ir.text.printer import parse
from compiler.support.text_files import write_text
from examples.make_digits import make_digits
from fluid.cli import main as cli
from fluid.cli.model import CommandError, load_model
from fluid.demo import folder as demo_folder
from fluid.demo import story
from fluid.demo.digits import DIGITS, SHIFT, TRAINED, batches, gallery, load_digits, moved
from fluid.demo.progress import CLEAR, Progress
from fluid.demo.story import LIMIT
from tests.support.full_disk import files_of_at_most

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "README.txt", "report.html", "inference.html", "machine.html", "train", "infer", "model",
    "digits.npy",
}  # fmt: skip


def start(folder: Path, *arguments: str, seed: str = "0") -> subprocess.Popen[str]:
    """The demo in a process of its own, below `folder`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    return subprocess.Popen(
        [sys.executable, "-m", "fluid", "demo", *arguments], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A demo as it is run by default: its folder, what it printed, its progress."""
    folder = tmp_path_factory.mktemp("demo")
    with start(folder) as process:
        printed, progress = process.communicate(timeout=300)
    assert process.returncode == 0, progress
    return folder / "out" / "demo", printed, progress


# ---- what it promises ----


def test_files_that_examples_of_commands_name_are_written(told):
    names: set[str] = set()
    for command in cli.COMMANDS:
        (subparsers,) = (a for a in cli.parser(command)._actions if a.choices and a.dest == "name")
        names.update(re.findall(r"out/demo/\S+", subparsers.choices[command].format_help()))
    assert {"out/demo/model", "out/demo/digits.npy", "out/demo/train/00-start.ir"} <= names
    assert [name for name in names if not (told[0].parents[1] / name).exists()] == []


def test_digits_are_learnt(told):
    shares = [float(share) for share in re.findall(r"held-out accuracy ([\d.]+)%", told[1])]
    assert len(shares) == 2
    assert min(shares) >= 97


def test_folding_moves_no_prediction(told):
    (moved_by,) = re.findall(r"most (\S+) by folding batch norms \(limit 0.0001\)", told[1])
    assert float(moved_by) <= LIMIT
    (moved_by,) = re.findall(r"at most (\S+) by saving and loading", told[1])
    assert float(moved_by) <= LIMIT / 10


def test_folding_that_moves_predictions_is_a_failure(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fluid.demo.story.LIMIT", -1.0)
    assert cli.main(["demo", "--epochs", "1", "--out", str(tmp_path)]) == 1
    assert "by folding batch norms (MORE THAN -1)" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()


def test_passes_are_shown_for_training_and_inference(told):
    tables = told[1].split("fuse_batch_norm  ")[1:]
    assert len(tables) == 2
    assert "not applied to batch_norm" in tables[0]
    assert "normalises with the statistics of the batch (training)" in " ".join(told[1].split())
    assert re.search(r"^\s*\d+\.\d\s+13 → 11", tables[1])
    assert all(name in told[1] for name in ("fold_constants", "reuse_memory", "insert_deletes"))


def test_machine_code_computes_the_same(told):
    shown = told[1].split("Machine code  ")[1]
    assert re.search(r"conv2d\+elementwise_add\+relu .* \d+\.\d\d [µm]s ", shown)
    (moved_by,) = re.findall(r"probabilities differ by at most (\S+)", shown)
    assert float(moved_by) <= LIMIT / 10
    page = (told[0] / "machine.html").read_text(encoding="utf-8")
    assert "vfmadd" in page


def test_memory_shrinks(told):
    lines = [line for line in told[1].splitlines() if re.search(r"MiB.*MiB.*MiB +1\.0\d\d$", line)]
    sizes = [[float(number) for number in re.findall(r"([\d.]+) MiB", line)] for line in lines]
    assert len(sizes) == 3
    for temporaries, largest, arena in sizes:
        assert largest <= arena <= 1.05 * largest < temporaries
    assert sizes[2][2] <= sizes[1][2]


def test_progress_is_a_line_an_epoch_beside_the_story(told):
    lines = told[2].splitlines()
    assert len(lines) == 15
    form = r"  epoch +\d+/15  step 30/30  loss \d\.\d{4}  accuracy +\d+\.\d%  [\d,]+ images/s"
    assert all(re.fullmatch(form, line) for line in lines)


def test_story_fits_a_terminal(told):
    assert max(map(len, told[1].splitlines())) <= 100


def test_it_reports_where_to_look(told):
    folder, printed, _ = told
    paths = re.findall(r"out/demo/[\w./]+", printed.split("Where to look next")[1])
    assert len(paths) >= 5
    assert all((folder.parent.parent / path).exists() for path in paths)


# ---- what it writes ----


def test_files(told):
    folder = told[0]
    assert {path.name for path in folder.iterdir()} == FILES
    for name in ("train", "infer"):
        texts = sorted(path.name for path in (folder / name).glob("*.ir"))
        assert texts[0] == "00-start.ir"
        assert texts[-1].endswith("-insert_deletes.ir")
        parse((folder / name / texts[-1]).read_text(encoding="utf-8"))
        Module.load(folder / name / "main.py")
        assert (folder / name / "main.plan").is_file()


@pytest.mark.parametrize("name", ["report.html", "inference.html"])
def test_reports(told, name):
    page = (told[0] / name).read_text(encoding="utf-8")
    assert all(text in page for text in ("fuse_batch_norm", "largest live set", "def bind("))


def test_the_saved_model_is_fed_by_the_saved_digits(told, capsys):
    folder = told[0]
    code = cli.main(["infer", str(folder / "model"), "--input", str(folder / "digits.npy")])
    assert code == 0
    _, held_out = load_digits()
    (row,) = re.findall(r"save_infer_model/scale_0.tmp_0: ([\d ]+)", capsys.readouterr().out)
    assert np.sum(np.array(row.split(), int) == held_out.labels[:10, 0]) >= 9


def test_the_saved_model_can_be_inspected(told, capsys):
    assert cli.main(["inspect", str(told[0] / "model")]) == 0
    assert "14 → 11" in capsys.readouterr().out
    assert len(load_model(told[0] / "model").params) == 14


def test_the_generated_module_runs_alone(told):
    script = told[0] / "infer" / "main.py"
    shown = subprocess.check_output([sys.executable, script, "N=3"], text=True)
    assert "save_infer_model/scale_0.tmp_0: float32[3, 10]" in shown


def digests(folder: Path) -> dict[str, str]:
    """A digest for each file but those that have times in them."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.suffix not in (".html", ".jsonl")]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in kept
    }


def test_one_seed_returns_one_result(tmp_path):
    results = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        with start(tmp_path, "--epochs", "1", "--out", str(folder), seed=hash_seed) as process:
            process.communicate(timeout=120)
        assert process.returncode == 0
        results.append(digests(folder))
    assert results[0] == results[1]
    assert len(results[0]) > 30


# ---- Ctrl-C and folders ----


def test_ctrl_c_leaves_nothing(tmp_path):
    with start(tmp_path, "--epochs", "1000") as process:
        assert "epoch" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    last = message.splitlines()[-1]
    assert last == "fluid demo: stopped; nothing was left half-written"
    assert "Traceback" not in message
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_stays_when_a_demo_fails(tmp_path):
    write_demo(tmp_path, "old")
    with pytest.raises(KeyboardInterrupt), demo_folder.replacing(tmp_path) as folder:
        (folder / "report.html").write_text("new")
        raise KeyboardInterrupt
    assert (tmp_path / "report.html").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"README.txt", "report.html", "train"}


def write_demo(place: Path, text: str) -> None:
    """What a demo writes, but less."""
    with demo_folder.replacing(place) as folder:
        (folder / "report.html").write_text(text)
        (folder / "train").mkdir()
        (folder / "train" / f"{text}.ir").write_text(text)


def test_the_next_demo_replaces_the_last_and_leaves_other_files(tmp_path):
    write_demo(tmp_path, "old")
    (tmp_path / "notes.txt").write_text("mine")
    write_demo(tmp_path, "new")
    assert (tmp_path / "report.html").read_text() == "new"
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["new.ir"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_of_others_is_left_alone(tmp_path, capsys):
    (tmp_path / "model").write_text("mine")
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    message = f"fluid demo: {tmp_path} is not empty and holds no demo: choose another with --out\n"
    assert capsys.readouterr().err == message
    assert (tmp_path / "model").read_text() == "mine"


def test_a_full_disk_names_the_file_as_it_would_be_in_the_end(tmp_path):
    with (
        pytest.raises(OSError, match="File too large") as caught,
        demo_folder.replacing(tmp_path / "out") as folder,
        files_of_at_most(100),
    ):
        write_text(folder / "report.html", "long" * 100)
    assert caught.value.filename == str(tmp_path / "out" / "report.html")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ("{here}/.venv/bin/fluid", ".venv/bin/fluid"),
        ("/opt/fluid/bin/fluid", "/opt/fluid/bin/fluid"),
        ("/opt/fluid/__main__.py", "fluid"),
    ],
)
def test_commands_are_shown_as_this_shell_finds_them(monkeypatch, started, shown):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [started.replace("{here}", str(Path.cwd()))])
    assert story.command() == shown


def test_a_demo_that_is_stopped_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt), demo_folder.replacing(tmp_path / "out" / "demo"):
        raise KeyboardInterrupt
    assert not any(tmp_path.iterdir())


def test_demo_runs_after_one_was_killed(tmp_path):
    (tmp_path / ".writing-abc").mkdir()
    write_demo(tmp_path, "new")
    assert (tmp_path / "report.html").is_file()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CommandError, match="is a file"):
        demo_folder.expect_ours(tmp_path / "file")


# ---- the digits ----


def test_the_packaged_digits_are_the_published_ones():
    from sklearn.datasets import load_digits as load_from_scikit_learn  # a second to import

    published = load_from_scikit_learn()
    with np.load(DIGITS) as file:
        np.testing.assert_array_equal(file["images"], published.images)
        np.testing.assert_array_equal(file["labels"], published.target)
        assert (file["images"].dtype, file["labels"].dtype) == (np.uint8, np.uint8)


def test_their_file_is_written_the_same_again(tmp_path):
    make_digits(tmp_path / "digits.npz")
    again, here = np.load(tmp_path / "digits.npz"), np.load(DIGITS)
    assert again.files == here.files
    assert all(np.array_equal(again[name], here[name]) for name in here.files)


def test_digits_are_split_and_doubled():
    training, held_out = load_digits()
    assert (len(training), len(held_out)) == (TRAINED, 297)
    assert training.pixels.shape == (TRAINED, 1, 16, 16)
    assert (training.pixels.dtype, training.labels.dtype) == (np.float32, np.int64)
    assert (training.pixels.min(), training.pixels.max()) == (0, 1)
    even, odd = (training.pixels[:, :, i::2, i::2] for i in (0, 1))
    np.testing.assert_array_equal(even, odd)


def test_moving_keeps_each_digit_whole_within_a_frame():
    pixels = np.zeros((20, 1, 16, 16), np.float32)
    pixels[:, 0, 4:12, 4:12] = np.arange(1, 65).reshape(8, 8)
    result = moved(pixels, np.random.default_rng(0))
    assert result.shape == pixels.shape
    places = set()
    for picture in result[:, 0]:
        row, column = np.argwhere(picture)[0]
        assert max(abs(row - 4), abs(column - 4)) <= SHIFT
        whole = picture[row : row + 8, column : column + 8]
        np.testing.assert_array_equal(whole, pixels[0, 0, 4:12, 4:12])
        places.add((int(row), int(column)))
    assert len(places) > 5


def test_batches_hold_every_digit_once():
    training, _ = load_digits()
    labels = np.concatenate([b.labels for b in batches(training, 50, np.random.default_rng(0))])
    assert sorted(labels[:, 0]) == sorted(training.labels[:, 0])


def test_the_gallery_ends_with_a_mistake():
    _, held_out = load_digits()
    predictions = np.eye(10)[held_out.labels[:, 0]]
    assert "no" not in gallery(held_out, predictions)
    wrong = int(held_out.labels[9, 0] + 1) % 10
    predictions[9] = np.eye(10)[wrong]
    lines = gallery(held_out, predictions).splitlines()
    assert len(lines) == 9
    assert lines[-1].endswith(f"{wrong}, 100% sure: no, {held_out.labels[9, 0]}")


# ---- progress ----


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_is_taken_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("fluid.demo.progress.EVERY", 0.0)
    stream = Terminal()
    with Progress(epochs=2, steps=2, batch=10, stream=stream) as progress:
        for loss in (4.0, 2.0, 1.0, 0.5):
            progress.step(loss, 0.5)
    shown = stream.getvalue().split(CLEAR)
    assert "\n" not in stream.getvalue()
    assert shown[2].startswith("  epoch  1/2  step  2/2  loss 3.0000  accuracy  50.0%")
    assert shown[-1] == ""
    assert progress.summary().endswith("mean loss 3.000 → 0.750")


def test_a_narrow_terminal_sees_lines_that_it_need_not_wrap(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("fluid.demo.progress.EVERY", 0.0)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((40, 24)))
    monkeypatch.setattr(Terminal, "fileno", lambda _: 2, raising=False)
    stream = Terminal()
    with Progress(epochs=1, steps=2, batch=10, stream=stream) as progress:
        progress.step(4.0, 0.5)
        progress.step(2.0, 0.5)
    lines = stream.getvalue().split(CLEAR)
    assert lines[1] == "  epoch  1/1  step  1/2  loss 4.0000  …"
    assert max(map(len, lines)) < 40


def test_a_dumb_terminal_sees_a_line_an_epoch(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(epochs=1, steps=1, batch=10, stream=stream) as progress:
        progress.step(4.0, 0.5)
    assert "\033" not in stream.getvalue() and stream.getvalue().count("\n") == 1


def test_a_file_sees_a_line_an_epoch():
    stream = io.StringIO()
    with Progress(epochs=2, steps=2, batch=10, stream=stream) as progress:
        for loss in (4.0, 2.0, 1.0, 0.5):
            progress.step(loss, 0.5)
    lines = stream.getvalue().splitlines()
    assert [line.partition("  accuracy")[0].strip() for line in lines] == [
        "epoch  1/2  step  2/2  loss 3.0000",
        "epoch  2/2  step  2/2  loss 0.7500",
    ]
