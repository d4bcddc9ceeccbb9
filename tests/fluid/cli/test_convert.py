"""`fluid convert`: a round trip reproduces the files, and a failure changes nothing."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import fluid
from compiler.ir.model_format.protobuf import AttrType, Message, build, dump, parse
from fluid.cli import convert as converting
from fluid.cli import main as cli
from fluid.cli.convert import without_call_stacks
from fluid.cli.layout import ModelFiles, locate, saved_names
from fluid.cli.model import CommandError

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
CASES = sorted(path.name.removesuffix("__io.npz") for path in GOLDEN.glob("*__io.npz"))
COMPUTED = ("digits_mlp", "sentiment_conv", "while_power")
LINE = GOLDEN / "fit_a_line__separate"
LINE_FILES = ["__model__", "fc_0.b_0", "fc_0.w_0"]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run `fluid convert`, expect success, return what it printed."""
    code = cli.main(["convert", *map(str, arguments)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run `fluid convert`, expect exit code 2, return the message."""
    assert cli.main(["convert", *map(str, arguments)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fluid convert: ")
    assert "Traceback" not in message
    return message


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, also of those inside it, by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def outputs(path: Path, case: str, model: str | None = None, params: str | None = None):
    """Outputs of a model for the recorded feeds."""
    exe = fluid.Executor(fluid.CPUPlace())
    with np.load(GOLDEN / f"{case}__io.npz") as result, fluid.scope_guard(fluid.Scope()):
        feed = {name[3:]: result[name] for name in result.files if name.startswith("in.")}
        for name in [name for name in feed if f"lod:in.{name}" in result.files]:
            lengths = [result[f"lod:in.{name}"].tolist()]
            feed[name] = fluid.create_lod_tensor(feed[name], lengths, fluid.CPUPlace())
        program, _, fetches = fluid.io.load_inference_model(str(path), exe, model, params)
        return np.asarray(exe.run(program, feed, fetches[:1], return_numpy=False)[0])


def with_call_stacks(source: Path, target: Path) -> None:
    """Copy a model and give each of its ops a call stack and a field nobody knows."""
    shutil.copytree(source, target)
    program = target / "__model__"
    message = parse(program.read_bytes())
    stack = build("OpDesc.Attr", name="op_callstack", type=AttrType.STRINGS, strings=["/home/me"])
    (block,) = message.many("blocks", Message)
    ops = [
        Message(
            op.kind, {**op.values, "attrs": (*op.many("attrs", Message), stack)}, ((58, b"\x01x"),)
        )
        for op in block.many("ops", Message)
    ]
    values = {**block.values, "ops": tuple(ops)}
    blocks = (Message(block.kind, values, block.unknown),)
    program.write_bytes(dump(Message(message.kind, {**message.values, "blocks": blocks})))


# ---- there and back ----


@pytest.mark.parametrize("case", CASES)
def test_there_and_back_has_the_same_files_and_outputs(capsys, case: str, tmp_path: Path):
    original = GOLDEN / f"{case}__separate"
    run(capsys, original, tmp_path / "a", "--combined")
    run(capsys, tmp_path / "a", tmp_path / "b" / "inference.pdmodel")
    run(capsys, tmp_path / "b", tmp_path / "c")
    before, after = contents(original), contents(tmp_path / "c")
    assert {**after, "__model__": b""} == {**before, "__model__": b""}
    told = without_call_stacks(parse(before["__model__"]))
    assert after["__model__"] == dump(told)
    if case in COMPUTED:
        expect_equal_outputs(tmp_path, case)


def expect_equal_outputs(folder: Path, case: str) -> None:
    wanted = outputs(GOLDEN / f"{case}__separate", case)
    np.testing.assert_array_equal(outputs(folder / "a", case, None, "__params__"), wanted)
    np.testing.assert_array_equal(outputs(folder / "b" / "inference", case), wanted)
    np.testing.assert_array_equal(outputs(folder / "c", case), wanted)


def test_the_combined_file_is_that_of_the_reference(capsys, tmp_path: Path):
    run(capsys, LINE, tmp_path, "--to-model", "model", "--to-params", "params")
    recorded = contents(GOLDEN / "fit_a_line__combined")
    assert contents(tmp_path)["params"] == recorded["params"]
    assert sorted(contents(tmp_path)) == sorted(recorded)


def test_call_stacks_go_and_unknown_fields_stay(capsys, tmp_path: Path):
    with_call_stacks(LINE, tmp_path / "a")
    printed = run(capsys, tmp_path / "a", tmp_path / "b")
    after = parse((tmp_path / "b" / "__model__").read_bytes())
    assert after == without_call_stacks(parse((tmp_path / "a" / "__model__").read_bytes()))
    assert b"/home/me" not in (tmp_path / "b" / "__model__").read_bytes()
    (block,) = after.many("blocks", Message)
    assert all(op.unknown == ((58, b"\x01x"),) for op in block.many("ops", Message))
    assert "2 parameters with 56 B" in printed
    assert "without call stacks" in printed


def test_convert_errors(capsys, tmp_path: Path):
    printed = run(capsys, LINE, tmp_path / "line.pdmodel").splitlines()
    assert (
        printed[0]
        == f"read     {LINE}/__model__, parameters in a file each: 2 parameters with 56 B"
    )
    assert printed[1] == f"written  {tmp_path}/line.pdmodel, parameters all in line.pdiparams"
    assert len(printed) == 3


def test_a_program_of_a_later_release_is_named(capsys, tmp_path: Path):
    shutil.copytree(LINE, tmp_path / "a")
    program = tmp_path / "a" / "__model__"
    message = parse(program.read_bytes())
    said = build("Version", version=2_003_001)
    program.write_bytes(dump(Message(message.kind, {**message.values, "version": said})))
    printed = run(capsys, tmp_path / "a", tmp_path / "b")
    assert "its ops are those of release 2.3.1" in printed
    again = parse((tmp_path / "b" / "__model__").read_bytes())
    assert again.one("version", Message) == said


# ---- finding a model ----


def test_where_models_are_found(capsys, tmp_path: Path):
    run(capsys, LINE, tmp_path / "line.pdmodel")
    later = ModelFiles(tmp_path, "line.pdmodel", "line.pdiparams")
    assert locate(tmp_path) == later
    assert locate(tmp_path / "line") == later
    assert locate(tmp_path / "line.pdmodel") == later
    assert locate(LINE) == locate(LINE / "__model__") == ModelFiles(LINE, "__model__", None)
    combined = GOLDEN / "fit_a_line__combined"
    assert locate(combined, "model") == ModelFiles(combined, "model", "params")
    assert saved_names(later.program) == saved_names(LINE / "__model__")


def test_the_only_other_file_holds_the_parameters(capsys, tmp_path: Path):
    run(capsys, LINE, tmp_path, "--to-params", "weights.bin")
    assert locate(tmp_path).params == "weights.bin"


def test_no_model(capsys, tmp_path: Path):
    (tmp_path / "notes").write_text("", encoding="utf-8")
    message = refused(capsys, tmp_path, tmp_path / "b")
    assert "holds no model: it has no __model__ and no .pdmodel file, but notes" in message
    assert "does not exist" in refused(capsys, tmp_path / "no", tmp_path / "b")


def test_several_programs(capsys, tmp_path: Path):
    for name in ("one.pdmodel", "two.pdmodel"):
        run(capsys, LINE, tmp_path / name)
    message = refused(capsys, tmp_path, tmp_path / "b")
    assert "holds 2 programs, one.pdmodel, two.pdmodel: pass --model-filename NAME" in message
    run(capsys, tmp_path, tmp_path / "b", "--model-filename", "two.pdmodel")


def test_names_that_are_not_there(capsys, tmp_path: Path):
    message = refused(capsys, LINE, tmp_path / "b", "--model-filename", "modle")
    assert "has no file 'modle', but __model__, fc_0.b_0, fc_0.w_0" in message
    message = refused(capsys, LINE, tmp_path / "b", "--params-filename", "params")
    assert "has no file 'params'" in message


# ---- what is there already ----


def test_nothing_is_written_over(capsys, tmp_path: Path):
    target = tmp_path / "b"
    target.mkdir()
    run(capsys, LINE, target)
    message = refused(capsys, LINE, target)
    assert f"{target} already exists: choose another DST, or pass --force" in message
    run(capsys, LINE, tmp_path / "line.pdmodel")
    assert "line.pdmodel already exists" in refused(capsys, LINE, tmp_path / "line.pdmodel")
    (tmp_path / "line.pdmodel").unlink()
    assert "line.pdiparams already exists" in refused(capsys, LINE, tmp_path / "line.pdmodel")


def test_force_replaces_the_model_and_nothing_else(capsys, tmp_path: Path):
    run(capsys, GOLDEN / "digits_mlp__separate", tmp_path / "b")
    (tmp_path / "b" / "notes").write_text("mine", encoding="utf-8")
    run(capsys, LINE, tmp_path / "b", "--force")
    assert sorted(contents(tmp_path / "b")) == [*LINE_FILES, "notes"]
    assert locate(tmp_path / "b") == ModelFiles(tmp_path / "b", "__model__", None)


def test_in_place(capsys, tmp_path: Path):
    run(capsys, LINE, tmp_path / "b")
    run(capsys, tmp_path / "b", tmp_path / "b", "--combined", "--force")
    assert sorted(contents(tmp_path / "b")) == ["__model__", "__params__"]
    run(capsys, tmp_path / "b", tmp_path / "b", "--force")
    assert contents(tmp_path / "b")["fc_0.w_0"] == (LINE / "fc_0.w_0").read_bytes()


def test_a_file_is_no_folder(capsys, tmp_path: Path):
    (tmp_path / "b").write_text("", encoding="utf-8")
    for extra in ([], ["--force"]):
        assert "is a file, not a folder" in refused(capsys, LINE, tmp_path / "b", *extra)


# ---- whole or not at all ----


@pytest.mark.parametrize("fails_at", range(5))
def test_an_interrupt_leaves_the_model_that_was_there_or_the_new_one(
    capsys, fails_at: int, monkeypatch, tmp_path: Path
):
    run(capsys, GOLDEN / "digits_mlp__separate", tmp_path / "b")
    (tmp_path / "b" / "notes").write_text("mine", encoding="utf-8")
    run(capsys, LINE, tmp_path / "c")
    before, new = contents(tmp_path / "b"), contents(tmp_path / "c") | {"notes": b"mine"}
    replace, calls = Path.replace, []

    def failing(draft: Path, target: Path):
        calls.append(draft)
        if len(calls) == fails_at + 1:
            raise KeyboardInterrupt
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", failing)
    code = cli.main(["convert", str(LINE), str(tmp_path / "b"), "--force"])
    assert code == (cli.INTERRUPTED if fails_at < 4 else 0)
    assert ("nothing was left half-written" in capsys.readouterr().err) == (fails_at < 4)
    assert contents(tmp_path / "b") == (before if fails_at == 0 else new)


def test_a_parameter_that_is_missing_or_does_not_fit(capsys, tmp_path: Path):
    shutil.copytree(LINE, tmp_path / "a")
    shutil.copy(LINE / "fc_0.w_0", tmp_path / "a" / "fc_0.b_0")
    assert "variable 'fc_0.b_0' has the shape" in refused(capsys, tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "fc_0.b_0").unlink()
    message = refused(capsys, tmp_path / "a", tmp_path / "b")
    assert "fc_0.b_0" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_damaged_files(capsys, tmp_path: Path):
    shutil.copytree(LINE, tmp_path / "a")
    (tmp_path / "a" / "fc_0.w_0").write_bytes((LINE / "fc_0.w_0").read_bytes()[:-1])
    assert "bytes of data" in refused(capsys, tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "__model__").write_bytes(b"\x0a\xff")
    assert "is not a saved program" in refused(capsys, tmp_path / "a", tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


# ---- contradictions ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["b/x.pdmodel", "--to-model", "m"], "DST x.pdmodel conflicts with --to-model m"),
        (["b", "--to-model", "m", "--to-params", "m"], "program and parameters cannot both be 'm'"),
        (["b", "--to-params", "c/d"], "'c/d' is not a file name"),
        (
            ["b", "--to-model", "fc_0.w_0"],
            "a parameter is called 'fc_0.w_0', like the program file",
        ),
    ],
)
def test_contradictions(capsys, arguments: list[str], message: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, LINE, *arguments)
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_file_and_folder(tmp_path: Path):
    tensor = np.zeros(2, "float32"), ()
    model = converting.ConvertedModel(0, 0, b"", {"a": tensor, "a/b": tensor})
    with pytest.raises(CommandError, match="'a/b' cannot have its own file: pass --combined"):
        model.write(ModelFiles(tmp_path / "b", "__model__"))
    model.write(ModelFiles(tmp_path / "b", "__model__", "__params__"))
    assert sorted(contents(tmp_path)) == ["b/__model__", "b/__params__"]


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["convert", "--help"])
    assert stopped.value.code == 0
    assert "fluid convert inference.pdmodel out" in capsys.readouterr().out
