"""Every name that a module of Paddle 1.8.5 defines exists here, or is listed with a reason.

`api.modules` was recorded from the reference: one module per line with the names that it defines.
`fluid/compat/absent_names.txt` lists absent names by reason; `*` means a whole module.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fluid.compat.absent import FILE

MODULES = Path(__file__).with_name("api.modules")
LOOK = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
import fluid
from fluid.compat.absent import AbsentName
fluid.install_as_paddle()
missing = {}
for module, names in json.load(sys.stdin).items():
    try:
        found = importlib.import_module(module)
    except ImportError:
        missing[module] = ["*"]
        continue
    if isinstance(found, AbsentName):
        missing[module] = ["*"]
        continue
    absent = [name for name in names if not hasattr(found, name)]
    if absent:
        missing[module] = absent
json.dump(missing, sys.stdout)
"""


def listed(file):
    """Names by module."""
    lines = file.read_text().splitlines()
    pairs = (line.split(": ") for line in lines if line and not line.startswith("#"))
    return {module: names.split() for module, names in pairs}


@pytest.fixture(scope="module")
def missing():
    text = json.dumps(listed(MODULES))
    done = subprocess.run(
        [sys.executable, "-c", LOOK], input=text, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_what_is_missing_is_listed(missing):
    known = listed(FILE)
    assert {m: names for m, names in missing.items() if known.get(m) != names} == {}


def test_what_is_listed_is_missing(missing):
    assert {m for m in listed(FILE) if m not in missing} == set()


def test_counts(missing):
    recorded = listed(MODULES)
    total = sum(map(len, recorded.values()))
    absent = sum(len(recorded[m]) if n == ["*"] else len(n) for m, n in missing.items())
    text = f"{total - absent:,} of {total:,} names"
    assert text in (MODULES.parents[2] / "docs" / "old_scripts.md").read_text()
