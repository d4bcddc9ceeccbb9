"""Runs attacks on the compiler and the runtime: `python tools/verify/attack.py NAME [options]`.

An attack is a module of `tools/verify/attacks` with `main(arguments) -> int`; the exit code is 0 if
every case held. `python tools/verify/attack.py NAME --help` prints the options of one attack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.verify.attacks import attributes, models, programs, saves, shapes, strings, values, wire

ATTACKS: dict[str, Callable[[Sequence[str]], int]] = {
    "strings": strings.main,
    "models": models.main,
    "saves": saves.main,
    "programs": programs.main,
    "attributes": attributes.main,
    "shapes": shapes.main,
    "values": values.main,
    "wire": wire.main,
}


def main() -> int:
    """Run the attack named on the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(ATTACKS), help="which attack")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the attack")
    options = parser.parse_args()
    return ATTACKS[options.name](options.options)


if __name__ == "__main__":
    sys.exit(main())
