"""Generators that convert raw lines to samples, for the pipe command of a dataset.

Subclass a generator, define `generate_sample`, and end the script with `run_from_stdin()`:
`dataset.set_pipe_command("python my_generator.py")`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from fluid.recording.narrowing import is_list

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Sample = Sequence[tuple[str, Sequence[object]]]
"""Names and values: `[("words", [1926, 8, 17]), ("label", [1])]`."""


class DataGenerator:
    """Reads lines, makes samples of them, and prints these batch by batch."""

    def __init__(self) -> None:
        self.batch_size_ = 32
        self._line_limit: int | None = None

    def _set_line_limit(self, line_limit: int) -> None:
        """Store a limit of lines, without effect; ValueError unless it is a positive integer."""
        if not isinstance(line_limit, int) or line_limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"line_limit must be an int of 1 or more, not {line_limit!r}")
        self._line_limit = line_limit

    def set_batch(self, batch_size: int) -> None:
        """Set how many samples `generate_batch` takes."""
        self.batch_size_ = batch_size

    def run_from_memory(self) -> None:
        """Print the samples that `generate_sample(None)` makes."""
        self._print(self.generate_sample(None)())

    def run_from_stdin(self) -> None:
        """Print the samples of every line of the standard input."""
        self._print(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def _print(self, samples: Iterable[Sample | None]) -> None:
        batch: list[Sample] = []
        for sample in samples:
            if sample is None:
                continue
            batch.append(sample)
            if len(batch) == self.batch_size_:
                self._print_batch(batch)
                batch = []
        if batch:
            self._print_batch(batch)

    def _print_batch(self, batch: list[Sample]) -> None:
        sys.stdout.writelines(self._gen_str(sample) for sample in self.generate_batch(batch)())

    def _gen_str(self, line: Sample) -> str:
        raise NotImplementedError("derive from MultiSlotDataGenerator or its string form")

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Sample | None]]:
        """A function whose result are the samples of a line; to be written."""
        raise NotImplementedError(
            "write generate_sample: it returns a function that yields [(name, [value, ...]), ...]"
        )

    def generate_batch(self, samples: list[Sample]) -> Callable[[], Iterable[Sample]]:
        """A function whose result are the samples of a batch, in the order to print them."""

        def each() -> Iterator[Sample]:
            yield from samples

        return each


class MultiSlotStringDataGenerator(DataGenerator):
    """Values are texts, printed as they are."""

    def _gen_str(self, line: Sample) -> str:
        line = _as_sample(line, "[('words', ['1926', '08', '17']), ('label', ['1'])]")
        return " ".join(f"{len(values)} {' '.join(_texts(values))}" for _, values in line) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Values are whole numbers or floats; all samples have the same names in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] | None = None

    def _gen_str(self, line: Sample) -> str:
        line = _as_sample(line, "[('words', [1926, 8, 17]), ('label', [1])]")
        names = [name for name, _ in line]
        self._names = self._names or names
        if names != self._names:
            raise ValueError(f"a sample has the fields {names}, those before it {self._names}")
        return " ".join(_slot_text(name, values) for name, values in line) + "\n"


def _as_sample(line: Sample | zip[tuple[str, Sequence[object]]], example: str) -> Sample:
    """A sample as a list; `zip(names, values)` is one, as in scripts for Python 2."""
    if isinstance(line, zip):
        return list(line)
    if not isinstance(line, list | tuple):
        raise ValueError(f"a sample must be a list or a tuple, such as {example}, not {line!r:.60}")
    return line


def _texts(values: Sequence[object]) -> Iterator[str]:
    """The values of a field that are texts; TypeError for another one."""
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"values must be texts, but one is a {type(value).__name__}: {value!r}")
        yield value


def _slot_text(name: object, values: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"the name of a field must be a str, not {type(name).__name__}")
    if not is_list(values) or not values:
        raise ValueError(f"field {name!r} must be a list of one value at least: pad it")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"field {name!r} takes int and float, not {type(value).__name__}")
    return f"{len(values)} {' '.join(map(str, values))}"
