"""The hook by which the runtime loads the PTX machine, a tool of a checkout."""

import sys

import pytest

from runtime.errors import PlaceError
from runtime.gpu import drivers


def test_ptx_machine_is_a_module_of_the_checkout() -> None:
    assert drivers.ptx_machine("library").__name__ == "tools.ptx.library"


def test_ptx_machine_missing_names_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(drivers, "_CHECKOUT", drivers.Path(str(tmp_path)))
    monkeypatch.setitem(sys.modules, "tools", None)
    monkeypatch.delitem(sys.modules, "tools.ptx", raising=False)
    monkeypatch.delitem(sys.modules, "tools.ptx.library", raising=False)
    with pytest.raises(PlaceError, match="tools/ptx of the source repository"):
        drivers.ptx_machine("library")
