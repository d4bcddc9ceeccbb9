"""The lines of a step that CUDA graphs repeat.

A line that launches a kernel, or that copies between the memories of host and device, has the same
effect in every step if its arguments do not change. A run of such lines between those of the host
is captured as one graph:

    for (keys_host,) in graph_1(make_keys(generator, (-1,))):
        upload(keys, keys_host)
        dropout[(4,)](x, keys, out)
        ...

`graph_1` runs the lines once, captures them the second time, and then replays them without running
the body. Its arguments are the arrays that the lines upload, which may be others in each step.
Uploads before the first launch need no graph and are written before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from compiler.codegen.writer import Names, Writer
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

MIN_LAUNCHES = threshold(
    "captured_launches", 4, "launches",
    "so many between two ops of the host are a CUDA graph; fewer are launched one by one", small=1,
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class FixedLine:
    """A line that repeats the same work in each step: a launch, a call of a `library`, or a copy.

    An upload is made of `out` and `array`, the source texts of its operands; its array may be
    another one in each step.
    """

    is_launch: bool = False
    library: bool = False
    out: str = ""
    array: str = ""


@dataclass(frozen=True)
class _Unit:
    """A line of a step and the comments above it; `fixed` is None for a line of the host."""

    comments: Sequence[str]
    text: str
    fixed: FixedLine | None

    @property
    def lines(self) -> list[str]:
        return [*self.comments, self.text]


class GraphSegments:
    """Records which lines of a step, `body`, are fixed; writes each long run of them as a graph."""

    def __init__(self, body: Writer, names: Names) -> None:
        self._body = body
        self._names = names
        self._fixed: dict[int, FixedLine] = {}

    def line(self, text: str, fixed: FixedLine) -> None:
        """Write a line that repeats the same work in each step."""
        self._fixed[len(self._body.lines)] = fixed
        self._body.line(text)

    def write(self, setup: Writer) -> None:
        """Rewrite the step, now complete; `setup`, that of `bind`, creates the graphs."""
        units = [*self._units()]
        lines, run = list[str](), list[_Unit]()
        for unit in units:
            if unit.fixed is not None:
                run.append(unit)
                continue
            lines += self._segment(run, setup) + unit.lines
            run = []
        self._body.lines[:] = lines + self._segment(run, setup)

    def _units(self) -> Iterator[_Unit]:
        """The lines of the step with their comments; those that use a name of the step are not
        fixed.
        """
        comments, assigned = list[str](), self._assigned()
        for number, line in enumerate(self._body.lines):
            if line.lstrip().startswith("#"):
                comments.append(line)
                continue
            fixed = self._fixed.get(number)
            used = line if fixed is None or not fixed.array else fixed.out
            if fixed is not None and not assigned.isdisjoint(_NAME.findall(used)):
                fixed = None
            yield _Unit(comments, line, fixed)
            comments = []
        if comments:
            yield _Unit(comments[:-1], comments[-1], None)

    def _assigned(self) -> set[str]:
        """The names that the step assigns, whose values may differ between steps."""
        lines = [
            re.sub(r"\S.*", "pass", line) if number in self._fixed else line
            for number, line in enumerate(self._body.lines)
        ]
        tree = ast.parse("\n".join(["def step():", *lines, "        pass"]))
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        return {node.id for node in names if isinstance(node.ctx, ast.Store)}

    def _segment(self, run: Sequence[_Unit], setup: Writer) -> list[str]:
        """The lines of a run: its first uploads, then a graph if it has enough launches."""
        launches = [i for i, unit in enumerate(run) if unit.fixed and unit.fixed.is_launch]
        first = launches[0] if len(launches) >= MIN_LAUNCHES.value else len(run)
        lines = [line for unit in run[:first] for line in unit.lines]
        return lines + (self._graph(run[first:], setup) if first < len(run) else [])

    def _graph(self, run: Sequence[_Unit], setup: Writer) -> list[str]:
        name = self._names.make("graph")
        uses_library = any(unit.fixed and unit.fixed.library for unit in run)
        setup.line(f"{name} = graph({'library=True' * uses_library})")
        arrays, inputs, inner = list[str](), list[str](), list[str]()
        for unit in run:
            text = unit.text
            if unit.fixed is not None and unit.fixed.array:
                arrays.append(unit.fixed.array)
                inputs.append(self._names.make(f"{unit.fixed.out}_host"))
                text = f"        upload({unit.fixed.out}, {inputs[-1]})"
            inner += ["    " + line for line in (*unit.comments, text)]
        target = "_" if not inputs else f"({inputs[0]},)" if len(inputs) == 1 else ", ".join(inputs)
        return [f"        for {target} in {name}({', '.join(arrays)}):", *inner]
