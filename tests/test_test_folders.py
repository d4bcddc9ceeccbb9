"""A test of one module is named after it and lies in the folder that mirrors its package.

`tests/passes/fusion/test_fuse_pointwise.py` tests `compiler/passes/fusion/fuse_pointwise.py`, and
`tests/fluid/test_cli.py` the package `fluid/cli`. `compiler` has no folder of its own below tests.
"""

from pathlib import Path

from tests.conftest import LONG

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
OUTSIDE_THE_COMPILER = ("bench", "fleet", "fluid", "runtime", "tools")

BEHAVIOUR = {
    "": (
        "another_system architecture compiler_main cookbook examples hostile_names "
        "installation code_blocks compilation_work public_names readme test_folders transpilers_page"
    ),
    "bench": "bench_smoke",
    "codegen": "poisoned_memory random_graphs",
    "codegen/ahead": "models",
    "codegen/families": (
        "data_movement images indexing optimizers pointwise products reduction_schedules "
        "reductions row_normalisation sequences"
    ),
    "codegen/native": (
        "beyond_thresholds empty_arrays many_parts open_shapes product_and_image_thresholds"
    ),
    "codegen/native/loops": "vector_tails",
    "codegen/triton": (
        "accuracy beyond_thresholds convolutions epilogues reductions sequences sorting"
    ),
    "fleet": "collective_training global_shuffle kubernetes",
    "fleet/launch": "elastic restarts",
    "fleet/openks": "documented_api",
    "fluid": "api api_modules api_spec program random_models",
    "fluid/cli": "infer_feed_shapes",
    "fluid/compat/inference": "optimised_models",
    "fluid/data_parallel": (
        "documented_examples launched_ranks reference_behaviour training two_devices"
    ),
    "fluid/eager": "training",
    "fluid/inference": "gpu_predictor half_precision_on_cpus quantized_models",
    "fluid/layers": (
        "control_flow_errors control_flow_gradients control_flow_losses control_flow_programs "
        "empty_batches"
    ),
    "fluid/layers/sequences": "sequence_ops",
    "fluid/optimizer": "minimize_in_block sparse_gradients update_rules",
    "fluid/parameter_server": "asynchronous_training remote_lookups synchronous_training",
    "fluid/reference": (
        "argument_errors deviations loaders recorded_programs recorded_scripts "
        "recorded_training recorded_transpiling script_helpers script_visible_details "
        "shell_scripts uncommon_calls"
    ),
    "fluid/running": (
        "cache_key data_dependent_sizes interrupts native_programs packed_weights "
        "repeated_steps shape_errors undeclared_feed_shapes varying_lengths"
    ),
    "fluid/saving": "atomic_saves reference_models",
    "fluid/transpiler": "random_programs",
    "fluid/transpiler/distribute": "training transpiled_programs",
    "ir": "companion_values",
    "ir/autodiff": "finite_differences",
    "ops": (
        "bfloat16 bodies_in_modules catalogue empty_batches every_op float64 generated native "
        "native_errors native_thresholds numpy_and_device_thresholds on_device recorded scaled "
        "wrong_shapes"
    ),
    "ops/image": "images_on_device",
    "ops/loss": "sequence_losses two_input_losses",
    "ops/sequence": "recurrent_ops",
    "ops/shape": "recommendation_ops",
    "ops/train": "sparse_rows_on_device",
    "passes": "golden random_networks",
    "passes/distribute": "collective_programs data_parallel_training",
    "report": "browser",
    "runtime/gpu": "asynchronous_programs concurrent_predictor package_dtypes",
    "runtime/ps": "forks",
    "runtime/ps/serving": "trainer_ids",
    "runtime/ps/training": "geo",
    "runtime/tensors": "borrowed_arrays element_access",
    "support": "nets threshold_registration",
    "tools/ptx": (
        "carries cast_filters local_memory op_samples operand_kinds product_variants "
        "programs_on_machine scalar_instructions scalar_model unsupported_instructions"
    ),
}
"""Files that test behaviour across modules, by folder: their names say which."""


def mirrored(folder: Path) -> Path:
    """Return the folder of the package whose tests are in a folder."""
    below = folder.relative_to(TESTS)
    if below.parts and below.parts[0] in OUTSIDE_THE_COMPILER:
        return ROOT / below
    return ROOT / "compiler" / below


def is_module_test(file: Path) -> bool:
    """Return whether the mirrored package has a module or package that a test is named after."""
    module = mirrored(file.parent) / file.stem.removeprefix("test_")
    return module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()


def is_behaviour_test(file: Path) -> bool:
    folder = file.parent.relative_to(TESTS).as_posix()
    names = BEHAVIOUR.get("" if folder == "." else folder, "")
    return file.stem.removeprefix("test_") in names.split()


def test_files_lie_beside_their_module_or_are_listed() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    lost = [file for file in files if not is_module_test(file) and not is_behaviour_test(file)]
    assert lost == [], "name it after the module that it tests, or list it in BEHAVIOUR"


def test_listed_files_exist() -> None:
    listed = [TESTS / at / f"test_{name}.py" for at in BEHAVIOUR for name in BEHAVIOUR[at].split()]
    assert [file for file in listed if not file.is_file()] == []
    assert [file for file in listed if is_module_test(file)] == []


def test_long_tests_exist() -> None:
    lost = []
    for line in LONG:
        file, _, function = line.partition("[")[0].partition("::")
        if not any(f"def {function}(" in path.read_text("utf-8") for path in TESTS.rglob(file)):
            lost.append(line)
    assert lost == [], "tests/conftest.py lists them in LONG"
