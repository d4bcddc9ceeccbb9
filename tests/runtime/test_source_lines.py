"""Lines of generated modules: in tracebacks while a module lives, and nowhere after it."""

import gc
import linecache
import traceback

from runtime.loader import load
from tests.runtime.test_loader import small

BODY = """
def bind(take, params, N):
    def step(x):
        raise RuntimeError("from the step")

    return step
"""


OTHER = BODY.replace("the step", "another step")


def entries() -> set[str]:
    return {name for name in linecache.cache if name.startswith("<module")}


def settle() -> set[str]:
    """Drop what is garbage, load a module so that entries are removed, and return what is left."""
    gc.collect()
    kept = load(small(OTHER))
    assert kept._filename in linecache.cache
    return entries() - {kept._filename}


def test_lines_of_a_dropped_module_are_removed_with_the_next_load() -> None:
    before = settle()
    executable = load(small())
    added = entries() - before
    assert executable._filename in added
    del executable
    gc.collect()
    assert added <= entries()  # linecache may be iterating
    assert settle() == before


def test_lines_stay_while_another_module_of_the_same_source_lives() -> None:
    before = settle()
    first, second = load(small()), load(small())
    del first
    assert settle() - before == {second._filename}
    del second
    assert settle() == before


def test_a_traceback_shows_lines_after_its_module_is_dropped() -> None:
    executable = load(small(BODY))
    bind = executable._bind
    filename = executable._filename
    del executable
    gc.collect()
    try:
        bind(None, {}, 1)(None)
    except RuntimeError as error:
        shown = "".join(traceback.format_exception(error))
    assert 'raise RuntimeError("from the step")' in shown
    assert filename in shown
