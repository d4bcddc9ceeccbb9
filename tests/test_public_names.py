"""Names that docs/api documents have a docstring, an example and a test.

An example is one that runs: in a docstring, a code block of a page, or `examples/`. Layers, one for
each op, have the samples of tests/ops instead; errors and base classes are seen where they are used.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import fluid
from fluid.data_feeder import convert_dtype
from fluid.dataset import BatchFeed, DatasetBase
from fluid.framework import (
    Program,
    dtype_is_floating,
    grad_var_name,
    switch_main_program,
    switch_startup_program,
)
from fluid.inference.predictor import PredictorMemory
from fluid.io import get_parameter_value, is_belong_to_optimizer
from fluid.layers import BlockGuard, ConditionalBlock, ConditionalBlockGuard
from fluid.reader import DataLoaderBase, keep_data_loader_order
from fluid.regularizer import WeightDecayRegularizer

ROOT = Path(__file__).resolve().parents[1]
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", re.MULTILINE)
LAYERS = ("fluid.layers", "fluid.dygraph")
NO_EXAMPLE = {
    "BoxPSDataset FileInstantDataset load_op_library": "they raise with the reason",
    "OpProtoHolder get_all_op_protos": "for Paddle's own layers",
    "append_fetch_ops prepend_feed_ops": "for save_inference_model",
    "check_dtype check_type check_variable_and_dtype": "for layers",
    "BatchFeed recorder GeneralDistributedOptimizer HeterogeneousDistributedOptimizer": "made by others",
    "CUDAPinnedPlace cuda_pinned_places cuda_profiler": "a GPU",
    "multiprocess_reader": "starts processes",
    "Dataset": "the same as DatasetFactory's",
}
"""Names without an example, and why."""


def public_names() -> dict[str, Any]:
    """What the pages of docs/api document, by full name, once all of `fluid` is loaded."""
    names: dict[str, Any] = {}
    for name in fluid.__all__:
        getattr(fluid, name)
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for kind, name, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind != "module":
                home, _, attribute = name.rpartition(".")
                names[name] = getattr(import_module(home), attribute)
            elif ":no-members:" not in options:
                names |= members(name, options)
    return names


def members(name: str, options: str) -> dict[str, Any]:
    """The functions and classes of a module that a directive with these options documents."""
    module = import_module(name)
    left_out = "".join(re.findall(r":exclude-members: (.*)", options)).split(", ")
    listed = getattr(module, "__all__", None)
    found = {each: getattr(module, each) for each in listed or vars(module) if each[0] != "_"}
    imported = listed is not None or ":imported-members:" in options
    return {
        f"{name}.{key}": value for key, value in found.items()
        if callable(value) and not inspect.ismodule(value) and key not in left_out
        and (imported or getattr(value, "__module__", None) == name)
    }  # fmt: skip


def words(*patterns: str) -> set[str]:
    """The words in the files of the tree that patterns name."""
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    return {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}


NAMES = public_names()


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, value in NAMES.items() if not (value.__doc__ or "").strip()] == []
    methods = [
        f"{name}.{key}"
        for name, value in NAMES.items() if inspect.isclass(value)
        for key, method in vars(value).items()
        if key[0] != "_" and (callable(method) or isinstance(method, property | classmethod))
        and not inspect.getdoc(getattr(value, key))
    ]  # fmt: skip
    assert methods == []


def test_every_public_name_is_in_a_test() -> None:
    known = words("tests/**/*.py", "tests/**/*.spec", "docs/api/*.md")
    assert [name for name in NAMES if name.rpartition(".")[2] not in known] == []


def is_shown_elsewhere(name: str, value: Any) -> bool:
    """Whether a name is a layer, an error or a base class."""
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    is_base = inspect.isclass(value) and bool(value.__subclasses__())
    return name.startswith(LAYERS) or is_error or is_base


def test_every_public_name_is_in_an_example() -> None:
    pages = "".join(
        "".join(
            re.findall(
                r"^ *```(?:python|console)\n(.*?)^ *```", page.read_text("utf-8"), re.M | re.S
            )
        )
        for page in (ROOT / "docs").rglob("*.md")
    )
    known = {*re.findall(r"\w+", pages)} | words("examples/*.py")
    shown = {
        id(value) for name, value in NAMES.items()
        if name.rpartition(".")[2] in known or ">>>" in (value.__doc__ or "")
    }  # fmt: skip
    assert [
        name for name, value in NAMES.items()
        if id(value) not in shown and not is_shown_elsewhere(name, value)
        and name.rpartition(".")[2] not in " ".join(NO_EXAMPLE).split()
    ] == []  # fmt: skip


# Helpers of release 1.8 that nothing else here calls


def test_names_of_dtypes_and_gradients() -> None:
    assert convert_dtype("float32") == "float32" and grad_var_name("w") == "w@GRAD"
    assert dtype_is_floating("float16") and not dtype_is_floating("int64")


def test_default_programs_are_switched() -> None:
    for switch in (switch_main_program, switch_startup_program):
        program = Program()
        before = switch(program)
        assert switch(before) is program


def test_parameters_are_told_from_optimizer_state(fresh_programs: Any, exe: Any) -> None:
    main, startup = fresh_programs
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe.run(startup)
    state = [var.name for var in main.list_vars() if is_belong_to_optimizer(var)]
    assert any("velocity" in name for name in state) and "fc_0.w_0" not in state
    weights = main.global_block().var("fc_0.w_0")
    assert get_parameter_value(weights, exe).shape == (2, 1)
    assert fluid.executor.as_numpy(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).shape


def test_base_classes() -> None:
    assert issubclass(fluid.regularizer.L2Decay, WeightDecayRegularizer)
    assert issubclass(fluid.io.PyReader, DataLoaderBase) and keep_data_loader_order()
    assert issubclass(fluid.dataset.InMemoryDataset, DatasetBase) and BatchFeed
    assert BlockGuard and ConditionalBlock and ConditionalBlockGuard and PredictorMemory
