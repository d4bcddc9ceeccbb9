"""The table in docs/fleet.md: classes and methods of OpenKS, their signatures and their tests.

It is generated from the code: `pytest tests/fleet/openks/test_documented_api.py --update` writes it.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fleet

HERE = Path(__file__).parents[1]
PAGE = HERE.parents[1] / "docs/fleet.md"
START, END = "<!-- table of OpenKS -->\n", "<!-- end of the table of OpenKS -->\n"
ROLES, KS = "test_roles", "test_openks"
CPU, GPU = "test_parameter_server", "test_collective"
MEET = f"{ROLES}::test_role_maker_collectives_match_numpy"
TRAIN = "launch/test_servers::test_two_workers_and_two_servers_train_as_one_process"
TABLES = "test_heterogeneous::test_two_workers_equal_one_process"
PHOTOS = "openks/test_few_shot::test_photographs_are_84_by_84_in_colour_between_0_and_1"
CHARACTERS = "openks/test_few_shot::test_characters_rotate_counter_clockwise"
SAMPLES = "openks/test_few_shot::test_samples_repeat_for_a_seed_and_have_no_image_twice"

# Class → method of the document → the test that exercises it. `__init__` is the constructor, which
# the document also calls `init`.
TABLE: dict[str, dict[str, str]] = {
    "RoleMakerBase": {
        "__init__": f"{ROLES}::test_the_base_has_no_role",
        "is_worker": f"{ROLES}::test_a_trainer_of_parameter_servers",
        "is_server": f"{ROLES}::test_a_server",
        "is_first_worker": f"{ROLES}::test_a_trainer_of_parameter_servers",
        "worker_num": f"{ROLES}::test_a_trainer_of_parameter_servers",
        "worker_index": f"{ROLES}::test_a_trainer_of_parameter_servers",
        "server_index": f"{ROLES}::test_a_server",
        "get_trainer_endpoints": f"{ROLES}::test_a_trainer_of_collective_training_is_a_worker",
        "to_string": f"{ROLES}::test_a_server",
        "all_gather": MEET,
        "all_reduce_worker": MEET,
        "barrier_worker": MEET,
        "barrier_all": MEET,
    },
    "PaddleCloudRoleMaker": {
        "__init__": f"{ROLES}::test_a_trainer_of_collective_training_is_a_worker",
        "generate_role": f"{ROLES}::test_a_server",
    },
    "Open_KS_ImageNet": {"sample": PHOTOS, "_read_image": PHOTOS},
    "Open_KS_Character": {"sample": SAMPLES, "_read_image": CHARACTERS},
    "Open_KS_read": {
        "read_dataset": PHOTOS,
        "_read_classes": "openks/test_few_shot::test_missing_and_empty_folders",
    },
    "KSDistributedFactory": {
        "instantiation": f"{KS}::test_the_factory_returns_one_object_for_each_flag"
    },
    "BaseDistributedAlgorithm": {
        "__init__": f"{KS}::test_both_spellings_answer_the_same",
        "is_first_worker": f"{KS}::test_both_spellings_answer_the_same",
        "_is_worker": f"{KS}::test_both_spellings_answer_the_same",
        "worker_num": f"{KS}::test_both_spellings_answer_the_same",
        "worker_endpoints": f"{KS}::test_both_spellings_answer_the_same",
        "is_server": f"{KS}::test_both_spellings_answer_the_same",
        "split_files": f"{KS}::test_split_files",
        "init": f"{KS}::test_both_spellings_answer_the_same",
        "all_reduce_worker": f"{KS}::test_single_worker_needs_no_rendezvous",
        "barrier_workers": f"{KS}::test_single_worker_needs_no_rendezvous",
    },
    "BaseDistributedOptimizer": {
        "__init__": f"{KS}::test_the_base_optimizer_does_not_define_how_to_distribute"
    },
    "CPUDistributedAlgorithm": {
        "__init__": f"{KS}::test_split_files",
        "init_worker": TRAIN,
        "init_server": TRAIN,
        "run_server": TRAIN,
        "stop_worker": TRAIN,
        "distributed_optimizer": f"{CPU}::test_a_worker_sends_and_receives",
        "save_inference_model": TRAIN,
        "save_persistables": TRAIN,
    },
    "GeneralDistributedOptimizer": {
        "backward": f"{KS}::test_backward_and_apply_gradients_are_the_two_parts",
        "apply_gradients": f"{KS}::test_backward_and_apply_gradients_are_the_two_parts",
        "minimize": f"{KS}::test_minimize_takes_arguments_in_documented_order",
    },
    "GPUDistributedAlgorithm": {
        "__init__": f"{KS}::test_a_missing_gpu_is_noted_once",
        "distributed_optimizer": f"{KS}::test_without_a_strategy_the_defaults_apply",
        "save_inference_model": f"{GPU}::test_inference_models_are_of_the_program_before",
        "save_persistables": f"{GPU}::test_inference_models_are_of_the_program_before",
    },
    "HeterogeneousDistributedOptimizer": {
        "backward": f"{KS}::test_backward_and_apply_gradients_are_the_two_parts",
        "apply_gradients": f"{KS}::test_backward_and_apply_gradients_are_the_two_parts",
        "minimize": TABLES,
        "_try_to_compile": f"{KS}::test_without_a_strategy_the_defaults_apply",
        "_transpile": f"{KS}::test_without_a_strategy_the_defaults_apply",
    },
}
ROWS = [(name, method, test) for name, tests in TABLE.items() for method, test in tests.items()]

# What tests run in other processes, or through helpers: their code counts as theirs.
BESIDE = {
    MEET: [("test_roles", "PROCESS")],
    TRAIN: [("scripts/train", ""), ("programs", "leave")],
    TABLES: [("heterogeneous_job", "")],
    f"{KS}::test_a_missing_gpu_is_noted_once": [(KS, "gpu")],
    f"{GPU}::test_inference_models_are_of_the_program_before": [(GPU, "a_fleet")],
}


@cache
def source(file: str, name: str) -> str:
    """The text of a test file, or of a function or constant of it."""
    text = (HERE / f"{file}.py").read_text(encoding="utf-8")
    if not name:
        return text
    for node in ast.parse(text).body:
        targets = [each.id for each in getattr(node, "targets", []) if isinstance(each, ast.Name)]
        if getattr(node, "name", None) == name or name in targets:
            return ast.get_source_segment(text, node) or ""
    raise LookupError(f"{file}.py has no {name}")


def signature(name: str, method: str) -> str:
    """The signature of a method, without `self`."""
    result: Any = inspect.getattr_static(getattr(fleet, name), method)
    result = getattr(result, "__func__", result)
    parameters = [p for p in inspect.signature(result).parameters.values() if p.name != "self"]
    shown = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(shown))


def table() -> str:
    """The table as Markdown."""
    lines = ["| class | method | test |", "|---|---|---|"]
    for name, method, test in ROWS:
        shown = name if method == "__init__" else method
        lines.append(f"| {name} | `{shown}{signature(name, method)}` | {test} |")
    return "\n".join([*lines, ""])


@pytest.mark.parametrize(("name", "method", "test"), ROWS)
def test_each_row_has_a_test_that_uses_the_method(name: str, method: str, test: str) -> None:
    places = [tuple(test.split("::")), *BESIDE.get(test, [])]
    text = "".join(source(*place) for place in places)
    assert callable(getattr(getattr(fleet, name), method))
    pattern = rf"\b{name}\(" if method == "__init__" else rf"\.{method}\b"
    assert re.search(pattern, text), f"{test} does not use {name}.{method}"


def test_the_page_has_the_table(update: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(START)
    old, tail = rest.split(END)
    if update:
        PAGE.write_text(head + START + table() + END + tail, encoding="utf-8")
        old = table()
    assert old == table(), "run pytest tests/fleet/openks/test_documented_api.py --update"
