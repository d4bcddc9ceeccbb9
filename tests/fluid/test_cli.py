"""The command `fluid`: help, `inspect` and `infer` on models that Paddle 1.8.5 saved, errors."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli
from fluid.cli.bisect import BISECT_EXAMPLES
from fluid.cli.commands.demo import DEMO_EXAMPLES
from fluid.cli.commands.doctor import CACHE_EXAMPLES, DOCTOR_EXAMPLES
from fluid.cli.commands.infer import INFER_EXAMPLES
from fluid.cli.commands.profile import PROFILE_EXAMPLES
from fluid.cli.commands.run import RUN_EXAMPLES
from fluid.cli.commands.selftest import SELFTEST_EXAMPLES
from fluid.cli.commands.shell import SHELL_EXAMPLES
from fluid.cli.differences import COMPARE_EXAMPLES
from fluid.cli.export import EXPORT_EXAMPLES
from fluid.cli.inspect import INSPECT_EXAMPLES, LISTED, size
from fluid.cli.values.arrays import read_arrays
from fluid.cli.values.results import looks_like_probabilities
from tests.support.nets import zoo

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "inference"
LENET = GOLDEN / "lenet_bn__separate"
RESNET = GOLDEN / "resnet_cifar8__combined"
COMBINED = ("--model-filename", "model", "--params-filename", "params")


@pytest.fixture
def recorded(tmp_path: Path) -> dict[str, Path]:
    """Files with what lenet_bn was fed when it was recorded, and what came out, by name."""
    with np.load(GOLDEN / "lenet_bn__io.npz") as file:
        arrays = {name.removeprefix("in."): file[name] for name in file.files}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    feeds = {name: array for name, array in arrays.items() if name != "out"}
    np.savez(tmp_path / "feeds.npz", **feeds)
    return {path.stem: path for path in tmp_path.iterdir()}


@pytest.fixture
def one_feed(tmp_path: Path) -> tuple[Path, Path]:
    """A model with one feed, and a file for it."""
    x = tmp_path / "x.npy"
    with np.load(GOLDEN / "fit_a_line__io.npz") as file:
        np.save(x, file["in.x"])
    return GOLDEN / "fit_a_line__separate", x


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect success, return what it printed."""
    code = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect exit code 2, return the message."""
    assert cli.main([str(argument) for argument in arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"fluid {arguments[0]}: ")
    assert "Traceback" not in message
    return message


# ---- help ----


def test_alone_it_teaches(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr().err
    assert "fluid demo" in shown
    assert "fluid infer out/demo/model --input out/demo/digits.npy" in shown


@pytest.mark.parametrize("command", ["demo", "inspect", "infer", "bisect", "compare", "shell"])
def test_every_command_has_help_with_examples(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"examples:\n  fluid {command}" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_examples_in_help_parse():
    shown = [cli.EXAMPLES, DEMO_EXAMPLES, RUN_EXAMPLES, INSPECT_EXAMPLES, INFER_EXAMPLES]
    shown += [BISECT_EXAMPLES, COMPARE_EXAMPLES, PROFILE_EXAMPLES, SELFTEST_EXAMPLES]
    shown += [DOCTOR_EXAMPLES, CACHE_EXAMPLES, EXPORT_EXAMPLES]
    text = "\n".join([*shown, SHELL_EXAMPLES])
    lines = [line.strip() for line in text.splitlines() if line.startswith("  fluid ")]
    commands = [shlex.split(line.split("   ")[0])[1:] for line in lines]
    assert len(commands) > 30
    names = {cli.parser().parse_args(command).name for command in commands}
    known = {"demo", "inspect", "infer", "run", "launch", "launch_ps", "bisect", "compare"}
    assert names == known | {"profile", "selftest", "shell", "doctor", "cache", "export"}


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("fluid-compiler ")


def test_unknown_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train"])
    assert stopped.value.code == 2
    assert "invalid choice: 'train'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--epochs=0", "--epochs=x", "--seed=-1", "--seed=1.5"])
def test_demo_takes_whole_numbers(capsys, option):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", option])
    assert stopped.value.code == 2
    assert "is not a whole number from" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["N", "N=", "N=x", "N=0", "=3", "N=-1"])
def test_size_is_a_name_and_a_number(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=NUMBER"):
        size(text)


# ---- inspect ----


def test_inspect_shows_contents_passes_and_memory(capsys):
    shown = run(capsys, "inspect", LENET)
    assert "conv2d × 2" in shown
    assert "batch_norm" in shown
    assert "float32 [-1, 1, 16, 16]" in shown
    assert "conv2d_0.w_0" in shown
    assert "fuse_pointwise" in shown
    assert "memory, N = 32" in shown


def test_inspect_reports_what_was_rejected_and_why(capsys):
    shown = run(capsys, "inspect", LENET)
    assert "fuse_batch_norm not applied to batch_norm: its input comes from pool2d" in shown


def test_inspect_counts_memory_at_the_sizes_given(capsys):
    sizes = [run(capsys, "inspect", LENET, "--size", f"N={n}").splitlines()[-1] for n in (1, 9)]
    assert sizes[0].startswith("  memory, N = 1 ")
    assert sizes[1].startswith("  memory, N = 9 ")
    assert sizes[0].split()[4:] != sizes[1].split()[4:]


def test_inspect_folds_the_batch_norms_of_a_combined_model(capsys):
    shown = run(capsys, "inspect", RESNET, *COMBINED)
    assert "not applied" not in shown
    assert "and 12 smaller ones" in shown
    assert shown.count("batch_norm_") + shown.count("conv2d_") + shown.count("fc_") <= LISTED


def test_inspect_writes_a_report_and_every_stage(capsys, tmp_path):
    page, folder = tmp_path / "report.html", tmp_path / "stages"
    shown = run(capsys, "inspect", LENET, "--html", page, "--dump", folder)
    assert str(page) in shown
    assert str(folder) in shown
    text = page.read_text(encoding="utf-8")
    assert "fuse_pointwise" in text
    assert "largest live set" in text
    assert "def bind(" in text
    names = {path.name for path in folder.iterdir()}
    assert {"00-start.ir", "main.plan", "main.py"} <= names


def test_inspect_unknown_size(capsys):
    assert "has no open size 'M'; it has: N" in refused(capsys, "inspect", LENET, "--size", "M=2")


def test_inspect_unwritable_report(capsys, tmp_path):
    page = tmp_path / "none" / "report.html"
    assert refused(capsys, "inspect", LENET, "--html", page).endswith(
        f"{page}: No such file or directory\n"
    )


def test_inspect_leaves_out_what_the_environment_disables(capsys, monkeypatch):
    monkeypatch.setenv("FLUID_DISABLE", "fuse_pointwise")
    shown = run(capsys, "inspect", LENET)
    assert "fuse_pointwise" not in shown
    assert "reuse_memory" in shown


def test_a_setting_that_makes_no_sense(capsys, monkeypatch):
    monkeypatch.setenv("FLUID_CHECK", "9")
    assert "FLUID_CHECK is '9'" in refused(capsys, "inspect", LENET)


# ---- what is no model ----


@pytest.mark.parametrize("command", ["inspect", "infer"])
def test_no_folder(capsys, tmp_path, command):
    assert f"{tmp_path / 'none'} does not exist" in refused(capsys, command, tmp_path / "none")


def test_inspect_takes_a_program_alone(capsys):
    shown = run(capsys, "inspect", LENET / "__model__", "--size", "N=2")
    assert "conv2d × 2" in shown
    assert "feed   img" in shown and "variables of state" in shown


def test_inspect_takes_the_weights_beside_a_program(capsys, tmp_path):
    shutil.copy(RESNET / "model", tmp_path / "x.pdmodel")
    assert "not applied" in run(capsys, "inspect", tmp_path / "x.pdmodel")
    shutil.copy(RESNET / "params", tmp_path / "x.pdiparams")
    shown = run(capsys, "inspect", tmp_path / "x.pdmodel")
    assert "not applied to batch_norm" not in shown and "parameters with" in shown


def test_inspect_fetches_the_loss_of_a_program_that_trains(capsys, tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        line = fluid.layers.fc(fluid.data("x", [None, 4]), 1)
        loss = fluid.layers.mean(fluid.layers.square(line))
        fluid.optimizer.SGD(0.1).minimize(loss)
    path = tmp_path / "train.pdmodel"
    path.write_bytes(main.desc.serialize_to_string())
    shown = run(capsys, "inspect", path, "--html", tmp_path / "page.html")
    assert f"fetch  {loss.name}" in shown and "feed   x" in shown and "sgd × 2" in shown
    assert f"fetch  {line.name}" in run(capsys, "inspect", path, "--fetch", line.name)
    message = refused(capsys, "inspect", path, "--fetch", loss.name + "x")
    assert f"no variable '{loss.name}x' to fetch" in message and loss.name in message
    path.write_bytes(path.read_bytes()[:-40])
    assert "is not a saved program" in refused(capsys, "inspect", path)


def test_inspect_shows_the_kernels_of_another_target(capsys, tmp_path):
    page = tmp_path / "page.html"
    run(capsys, "inspect", GOLDEN / "digits_mlp__separate", "--target", "triton", "--html", page)
    result = json.loads(re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))[1])
    lines = result["code"]["source"].splitlines()
    assert all(stop > first for first, stop in result["code"]["kernels"])
    jitted = [lines[first] for _, first, _ in result["code"]["functions"]]
    assert "@triton.jit" in jitted
    ops = result["stages"][-1].get("kernelCount")
    assert len(result["code"]["kernels"]) == ops


def test_inspect_counts_what_kernels_move_after_each_pass(capsys, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "account.json"
    more = ["--roofline", "h200", "--batch", "16", "--html", page, "--json", file]
    shown = run(capsys, "inspect", LENET, *more)
    assert "roofline h200, N = 16" in shown and "fuse_epilogue" in shown
    data = json.loads(file.read_text(encoding="utf-8"))
    passes = {row["pass"]: row for row in data["passes"]}
    moved = [passes[name]["read"] + passes[name]["written"] for name in ("start", "insert_deletes")]
    assert moved[1] < moved[0] and passes["insert_deletes"]["ideal"] <= moved[1]
    assert passes["insert_deletes"]["launches"] < passes["start"]["launches"]
    printed = run(capsys, "inspect", LENET, *more[:4], "--json", "-")
    assert json.loads(printed) == data
    assert '"cost":{"gpu":"h200"' in page.read_text(encoding="utf-8")
    assert "requires --roofline with the name of a GPU" in refused(
        capsys, "inspect", LENET, "--json", file
    )


def test_inspect_takes_sequences_that_must_match(capsys, tmp_path):
    path = tmp_path / "tagger.pdmodel"
    path.write_bytes(zoo.build(fluid, "tagger_gru_crf").main.desc.serialize_to_string())
    shown = run(capsys, "inspect", path, "--size", "rows=12", "--html", tmp_path / "page.html")
    assert "linear_chain_crf" in shown and "rows = 12" in shown


def test_inspect_takes_what_it_dumped_and_the_passes_that_are_asked_for(capsys, tmp_path):
    run(capsys, "inspect", LENET, "--dump", tmp_path)
    (graph,) = tmp_path.glob("*-eliminate_dead.ir")
    only = run(capsys, "inspect", graph, "--only", "fuse_pointwise")
    assert [
        line.split()[0] for line in only.splitlines() if line.startswith(("  fuse", "  reuse"))
    ] == ["fuse_pointwise"]
    stopped = run(capsys, "inspect", graph, "--stop-after", "schedule")
    assert "  schedule " in stopped and "reuse_memory" not in stopped
    assert "fuse_pointwise" not in run(capsys, "inspect", graph, "--disable", "fuse_pointwise")
    model = graph.with_suffix(".__model__")
    assert "fuse_pointwise" in run(capsys, "inspect", model)
    message = refused(capsys, "inspect", graph, "--only", "fuse_pointwse")
    assert "unknown pass 'fuse_pointwse'" in message and "fuse_pointwise" in message
    assert "does not exist" in refused(capsys, "inspect", tmp_path / "none.ir")


def test_a_folder_without_a_model(capsys):
    message = refused(capsys, "inspect", RESNET)
    assert "has no file '__model__', but model, params\n  hint: " in message
    assert message.endswith("pass --model-filename model\n")


def test_an_empty_folder(capsys, tmp_path):
    message = refused(capsys, "inspect", tmp_path)
    assert "has no file '__model__', but nothing" in message
    assert "pass --model-filename NAME" in message


def test_combined_parameters_that_nobody_named(capsys):
    message = refused(capsys, "inspect", RESNET, "--model-filename", "model")
    assert "name it with --params-filename" in message


def test_a_cut_model(capsys, tmp_path):
    shutil.copytree(LENET, tmp_path / "cut")
    data = (LENET / "__model__").read_bytes()
    (tmp_path / "cut" / "__model__").write_bytes(data[: len(data) // 2])
    assert str(tmp_path / "cut" / "__model__") in refused(capsys, "inspect", tmp_path / "cut")


def test_a_cut_parameter(capsys, tmp_path):
    shutil.copytree(LENET, tmp_path / "cut")
    data = (LENET / "conv2d_0.w_0").read_bytes()
    (tmp_path / "cut" / "conv2d_0.w_0").write_bytes(data[:-4])
    assert "conv2d_0.w_0" in refused(capsys, "infer", tmp_path / "cut")


def test_a_parameter_of_another_model(capsys, tmp_path):
    shutil.copytree(LENET, tmp_path / "mixed")
    shutil.copy(LENET / "fc_0.b_0", tmp_path / "mixed" / "fc_0.w_0")
    assert "was it saved from another model?" in refused(capsys, "inspect", tmp_path / "mixed")


# ---- infer ----


def test_infer_returns_the_recorded_numbers(capsys, recorded, tmp_path):
    output = tmp_path / "out.npz"
    shown = run(
        capsys, "infer", LENET, "--input", f"img={recorded['img']}",
        "--input", f"label={recorded['label']}", "--output", output, "--time",
    )  # fmt: skip
    (result,) = read_arrays(output).values()
    np.testing.assert_allclose(result, np.load(recorded["out"]), rtol=1e-4, atol=1e-5)
    assert "fetch" in shown
    assert "more run" in shown
    assert f"written to {output}" in shown


def test_infer_takes_an_archive_and_writes_one_array(capsys, recorded, tmp_path):
    output = tmp_path / "only.npy"
    run(capsys, "infer", LENET, "--input", recorded["feeds"], "--output", output)
    np.testing.assert_allclose(np.load(output), np.load(recorded["out"]), rtol=1e-4, atol=1e-5)


def test_infer_takes_one_array_of_an_archive(capsys, recorded):
    feeds = recorded["feeds"]
    shown = run(capsys, "infer", LENET, "--input", f"img={feeds}", "--input", f"label={feeds}")
    assert "feed   img" in shown


def test_infer_needs_no_name_for_the_only_feed(capsys, one_feed):
    model, x = one_feed
    assert "feed   x " in run(capsys, "infer", model, "--input", x)


def test_a_file_may_have_an_equals_sign_in_its_name(capsys, one_feed, tmp_path):
    model, x = one_feed
    odd = tmp_path / "x=1.npy"
    shutil.copy(x, odd)
    run(capsys, "infer", model, "--input", odd)


def test_infer_shows_the_likeliest_classes(capsys, recorded):
    shown = run(capsys, "infer", LENET, "--input", recorded["feeds"])
    classes = np.load(recorded["out"]).argmax(axis=1)
    assert shown.split("likeliest class")[1].splitlines()[0].endswith(" ".join(map(str, classes)))


@pytest.mark.parametrize(
    ("array", "likely"),
    [
        (np.float32([[0.5, 0.5]]), True),
        (np.float32([[0.5, 0.6]]), False),
        (np.float32([[1.5, -0.5]]), False),
        (np.float32([[1.0]]), False),
        (np.float32([0.5, 0.5]), False),
        (np.int64([[1, 0]]), False),
        (np.zeros((0, 3), "float32"), False),
    ],
)
def test_probabilities_are_recognised(array, likely):
    assert looks_like_probabilities(array) is likely


def test_missing_feed(capsys, recorded):
    message = refused(capsys, "infer", LENET, "--input", f"img={recorded['img']}")
    assert "missing feed: 'label' (int64 of shape (-1, 1))" in message
    assert "--input label=FILE.npy" in message


def test_no_input_at_all(capsys):
    message = refused(capsys, "infer", LENET)
    assert "missing feed: 'img' (float32 of shape (-1, 1, 16, 16)), 'label'" in message


def test_a_name_is_needed_among_several_feeds(capsys, recorded):
    message = refused(capsys, "infer", LENET, "--input", recorded["img"])
    assert "the model has 2 feeds; name one: --input img=img.npy --input label=label.npy" in message


def test_unknown_feed(capsys, recorded):
    message = refused(capsys, "infer", LENET, "--input", f"imgs={recorded['img']}")
    assert "the model has no feed 'imgs'; did you mean 'img'?" in message


def test_a_feed_given_twice(capsys, recorded):
    arguments = ("--input", recorded["feeds"], "--input", f"img={recorded['img']}")
    assert "feed 'img' is passed twice" in refused(capsys, "infer", LENET, *arguments)


def test_wrong_shape(capsys, one_feed, tmp_path):
    model, x = one_feed
    np.save(x, np.zeros((4, 12), "float32"))
    message = refused(capsys, "infer", model, "--input", x)
    assert "feed 'x' must have the shape (-1, 13), but (4, 12) was given" in message


def test_wrong_element_type(capsys, one_feed):
    model, x = one_feed
    np.save(x, np.full((4, 13), 1e300))
    message = refused(capsys, "infer", model, "--input", x)
    assert "x.npy holds float64, feed 'x' takes float32, which cannot hold 1e+300" in message


def test_no_such_input(capsys, tmp_path):
    message = refused(capsys, "infer", LENET, "--input", tmp_path / "x.npy")
    assert f"{tmp_path / 'x.npy'} does not exist" in message


def test_no_such_array_in_an_archive(capsys, recorded):
    message = refused(capsys, "infer", LENET, "--input", f"label2={recorded['feeds']}")
    assert "has no array 'label2'; it has img, label" in message


@pytest.mark.parametrize("name", ["out.txt", "none/out.npz"])
def test_output_is_rejected_before_anything_runs(capsys, one_feed, tmp_path, name):
    model, x = one_feed
    refused(capsys, "infer", model, "--input", x, "--output", tmp_path / name)
    assert not (tmp_path / name).exists()


# ---- the process ----


def process(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fluid", *arguments]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def test_exit_code_and_an_encoding_without_arrows():
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        process("inspect", str(LENET)), env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "conv2d ? 2" in done.stdout


def test_a_reader_that_disappears():
    with subprocess.Popen(
        process("inspect", str(LENET)), env=ENVIRONMENT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        child.stdout.close()
        assert child.stderr.read() == ""
    assert child.returncode == cli.PIPE_CLOSED


def test_a_command_imports_what_it_needs_alone():
    source = "from fluid.cli.main import parser; import sys; parser('infer'); print(*sys.modules)"
    shown = subprocess.check_output([sys.executable, "-c", source], text=True).split()
    assert "fluid.cli.infer" in shown
    assert not {"fleet", "compiler.driver", "fluid.cli.bisect", "tools.ptx"} & {*shown}
