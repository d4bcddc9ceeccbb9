"""What every test may ask for: golden updates, a GPU or a reason without one, a clean fluid."""

import importlib
import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Without a GPU, kernels run in Triton's interpreter, which asks when triton is imported.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The same examples in every run, and no deadline: machines that test are shared and slow.
settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")


# A shell that starts tests in the background lets them ignore Ctrl-C, and with them the programs
# that tests start to see what Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update`, which writes the second half of golden files anew."""
    parser.addoption("--update", action="store_true", help="write golden files from what is seen")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked gpu where there is no GPU; torch is asked only if there are any."""
    waiting = [item for item in items if item.get_closest_marker("gpu")]
    reason = missing_gpu() if waiting else None
    for item in waiting if reason else []:
        item.add_marker(pytest.mark.skip(reason=str(reason)))


def missing_gpu() -> str | None:
    """Return why GPU tests cannot run here, or None where they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    torch = importlib.import_module("torch")
    return None if torch.cuda.is_available() else "torch sees no CUDA GPU"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled kernels apart from those of the user, for this run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUID_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Tell whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def fresh_programs() -> Iterator[tuple[Any, Any]]:
    """Give (main, startup), both empty, with names that count from 0 and an empty scope."""
    fluid = importlib.import_module("fluid")
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield main, startup
