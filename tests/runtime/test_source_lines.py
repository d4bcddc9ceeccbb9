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


def entries() -> set[str]:
    """The file names of modules whose lines are kept."""
    return {name for name in linecache.cache if name.startswith("<module") and lines_of(name)}


def lines_of(name: str) -> list[str]:
    return linecache.cache[name][2]


def test_lines_of_a_dropped_module_are_removed() -> None:
    gc.collect()
    before = entries()
    executable = load(small())
    assert len(entries() - before) == 1
    del executable
    gc.collect()
    assert entries() == before


def test_entries_of_dropped_modules_remain_while_linecache_iterates() -> None:
    executable = load(small())
    names = list(linecache.cache)
    del executable
    gc.collect()
    assert all(name in linecache.cache for name in names)
    kept = load(small(BODY))
    dropped = [name for name in names if name.startswith("<module") and name not in entries()]
    assert kept and not any(name in linecache.cache for name in dropped)


def test_lines_stay_while_another_module_of_the_same_source_lives() -> None:
    gc.collect()
    before = entries()
    first, second = load(small()), load(small())
    del first
    gc.collect()
    assert len(entries() - before) == 1
    del second
    gc.collect()
    assert entries() == before


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
