"""Errors that reach a user show the user's frames and the message, and hide nothing for good."""

import copy
import io
import pdb
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.errors import CompileError, ShapeError
from compiler.support.tracebacks import entry_point, unfiltered
from fluid.reading.decorators import buffered, shuffle, xmap_readers
from runtime.errors import RankError, StepError

pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUID_TRACEBACK", raising=False)


def raised(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    """The error of a call, whose traceback begins in this function."""
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the kind is what a test asks for
        return error
    raise AssertionError("nothing was raised")


def sent(error: BaseException) -> Any:
    """The error as another process receives it."""
    mine, theirs = Pipe()
    mine.send(error)
    return theirs.recv()


def frames(error: BaseException) -> list[str]:
    """The functions that a traceback shows."""
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def every_frame(error: BaseException) -> list[str]:
    return [each.name for each in traceback.extract_tb(unfiltered(error))]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def wrong_layer() -> None:
    fluid.layers.fc(fluid.data("x", [None, 4]), size=-3)


def wrong_feed() -> None:
    y = fluid.layers.relu(fluid.data("x", [None, 4]))
    fluid.Executor().run(feed={"x": np.ones((2, 5), "float32")}, fetch_list=[y])


def failing_step() -> None:
    x = fluid.data("x", [None, 1], "int64")
    y = fluid.layers.embedding(x, (10, 3))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.full((2, 1), 11)}, fetch_list=[y])


def not_a_number() -> None:
    y = fluid.layers.log(fluid.data("x", [None, 4]))
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        fluid.Executor().run(feed={"x": -np.ones((2, 4), "float32")}, fetch_list=[y])
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})


def wrong_operator() -> None:
    fluid.data("x", [None, 4]) + fluid.data("y", [None, 5])


def wrong_layer_of_ones_own() -> None:
    x = fluid.data("x", [None, 4])
    helper = fluid.layer_helper.LayerHelper("mine", input=x)
    helper.append_op("reluu", inputs={"X": [x]}, outputs={"Out": [x]})


def wrong_compile() -> None:
    compiler.compile(fluid.default_main_program(), feed=[], fetch=["nobody"])


def wrong_loss() -> None:
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.fc(fluid.data("x", [None, 4]), 3))


@pytest.mark.parametrize(
    "call",
    [
        wrong_layer, wrong_feed, failing_step, not_a_number, wrong_operator, wrong_compile, wrong_layer_of_ones_own,
        wrong_loss,
    ],
    ids=lambda call: call.__name__,
)  # fmt: skip
def test_only_the_frames_of_the_user_are_shown(call: Callable[[], None]) -> None:
    error = raised(call)
    assert frames(error) == ["raised", call.__name__]
    _, *lines = traceback.format_exception_only(error)
    assert len(lines) <= 3
    assert "another exception" not in shown(error)
    assert "direct cause" not in shown(error)
    assert "FLUID_TRACEBACK" not in shown(error)


@pytest.mark.parametrize("call", [wrong_layer, failing_step])
def test_all_frames_are_shown_when_asked_for(
    call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = every_frame(raised(call))
    monkeypatch.setenv("FLUID_TRACEBACK", "full")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        error = raised(call)
    assert frames(error) == hidden
    assert len(hidden) > 4


def test_a_debugger_sees_all_frames() -> None:
    error = raised(wrong_layer)
    debugger = pdb.Pdb(stdin=io.StringIO("where\nquit\n"), stdout=io.StringIO(), nosigint=True)
    debugger.use_rawinput = False
    debugger.reset()
    debugger.interaction(None, unfiltered(error))
    printed = debugger.stdout.getvalue()
    assert "wrong_layer()" in printed
    assert "check_parameter" in printed


def test_cause_of_an_error_is_kept() -> None:
    error = raised(failing_step)
    assert isinstance(error, StepError)
    assert error.__cause__ is None
    assert isinstance(error.__context__, ValueError)
    assert "expect_rows" in frames(error.__context__)


def test_an_error_that_the_user_handles_is_shown_before_ours() -> None:
    def handles() -> None:
        try:
            {}["name"]
        except KeyError:
            wrong_layer()

    text = shown(raised(handles))
    assert "KeyError: 'name'" in text
    assert "another exception occurred" in text


@pytest.mark.parametrize("call", [wrong_layer, wrong_feed, failing_step])
def test_errors_are_pickled_and_copied(call: Callable[[], None]) -> None:
    error = raised(call)
    for other in (sent(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert traceback.format_exception_only(other) == traceback.format_exception_only(error)
        assert unfiltered(other) is None


def test_errors_of_ranks_are_pickled() -> None:
    error = RankError("rank 1 ended", rank=1, host="there", cause="killed")
    other = sent(error)
    assert (type(other), str(other), other.rank, other.host) == (RankError, str(error), 1, "there")


# ---- functions of the user's that we call


def fails_at(value: Any) -> Any:
    raise LookupError(f"no {value}")


def samples() -> Iterator[int]:
    yield 1
    fails_at(2)


@pytest.mark.parametrize(
    "read",
    [
        lambda: list(shuffle(samples, 4)()),
        lambda: list(buffered(samples, 4)()),
        lambda: list(xmap_readers(abs, samples, 2, 4)()),
    ],
)
def test_frames_of_a_reader_of_the_user_s_are_shown(read: Callable[[], Any]) -> None:
    error = raised(read)
    assert frames(error) == ["raised", "<lambda>", "samples", "fails_at"]
    assert not getattr(error, "__notes__", [])


def test_a_loader_shows_the_generator_of_the_user_s() -> None:
    x = fluid.data("x", [None, 1])
    loader = fluid.io.DataLoader.from_generator([x], capacity=2)
    loader.set_batch_generator(samples, places=fluid.CPUPlace())
    loops = {"for": lambda: list(loader), "next": lambda: next(loader)}
    for name, loop in loops.items():
        seen = frames(raised(loop))
        assert seen[:2] == ["raised", "<lambda>"], name
        assert not {"get", "_fill", "device_feeds"} & set(seen), name


def test_a_loader_with_processes_raises_their_errors() -> None:
    class Numbers(fluid.io.Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return fails_at(index)

    places = [fluid.CPUPlace()]
    x = fluid.data("x", [None, 1])
    loader = fluid.io.DataLoader(Numbers(), [x], places, num_workers=1, batch_size=2)
    error = raised(lambda: list(loader))
    assert "no 0" in shown(error)
    assert frames(error) == ["raised", "<lambda>"]


def test_a_function_that_a_program_calls_is_shown() -> None:
    x = fluid.data("x", [2])
    out = x.block.create_var(name="out", dtype="float32", shape=[2])
    fluid.layers.py_func(fails_at, x, out)
    exe = fluid.Executor()
    error = raised(lambda: exe.run(feed={"x": np.ones(2, "float32")}, fetch_list=[out]))
    assert frames(error) == ["raised", "<lambda>", "fails_at"]


def test_a_call_inside_a_function_that_we_call_is_shown_whole() -> None:
    @entry_point
    def outer(function: Callable[[], None]) -> None:
        function()

    code = compile("def ours(function):\n    function()\n", "<module 0>", "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    error = raised(outer, lambda: names["ours"](wrong_layer))
    assert frames(error)[-1] == "wrong_layer"
    assert "ours" not in frames(error)
    assert every_frame(error)[-1] == "check_parameter"
    assert "ours" in every_frame(error)


# ---- bugs


def generated(line: str) -> Callable[[], None]:
    """A public function of one of our modules."""
    names: dict[str, Any] = {}
    exec(compile(f"def broken():\n    {line}\n", "<module 0>", "exec"), names)
    return entry_point(names["broken"])


@pytest.mark.parametrize("line", ["{}['key']", "assert not 1, 'one'", "None.shape", "int('x')"])
def test_a_bug_of_ours_reports_where_and_how_to_see_more(line: str) -> None:
    text = shown(raised(generated(line)))
    assert text.endswith(
        "  hint: raised in <module 0>:2; set FLUID_TRACEBACK=full to see every frame\n"
    )
    assert text.count("FLUID_TRACEBACK") == 1


@pytest.mark.parametrize(
    "line", ["raise KeyError('key')", "raise AssertionError('one')", "open('/nowhere')"]
)
def test_expected_errors_have_no_hint(line: str) -> None:
    assert "FLUID_TRACEBACK" not in shown(raised(generated(line)))


def test_arguments_that_a_signature_lacks_are_no_bug() -> None:
    error = raised(fluid.layers.fc, fluid.data("x", [None, 4]))
    assert isinstance(error, TypeError)
    assert frames(error) == ["raised"]
    assert "FLUID_TRACEBACK" not in shown(error)


def test_unexpected_argument_has_a_hint() -> None:
    error = raised(fluid.layers.concat, [3])
    if "cannot take" in str(error):
        assert "hint: caused by" in shown(error)


def test_an_error_that_says_what_to_do_needs_no_cause() -> None:
    def fail(hint: str) -> None:
        try:
            generated("None.shape")()
        except AttributeError as error:
            raise CompileError("too bad", hint=hint) from error

    assert "caused by AttributeError" in shown(raised(entry_point(fail), ""))
    assert "caused by" not in shown(raised(entry_point(fail), "do this"))


def test_errors_that_take_no_attributes_pass() -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise TypeError("frozen")

    def fail() -> Iterator[int]:
        raise Frozen
        yield 1

    assert isinstance(raised(lambda: list(shuffle(fail, 2)())), Frozen)


def test_a_public_function_passes_what_it_returns() -> None:
    assert entry_point(max)(1, 2) == 2
    with pytest.raises(ShapeError):
        wrong_feed()
