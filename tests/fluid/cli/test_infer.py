"""`fluid infer`: its inputs, its output and its errors."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.model_format.program_desc import dump_program, load_program
from compiler.ir.program import Program
from fluid.cli import main as cli
from fluid.cli.values.arrays import read_arrays

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "inference"
LENET, RESNET = GOLDEN / "lenet_bn__separate", GOLDEN / "resnet_cifar8__separate"
LINE, TAGGER = GOLDEN / "fit_a_line__separate", GOLDEN / "tagger_gru_crf__separate"


def recorded(case: str) -> dict[str, np.ndarray]:
    """What a model was fed when it was recorded, and what came out, by name."""
    with np.load(GOLDEN / f"{case}__io.npz") as file:
        return {name.removeprefix("in."): file[name] for name in file.files}


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Run the command line, expect an exit code without complaints, return what it printed."""
    actual = cli.main(["infer", *map(str, arguments)])
    printed = capsys.readouterr()
    assert (actual, printed.err) == (code, "")
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect exit code 2, return the message."""
    assert cli.main(["infer", *map(str, arguments)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fluid infer: ")
    return message


def misused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of the argument parser."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["infer", str(LINE), *map(str, arguments)])
    assert stopped.value.code == 2
    return capsys.readouterr().err


# ---- describe ----


def test_a_model_is_described(capsys):
    shown = run(capsys, TAGGER, "--describe")
    assert f"{TAGGER / '__model__'}, parameters in a file each: 12 ops" in shown
    assert "feed   words " in shown
    assert "int64 [-1, 1], 1 level of sequences" in shown
    assert "gru × 2" in shown
    assert "12 parameters with 698 numbers, 2.727 KiB" in shown
    assert "crfw" in shown
    assert "all ops are supported" in shown
    assert f"fluid infer {TAGGER / '__model__'} --input words=sequences.txt" in shown


def test_feeds_that_take_images_report_it(capsys):
    line = next(x for x in run(capsys, LENET, "--describe").splitlines() if "  img " in x)
    assert line.endswith("float32 [-1, 1, 16, 16]  accepts images")


def test_nothing_but_the_program_is_needed_to_describe(capsys, tmp_path):
    shutil.copy(LENET / "__model__", tmp_path)
    shown = run(capsys, tmp_path, "--describe")
    assert f"files that are missing in {tmp_path}: conv2d_0.b_0, " in shown
    assert " and 5 more" in shown


def with_ops(folder: Path, *ops: tuple[str, dict[str, Any], dict[str, Any]]) -> Path:
    """A copy of fit_a_line with more ops at its end."""
    shutil.copytree(LINE, folder)
    program = load_program((LINE / "__model__").read_bytes(), "", factory=Program)
    for kind, slots, attrs in ops:
        program.blocks[0].add_op(kind, slots, {}, attrs)
    (folder / "__model__").write_bytes(dump_program(program))
    return folder


def test_infer_names_unknown_ops(capsys, tmp_path):
    unknown = ("no_such_op", {"X": ["x"]}, {})
    shown = run(capsys, with_ops(tmp_path / "m", unknown, unknown), "--describe", code=1)
    assert "unsupported: 2 ops" in shown
    assert 'no_such_op × 2: Operator "no_such_op" has not been registered.' in shown
    assert "block 0, op 5: () = no_such_op(X=x)" in shown
    assert "run it:" not in shown
    x = tmp_path / "x.npy"
    np.save(x, recorded("fit_a_line")["x"])
    assert "no_such_op" in refused(capsys, tmp_path / "m", "--input", x)


def test_infer_names_unknown_attributes_and_slots(capsys, tmp_path):
    odd = ("relu", {"X": ["x"]}, {"slope": 1.0})
    bare = ("mul", {"X": ["x"]}, {})
    shown = run(capsys, with_ops(tmp_path / "m", odd, bare), "--describe", code=1)
    assert "unsupported: 2 ops" in shown
    assert "mul × 1: Input Y not found" in shown
    assert "relu × 1: " in shown


@pytest.mark.parametrize("path", [LENET, LENET / "__model__"])
def test_a_folder_or_a_file(capsys, path):
    assert "13 ops" in run(capsys, path, "--describe")


def test_models_of_later_releases_by_folder_file_or_name(capsys, tmp_path):
    folder = GOLDEN / "lenet_bn__combined"
    shutil.copy(folder / "model", tmp_path / "inference.pdmodel")
    shutil.copy(folder / "params", tmp_path / "inference.pdiparams")
    np.savez(tmp_path / "feeds.npz", **{n: recorded("lenet_bn")[n] for n in ("img", "label")})
    for path in (tmp_path, tmp_path / "inference.pdmodel", tmp_path / "inference"):
        assert "all in inference.pdiparams: 13 ops" in run(capsys, path, "--describe")
        assert "fetch" in run(capsys, path, "--input", tmp_path / "feeds.npz")
    (tmp_path / "inference.pdiparams").unlink()
    shown = run(capsys, tmp_path / "inference", "--describe")
    assert "all in inference.pdiparams: 13 ops" in shown
    assert f"files that are missing in {tmp_path}: inference.pdiparams\n" in shown


@pytest.mark.usefixtures("fresh_programs")
def test_a_program_that_was_not_saved_for_inference(capsys, tmp_path):
    x = fluid.data("x", [None, 2], "float32")
    fluid.layers.fc(x, 3)
    (tmp_path / "__model__").write_bytes(dump_program(fluid.default_main_program()))
    shown = run(capsys, tmp_path, "--describe")
    assert "feed   none: the program was not saved for inference" in shown


@pytest.mark.parametrize("kept", [0, 10, 300])
def test_a_program_that_is_cut_is_no_description(capsys, tmp_path, kept):
    (tmp_path / "__model__").write_bytes((LENET / "__model__").read_bytes()[:kept])
    assert str(tmp_path / "__model__") in refused(capsys, tmp_path, "--describe")


# ---- numbers in text ----


def rows(array: np.ndarray, between: str = " ") -> str:
    return "\n".join(between.join(map(repr, row)) for row in array.tolist())


X, PRICES = recorded("fit_a_line")["x"], recorded("fit_a_line")["out"]
WORDS, TAGS = recorded("tagger_gru_crf")["words"], recorded("tagger_gru_crf")["out"]
LENGTHS = recorded("tagger_gru_crf")["lod:in.words"].tolist()


def result(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: object) -> Any:
    """The arrays that a run writes."""
    output = folder / "out.npz"
    run(capsys, *arguments, "--output", output)
    actual = read_arrays(output)
    assert isinstance(actual, dict)
    return actual


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_two_bytes_give_nearly_the_same(capsys, tmp_path, dtype):
    inputs = tmp_path / "x.npz"
    kept = recorded("lenet_bn")
    np.savez(inputs, **{name: kept[name] for name in ("img", "label")})
    files = [tmp_path / "wide.npz", tmp_path / "narrow.npz"]
    for file, more in zip(files, ([], ["--dtype", dtype]), strict=True):
        run(capsys, LENET, "--input", inputs, "--output", file, *more)
    wide, narrow = (next(iter(read_arrays(file).values())) for file in files)
    assert not np.array_equal(wide, narrow)
    np.testing.assert_allclose(narrow, wide, atol=0.02 * np.abs(wide).max())


@pytest.mark.parametrize("between", [" ", ",", "\t", ", "])
def test_a_line_is_a_row(capsys, tmp_path, between):
    text = tmp_path / "x.csv"
    text.write_text(f"# prices\n{rows(X, between)}\n")
    (actual,) = result(capsys, tmp_path, LINE, "--input", text).values()
    np.testing.assert_allclose(actual, PRICES, rtol=1e-5)


def test_numbers_on_the_command_line_and_from_standard_input(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(rows(X)))
    written = [f"x={rows(X).replace(chr(10), '; ')}", "-"]
    for given in written:
        (actual,) = result(capsys, tmp_path, LINE, "--input", given).values()
        np.testing.assert_allclose(actual, PRICES, rtol=1e-5)


def test_a_row_of_many_axes(capsys, tmp_path):
    known = recorded("lenet_bn")
    image = tmp_path / "img.txt"
    for shape in ((len(known["img"]), -1), (-1, 16)):
        image.write_text(rows(known["img"].reshape(shape)))
        labels = f"label={'; '.join(map(str, known['label'].reshape(-1)))}"
        (actual,) = result(
            capsys, tmp_path, LENET, "--input", f"img={image}", "--input", labels
        ).values()
        np.testing.assert_allclose(actual, known["out"], rtol=1e-4, atol=1e-5)


def test_a_line_of_ids_is_a_sequence(capsys, tmp_path):
    text, ends = tmp_path / "ids.txt", np.cumsum(LENGTHS)[:-1]
    parts = np.split(WORDS.reshape(-1), ends)
    text.write_text("\n".join(" ".join(map(str, part)) for part in parts))
    actual = result(capsys, tmp_path, TAGGER, "--input", text)
    (name, tags), (level, offsets) = actual.items()
    np.testing.assert_array_equal(tags, TAGS)
    assert level == f"{name}@LOD0"
    assert offsets.tolist() == [0, *np.cumsum(LENGTHS)]


def test_lengths_of_sequences(capsys, tmp_path):
    np.save(tmp_path / "ids.npy", WORDS)
    lengths = ",".join(map(str, LENGTHS))
    for lod in (lengths, f"words={lengths}"):
        actual = result(capsys, tmp_path, TAGGER, "--input", tmp_path / "ids.npy", "--lod", lod)
        np.testing.assert_array_equal(next(iter(actual.values())), TAGS)


def test_offsets_beside_an_array(capsys, tmp_path):
    offsets = np.array([0, *np.cumsum(LENGTHS)])
    np.savez(tmp_path / "feed.npz", **{"words": WORDS, "words@LOD0": offsets})
    for given in (tmp_path / "feed.npz", f"words={tmp_path / 'feed.npz'}"):
        actual = result(capsys, tmp_path, TAGGER, "--input", given)
        np.testing.assert_array_equal(next(iter(actual.values())), TAGS)


def test_results_in_sequences_need_an_archive(capsys, tmp_path):
    output = tmp_path / "tags.npy"
    message = refused(capsys, TAGGER, "--input", "1 2 3; 4 5", "--output", output)
    assert "holds one array, but there are 2: write a .npz" in message
    assert not output.exists()


def test_results_in_sequences_are_shown_so(capsys):
    shown = run(capsys, TAGGER, "--input", "1 2 3; 4 5")
    assert "feed   words " in shown
    assert "int64 [5, 1] in 2 sequences" in shown
    assert "tmp_20, sequence 1: " in shown
    twelve = run(capsys, TAGGER, "--input", ";".join(["1 2"] * 12))
    assert "… and 2 more" in twelve


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (LINE, "1 2 3", "3 numbers make no row of feed 'x', which is float32 [-1, 13]"),
        (LINE, ";".join(["1 " * 12] * 13), "line 1: 12 numbers make no row"),
        (LINE, "1 " * 13 + "; 1 2", "line 2: 2 numbers make no row"),
        (LINE, "1 " * 12 + "e", "is not all float32, as 'x' is"),
        (TAGGER, "1 2; 3 4.5", "line 2: '3 4.5' is not all int64, as 'words' is"),
        (TAGGER, "99999999999999999999", "too large for int64"),
        (TAGGER, ";", "holds no numbers"),
    ],
)
def test_numbers_that_do_not_fit(capsys, model, given, message):
    assert message in refused(capsys, model, "--input", given)


def test_infer_rejects_invalid_text(capsys, tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert "is neither an array" in refused(capsys, LINE, "--input", path)


def test_sequences_without_lengths(capsys, tmp_path):
    np.save(tmp_path / "ids.npy", WORDS)
    message = refused(capsys, TAGGER, "--input", tmp_path / "ids.npy")
    assert "feed 'words' is sequences: pass their lengths with --lod words=3,2,…" in message


@pytest.mark.parametrize(
    ("lod", "message"), [("1,2", "do not fit"), ("word=3", "did you mean 'words'?")]
)
def test_lengths_that_do_not_fit(capsys, tmp_path, lod, message):
    np.save(tmp_path / "ids.npy", WORDS)
    inputs = ("--input", tmp_path / "ids.npy", "--lod", lod)
    assert message in refused(capsys, TAGGER, *inputs)


def test_offsets_without_their_array_or_of_other_numbers(capsys, tmp_path):
    np.savez(tmp_path / "feed.npz", **{"words@LOD0": np.array([0, 2])})
    assert "but not 'words' itself" in refused(capsys, TAGGER, "--input", tmp_path / "feed.npz")
    np.savez(tmp_path / "feed.npz", **{"words": WORDS, "words@LOD0": np.array([0.0, 2.0])})
    assert "must be LoD offsets" in refused(capsys, TAGGER, "--input", tmp_path / "feed.npz")


# ---- what comes out ----


def test_infer_shows_all_rows_on_request(capsys, tmp_path):
    feed = {name: array for name, array in recorded("lenet_bn").items() if name != "out"}
    np.savez(tmp_path / "feed.npz", **feed)
    shown = run(capsys, LENET, "--input", tmp_path / "feed.npz", "--show", "all")
    lines = [line for line in shown.splitlines() if ", row " in line]
    assert len(lines) == len(feed["img"])
    assert all(len(line.split(": ")[1].split()) == 10 for line in lines)


def test_time_of_so_many_runs(capsys):
    shown = run(capsys, LINE, "--input", rows(X).replace("\n", ";"), "--repeat", "7")
    assert "7 more runs: " in shown
    assert "(median), the best " in shown
    assert "nine of ten below" in shown


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--show", "none"), "is not a whole number from 1 on, or all"),
        (("--show", "0"), "is not a whole number"),
        (("--repeat", "0"), "is not a whole number from 1 on"),
        (("--size", "0x3"), "is not HEIGHTxWIDTH"),
        (("--size", "a"), "is not HEIGHTxWIDTH"),
        (("--mean", "a,b"), "is not a number or one number per channel"),
        (("--lod", "words=x"), "is not [NAME=]LENGTHS"),
        (("--resize-short", "0"), "is not a whole number from 1 on"),
        (("--std", "1,0,1"), "must not contain 0"),
        (("--scale", "0"), "must not contain 0"),
        (("--tolerance", "-1"), "is not a number >= 0"),
    ],
)
def test_options_that_make_no_sense(capsys, option, message):
    assert message in misused(capsys, *option)


# ---- check ----


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def against(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "theirs.npz", **arrays)
    return folder / "theirs.npz"


def test_results_that_agree(capsys, feed, tmp_path):
    theirs = against(tmp_path, out=PRICES)
    shown = run(capsys, LINE, "--input", feed, "--check", theirs)
    assert "largest difference  relative" in shown
    assert shown.rstrip().endswith("agrees")


def test_results_of_one_array(capsys, feed, tmp_path):
    np.save(tmp_path / "theirs.npy", PRICES)
    assert "agrees" in run(capsys, LINE, "--input", feed, "--check", tmp_path / "theirs.npy")


def test_results_that_do_not(capsys, feed, tmp_path):
    changed = PRICES.copy()
    changed[1] += 0.01 * np.abs(PRICES).max()
    inputs = (LINE, "--input", feed, "--check", against(tmp_path, out=changed))
    shown = run(capsys, *inputs, code=1)
    assert "1 of 3 beyond 0.0001" in shown
    assert "agrees" in run(capsys, *inputs, "--tolerance", "0.02")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (PRICES[:2], "shapes differ: got [3, 1], expected [2, 1]"),
        (PRICES.astype("int64"), "dtypes differ: got float32, expected int64"),
        (np.full_like(PRICES, np.nan), "3 of 3 beyond"),
    ],
)
def test_results_of_another_kind(capsys, feed, tmp_path, array, message):
    inputs = (LINE, "--input", feed, "--check", against(tmp_path, out=array))
    assert message in run(capsys, *inputs, code=1)


def test_whole_numbers_and_offsets_must_be_equal(capsys, tmp_path):
    np.save(tmp_path / "ids.npy", WORDS)
    inputs = (TAGGER, "--input", tmp_path / "ids.npy", "--lod", ",".join(map(str, LENGTHS)))
    changed = TAGS.copy()
    changed[3] += 1
    shown = run(
        capsys, *inputs, "--check", against(tmp_path, tags=changed), "--tolerance", 9, code=1
    )
    assert f"1 of {len(TAGS)} differ" in shown
    assert "agrees" in run(capsys, *inputs, "--check", against(tmp_path, tags=TAGS))
    actual = result(capsys, tmp_path, *inputs)
    offsets = next(name for name in actual if "@LOD" in name)
    other = {**actual, offsets: actual[offsets] + 1}
    assert "differ" in run(capsys, *inputs, "--check", against(tmp_path, **other), code=1)


def test_infer_check_errors(capsys, feed, tmp_path):
    theirs = against(tmp_path, a=PRICES, b=PRICES)
    message = refused(capsys, LINE, "--input", feed, "--check", theirs)
    assert "is missing; there is a, b" in message
    missing = tmp_path / "none.npz"
    assert str(missing) in refused(capsys, LINE, "--input", feed, "--check", missing)


# ---- stopping ----


def test_ctrl_c_leaves_one_line_and_no_half_written_file(feed, tmp_path):
    output = tmp_path / "out.npz"
    command = ["infer", str(LINE), "--input", str(feed), "--repeat", str(10**9)]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "fluid", *command, "--output", str(output)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        for line in child.stdout:
            if line.startswith("loaded in"):
                break
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        complaint = child.stderr.read()
    assert child.returncode == cli.INTERRUPTED
    assert complaint == "\nfluid infer: stopped; nothing was left half-written\n"
    assert not output.exists()
