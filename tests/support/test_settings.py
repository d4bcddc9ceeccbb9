"""Environment variables are declared and read in one place, and docs/settings.md lists them."""

import re
from pathlib import Path

import pytest

from compiler.options import Options
from compiler.support.settings import __main__ as page
from compiler.support.settings.setting import (
    BUDGET,
    BYTES,
    ENDPOINTS,
    FIRST_POSITIVE,
    FLAG,
    FOLDER,
    NAMES,
    NUMBERS,
    SECONDS,
    Setting,
    choice,
    export,
    exported,
)

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "compiler" / "support" / "settings"
START_UP = ROOT / "fluid" / "compat" / "startup" / "on_path" / "sitecustomize.py"
"""Runs before anything of these packages can be imported."""
TARGET = Setting("FLUID_TARGET", choice("native", "numpy"), "native", "")
READS = re.compile(r"\bos\.(environ|getenv)\b|from os import .*\b(environ|getenv)\b")


def test_the_page_of_settings_is_up_to_date(update: bool) -> None:
    path = ROOT / "docs" / "settings.md"
    if update:
        path.write_text(page.page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page.page()


def test_no_other_module_reads_the_environment() -> None:
    files = [path for package in page.PACKAGES for path in (ROOT / package).rglob("*.py")]
    others = [path for path in files if path.parent != HOME and path != START_UP]
    assert [str(path) for path in others if READS.search(path.read_text("utf-8"))] == []


def test_every_setting_has_its_own_name_and_a_reader() -> None:
    readers = page.readers_of(ROOT)
    for _, _, names in page.SECTIONS:
        for setting in page.declared(names):
            assert names.get(setting.name, setting) is setting
            assert setting.help and readers.get(setting.name), setting.name


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (FLAG, "Yes", True), (FLAG, "0", False), (BYTES, "2 GiB", 1 << 31), (BYTES, "5", 5),
        (BUDGET, "60%", "60%"), (NAMES, "a, b,", ("a", "b")), (NUMBERS, "0, 2", (0, 2)),
        (FIRST_POSITIVE, "6,2", 6), (SECONDS, "0.5", 0.5), (ENDPOINTS, "a:1, b:2", ("a:1", "b:2")),
        (FOLDER, "/x/", "/x"),
    ],
)  # fmt: skip
def test_settings_parse_their_text(kind, text, value) -> None:
    assert Setting("V", kind, None, "").read({"V": text}) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FLAG, "maybe"), (BYTES, "60%"), (BUDGET, "x%"), (NUMBERS, "0,x"),
        (FIRST_POSITIVE, "0"), (SECONDS, "0"), (SECONDS, "inf"), (SECONDS, "soon"),
        (ENDPOINTS, "a:1,a:1"), (ENDPOINTS, "a"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_its_value_and_what_is_expected(kind, text) -> None:
    with pytest.raises(KeyError, match=re.escape(f"V is {text!r}, expected {kind.expected}")):
        Setting("V", kind, None, "").read({"V": text}, KeyError)


def test_an_empty_variable_is_not_set() -> None:
    assert TARGET.read({"FLUID_TARGET": " "}) == "native"
    assert TARGET.read_or("numpy", {}) == "numpy"
    with pytest.raises(ValueError, match="FLUID_TARGET is not set, expected native or numpy"):
        TARGET.require({})


def test_settings_are_read_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CHECK", "2")
    assert Options.from_env().check == 2
    monkeypatch.setenv("FLUID_CHECK", "3")
    with pytest.raises(ValueError, match="FLUID_CHECK is '3', expected 0, 1 or 2"):
        Options.from_env()


def test_exported_variables_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_TARGET", "numpy")
    with exported({"FLUID_TARGET": None}):
        assert not TARGET.is_set()
        export({"FLUID_TARGET": "native"})
    assert TARGET.read() == "numpy"
