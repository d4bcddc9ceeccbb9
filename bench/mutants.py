"""Breaks the PTX of kernels on purpose, and counts how many of the broken ones are noticed.

    python -m bench.mutants                     all kinds, on the largest calls of the listed ops
    python -m bench.mutants --only softmax --show

Each mutant is one change: a barrier or a wait for copies removed, an offset shifted, the mask of an
access dropped, two pointers swapped, or a launch with half the shared memory, twice the warps or a
grid too small. A mutant is caught if the machine reports it, with hazards looked for, or if a
result differs. Two kinds are harmless for certain, and are counted apart: the offset of an access
that no thread makes, and the mask of one that all threads make. `--show` lists what else was not
caught, with its line: much of it changes nothing, such as an offset within the padding of a tile,
or the pointers of an op that works in place.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.table import goal, table
from compiler.ir.opdef import listed
from runtime.ptx.counters.observers import Access
from runtime.ptx.errors import PtxError
from runtime.ptx.group import Group
from runtime.ptx.hazards import Hazards
from runtime.ptx.library import Library
from tests.runtime.ptx.on_machine import TOLERANCE, cases, module_of, run_and_compare

OPS = (
    "softmax", "layer_norm", "matmul", "conv2d", "conv2d_grad", "batch_norm", "pool2d",
    "reduce_sum", "lookup_table_grad", "cumsum", "argsort", "cross_entropy", "transpose2",
    "elementwise_add_grad", "sequence_pool", "adam", "top_k", "concat",
)  # fmt: skip
MOST = 12
"""Most mutants of a kind that are made of one module."""
GOAL = 0.95

Text = Callable[[str], str]
Launch = Callable[[list[int]], list[int]]


@dataclass
class Mutant:
    """One change: of a module's text, or of a launch's sizes (grid, block, shared bytes)."""

    kind: str
    line: str
    is_harmless: bool = False
    text: Text = str
    launch: Launch = list


class Threads(Hazards):
    """Records how many threads made the access of each PTX line, and how many could have."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.most = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

    def _check(self, group: Group, access: Access, written: Any) -> None:
        line = group.kernel.name, access.instruction.line
        self.made[line] += len(access.lanes)
        self.most[line] += group.ctas * group.threads
        super()._check(group, access, written)


class MutatedLibrary(Library):
    """The machine with a change to every module or launch; `texts` are the modules as given."""

    def __init__(self, mutant: Mutant) -> None:
        self.threads = Threads()
        super().__init__(80, hazards=self.threads)
        self.mutant = mutant
        self.texts: list[str] = []

    def cuModuleLoadData(self, place: Any, code: bytes) -> int:
        """Load a module, changed."""
        self.texts.append(code.rstrip(b"\0").decode())
        return super().cuModuleLoadData(place, self.mutant.text(self.texts[-1]).encode())

    def cuLaunchKernel(self, function: Any, *given: Any) -> int:
        """Launch a kernel, changed."""
        *sizes, stream, arguments, extra = given
        changed = self.mutant.launch([*sizes])
        return super().cuLaunchKernel(function, *changed, stream, arguments, extra)


def main() -> int:
    """Run the mutants, and print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="OP", default=OPS, help="ops (%(default)s)")
    parser.add_argument("--show", action="store_true", help="list mutants that were not caught")
    given = parser.parse_args()
    made, harmless, caught, left = Counter[str](), Counter[str](), Counter[str](), list[str]()
    for kind, case in _calls(given.only):
        module = module_of(case)
        for mutant in [] if module is None else _mutants(case, module):
            made[mutant.kind] += 1
            if mutant.is_harmless:
                harmless[mutant.kind] += 1
                continue
            found = outcome(case, module, mutant)
            caught[mutant.kind] += bool(found)
            left += [] if found else [f"{kind}: {mutant.kind}: {mutant.line}"]
    rows = [
        {
            "change": each,
            "made": n,
            "harmless": harmless[each],
            "caught": caught[each],
            "share": caught[each] / max(1, n - harmless[each]),
        }
        for each, n in made.items()
    ]
    columns = {"change": "", "made": "d", "harmless": "d", "caught": "d", "share": ".0%"}
    print(table("Broken kernels", rows, columns))
    for each in left if given.show else []:
        print(f"  not caught: {each}")
    count = made.total() - harmless.total()
    share = caught.total() / max(1, count)
    print(goal(f"{caught.total()} of {count} caught", share >= GOAL, f"{GOAL:.0%}"))
    return 0


def _calls(only: Any) -> Iterator[tuple[str, Any]]:
    """The largest call of each op, by the elements of its results."""
    found: dict[str, list[Any]] = {}
    for kind, make, sample in cases():
        if kind in only:
            found.setdefault(kind, []).append(make(sample))
    for kind, each in found.items():
        yield kind, max(each, key=_elements)


def _elements(case: Any) -> int:
    return sum(each.size for value in case.results.values() for each in listed(value))


def outcome(case: Any, module: Any, mutant: Mutant) -> str:
    """What was noticed of a mutant: the kind of error; empty if nothing."""
    library = MutatedLibrary(mutant)
    try:
        run_and_compare(case, *module, 80, TOLERANCE["fp32"], library)
    except (PtxError, AssertionError) as error:
        return type(error).__name__
    return ""


def _mutants(case: Any, module: Any) -> Iterator[Mutant]:
    plain = Mutant("none", "")
    library = MutatedLibrary(plain)
    run_and_compare(case, *module, 80, TOLERANCE["fp32"], library)
    for text in dict.fromkeys(library.texts):
        for kind, pattern, change in CHANGES:
            found = [*re.finditer(pattern, text, re.MULTILINE)]
            for each in found[:: max(1, len(found) // MOST)][:MOST]:
                harmless = _is_harmless(kind, library.threads, text, each)
                yield Mutant(kind, each[0].strip(), harmless, _replaced(text, each, change(each)))
        yield from _swapped(text)
    yield from _launches(library)


def _is_harmless(kind: str, threads: Threads, text: str, found: re.Match[str]) -> bool:
    """Whether no thread makes an access that is shifted, or all make one whose mask is dropped."""
    names = re.findall(r"\.entry (\w+)", text[: found.end()])
    line = names[-1], text.count("\n", 0, found.end()) + 1
    if kind == "offset shifted":
        return not threads.made[line]
    return kind == "mask dropped" and threads.made[line] == threads.most[line] > 0


def _replaced(whole: str, found: re.Match[str], by: str) -> Text:
    """A function that changes one place in one text."""
    changed = whole[: found.start()] + by + whole[found.end() :]
    return lambda text: changed if text == whole else text


CHANGES: tuple[tuple[str, str, Callable[[re.Match[str]], str]], ...] = (
    ("barrier removed", r"^\s*bar\.sync[^;]*;", lambda _: ""),
    ("wait removed", r"^\s*cp\.async\.wait_group[^;]*;", lambda _: ""),
    (
        "offset shifted",
        r"^(\s*(?:@!?%p\d+ )?(?:ld|st)\.(?:global|shared)[^\[;]*\[ ?%r?d?\d+ ?\+ ?)(\d+)",
        lambda found: f"{found[1]}{int(found[2]) + 16}",
    ),
    (
        "mask dropped",
        r"^(\s*)@!?%p\d+ ((?:ld|st)\.(?:global|shared))",
        lambda found: found[1] + found[2],
    ),
)
"""Kinds of changes, the text that each replaces, and by what."""


def _swapped(text: str) -> Iterator[Mutant]:
    """The first two pointers of a kernel in each other's place."""
    loads = [*re.finditer(r"ld\.param\.b64\s+(%rd\d+), \[(\w+)\];", text)]
    if len(loads) >= 2:
        a, b = loads[0][2], loads[1][2]
        changed = text.replace(f"[{a}]", "[?]").replace(f"[{b}]", f"[{a}]").replace("[?]", f"[{b}]")
        yield Mutant("pointers swapped", f"{a}, {b}", text=lambda t: changed if t == text else t)


def _launches(library: MutatedLibrary) -> Iterator[Mutant]:
    """Changes of launches, of those kinds that some launch can have."""
    yield Mutant("warps doubled", "", launch=lambda s: [*s[:3], 2 * s[3], *s[4:]])
    if any(each.shared for each in library.launched):
        yield Mutant("shared memory halved", "", launch=lambda s: [*s[:6], s[6] // 2])
    if any(max(each.grid) > 1 for each in library.launched):
        yield Mutant(
            "grid too small", "", launch=lambda s: [*(max(1, n - 1) for n in s[:3]), *s[3:]]
        )


if __name__ == "__main__":
    sys.exit(main())
