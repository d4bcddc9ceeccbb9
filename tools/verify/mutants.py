"""Breaks the PTX of kernels on purpose, and counts how many of the broken ones are noticed.

    python -m tools.verify.mutants                 all kinds, on the largest calls of the listed ops
    python -m tools.verify.mutants --only softmax --show

Each mutant is one change: a barrier or a wait for copies removed, an offset shifted, the mask of an
access dropped, two pointers swapped, or a launch with half the shared memory, twice the warps or a
grid too small. A mutant is caught if the machine reports it, with hazards looked for, or if a
result differs. Others are harmless if the command proves it (`tools.verify.mutations`), and counted
apart:

- no thread makes the access whose offset is shifted, or all make that whose mask is dropped;
- whatever else the changed access loads or leaves in shared memory, random bits in its place give
  the same results bit by bit: it reaches only padding, or stores what another thread stores;
- no byte of shared memory is accessed by different threads, one of which writes, on both sides of
  the barrier that is removed; nobody accesses what lands at the wait that is removed;
- the pointers that are swapped are equal: the op works in place.

`--show` lists what is neither, with its line.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.support.table import goal, table
from compiler.ir.opdef import listed
from tests.tools.ptx.on_machine import (
    TOLERANCE,
    cases,
    module_of,
    on_machine,
    run_and_compare,
)
from tools.ptx.counters.observers import Access
from tools.ptx.errors import PtxError
from tools.ptx.group import Group
from tools.ptx.hazards import Hazards
from tools.ptx.instructions import Kernel
from tools.ptx.library import Library
from tools.verify.mutations.effects import shifted, without_mask
from tools.verify.mutations.proofs import Place, are_equal, effect_reaches_nothing, orders_nothing

OPS = (
    "softmax", "layer_norm", "matmul", "conv2d", "conv2d_grad", "batch_norm", "pool2d",
    "reduce_sum", "lookup_table_grad", "cumsum", "argsort", "cross_entropy", "transpose2",
    "elementwise_add_grad", "sequence_pool", "adam", "top_k", "concat",
)  # fmt: skip
MOST = 12
"""Most mutants of a kind that are made of one module."""
SHIFT = 16
"""Bytes that an offset is shifted by."""
GOAL = 0.95
LAUNCHES = ("pointers swapped", "warps doubled", "shared memory halved", "grid too small")
"""Kinds of changes of a launch."""

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
    place: Place | None = None


class Threads(Hazards):
    """Records how many threads made the access of each PTX line, and how many could have.

    `parameters` are those of each kernel's launches; kernels are known by their `id`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made, self.most = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self.parameters: dict[int, list[Mapping[str, bytes]]] = {}

    def _check(self, group: Group, access: Access, written: Any) -> None:
        line = id(group.kernel), access.instruction.line
        self.parameters.setdefault(id(group.kernel), []).append(group.parameters)
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

    def kernel(self, text: str, name: str) -> Kernel:
        """A kernel of a text that was loaded."""
        return self._modules[self.texts.index(text)][name].kernel

    def cuLaunchKernel(self, function: Any, *given: Any) -> int:
        """Launch a kernel, changed."""
        *sizes, stream, arguments, extra = given
        changed = self.mutant.launch([*sizes])
        return super().cuLaunchKernel(function, *changed, stream, arguments, extra)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants, and print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="OP", default=OPS, help="ops (%(default)s)")
    parser.add_argument("--show", action="store_true", help="list mutants that were not caught")
    parser.add_argument("--page", type=Path, help="write the table to this file, too")
    options = parser.parse_args(arguments)
    generated, harmless, caught, left = Counter[str](), Counter[str](), Counter[str](), list[str]()
    for kind, case in _calls(options.only):
        module = module_of(case)
        for mutant in [] if module is None else _mutants(case, module):
            generated[mutant.kind] += 1
            if mutant.is_harmless:
                harmless[mutant.kind] += 1
            elif outcome(case, module, mutant):
                caught[mutant.kind] += 1
            elif is_proven(module, mutant):
                harmless[mutant.kind] += 1
            else:
                left.append(f"{kind}: {mutant.kind}: {mutant.line}")
    text = _report(generated, harmless, caught)
    print("\n".join([text, *(f"  not caught: {mutant}" for mutant in left if options.show)]))
    if options.page:
        title = "# Broken kernels that the PTX machine notices (sm_80); no device was used"
        page = f"{title}\n\n`python -m tools.verify.mutants`; see its help and docs/ptx.md.\n\n"
        options.page.write_text(f"{page}```\n{text}\n```\n", encoding="utf-8")
    return 0


def _report(made: Counter[str], harmless: Counter[str], caught: Counter[str]) -> str:
    """A row for each kind of change, and the goals."""
    rows = [
        {
            "change": change,
            "made": n,
            "harmless": harmless[change],
            "caught": caught[change],
            "share": caught[change] / max(1, n - harmless[change]),
        }
        for change, n in made.items()
    ]
    columns = {"change": "", "made": "d", "harmless": "d", "caught": "d", "share": ".0%"}
    lines = [table("Broken kernels", rows, columns)]
    launches = sum(made[change] - harmless[change] for change in LAUNCHES)
    for what, n, count, least in (
        ("changes", caught.total(), made.total() - harmless.total(), GOAL),
        ("launch errors", sum(caught[change] for change in LAUNCHES), launches, 1.0),
    ):
        lines.append(goal(f"{n} of {count} {what} caught", n >= least * count, f"{least:.0%}"))
    return "\n".join(lines)


def _calls(only: Any) -> Iterator[tuple[str, Any]]:
    """The largest call of each op, by the elements of its results."""
    cases_by_kind: dict[str, list[Any]] = {}
    for kind, make, sample in cases():
        if kind in only:
            cases_by_kind.setdefault(kind, []).append(make(sample))
    for kind, group in cases_by_kind.items():
        yield kind, max(group, key=_elements)


def _elements(case: Any) -> int:
    return sum(array.size for value in case.results.values() for array in listed(value))


def outcome(case: Any, module: Any, mutant: Mutant) -> str:
    """What was noticed of a mutant: the kind of error; empty if nothing."""
    library = MutatedLibrary(mutant)
    try:
        run_and_compare(case, *module, 80, TOLERANCE["fp32"], library)
    except (PtxError, AssertionError) as error:
        return type(error).__name__
    return ""


def is_proven(module: Any, mutant: Mutant) -> bool:
    """Whether a mutant that was not noticed is harmless for certain."""
    place = mutant.place
    if place is None:
        return False

    def run(watcher: Any) -> Sequence[Any]:
        return on_machine(module[0], Library(80, hazards=watcher))(module[1])

    if mutant.kind in ("barrier removed", "wait removed"):
        return orders_nothing(place, run, mutant.kind)
    change = without_mask if mutant.kind == "mask dropped" else partial(shifted, by=SHIFT)
    return effect_reaches_nothing(place, run, change)


def _mutants(case: Any, module: Any) -> Iterator[Mutant]:
    plain = Mutant("none", "")
    library = MutatedLibrary(plain)
    run_and_compare(case, *module, 80, TOLERANCE["fp32"], library)
    for text in dict.fromkeys(library.texts):
        for kind, pattern, change in CHANGES:
            matches = [*re.finditer(pattern, text, re.MULTILINE)]
            for match in matches[:: max(1, len(matches) // MOST)][:MOST]:
                place = _place(library, text, match)
                harmless = _is_harmless(kind, library.threads, place)
                changed = _replaced(text, match, change(match))
                yield Mutant(kind, match[0].strip(), harmless, changed, place=place)
        yield from _swapped(text, library)
    yield from _launches(library)


def _place(library: MutatedLibrary, text: str, found: re.Match[str]) -> Place:
    names = re.findall(r"\.entry (\w+)", text[: found.end()])
    return Place(library.kernel(text, names[-1]), text.count("\n", 0, found.end()) + 1)


def _is_harmless(kind: str, threads: Threads, place: Place) -> bool:
    """Whether no thread makes an access that is shifted, or all make one whose mask is dropped."""
    line = id(place.kernel), place.line
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
        lambda found: f"{found[1]}{int(found[2]) + SHIFT}",
    ),
    (
        "mask dropped",
        r"^(\s*)@!?%p\d+ ((?:ld|st)\.(?:global|shared))",
        lambda found: found[1] + found[2],
    ),
)
"""Kinds of changes, the text that each replaces, and by what."""


def _swapped(text: str, library: MutatedLibrary) -> Iterator[Mutant]:
    """The first two pointers of a kernel in each other's place."""
    loads = [*re.finditer(r"ld\.param\.b64\s+(%rd\d+), \[(\w+)\];", text)]
    if len(loads) >= 2:
        a, b = loads[0][2], loads[1][2]
        changed = text.replace(f"[{a}]", "[?]").replace(f"[{b}]", f"[{a}]").replace("[?]", f"[{b}]")
        kernel = library.kernel(text, re.findall(r"\.entry (\w+)", text)[0])
        harmless = are_equal(a, b, library.threads.parameters.get(id(kernel), []))
        yield Mutant(
            "pointers swapped", f"{a}, {b}", harmless, lambda t: changed if t == text else t
        )


def _launches(library: MutatedLibrary) -> Iterator[Mutant]:
    """Changes of launches, of those kinds that some launch can have."""
    if not library.launched:
        return
    yield Mutant("warps doubled", "", launch=lambda s: [*s[:3], 2 * s[3], *s[4:]])
    if any(launch.shared for launch in library.launched):
        yield Mutant("shared memory halved", "", launch=lambda s: [*s[:6], s[6] // 2])
    if any(max(launch.grid) > 1 for launch in library.launched):
        yield Mutant(
            "grid too small", "", launch=lambda s: [*(max(1, n - 1) for n in s[:3]), *s[3:]]
        )


if __name__ == "__main__":
    sys.exit(main())
