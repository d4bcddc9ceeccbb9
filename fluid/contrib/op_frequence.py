"""Op statistics of a program: counts by type and of adjacent pairs."""

from __future__ import annotations

from collections import Counter

from fluid.contrib.arguments import expect_program
from fluid.framework import Program

__all__ = ["op_freq_statistic"]

Counts = list[tuple[str, int]]


def op_freq_statistic(program: Program) -> tuple[Counts, Counts]:
    """Count ops by type and pairs `producer->consumer`, in descending order.

    Parameters are not counted as results. Raises TypeError for anything but a Program.
    """
    expect_program(program, "op_freq_statistic")
    parameters = {param.name for param in program.blocks[0].all_parameters()}
    single, pairs, writers = Counter[str](), Counter[str](), dict[str, str]()
    for op in program.global_block().ops:
        read = [name for name in op.input_arg_names if name not in parameters]
        pairs.update(f"{writers[name]}->{op.type}" for name in read if name in writers)
        writers |= dict.fromkeys(op.output_arg_names, op.type)
        single[op.type] += bool(set(op.output_arg_names) - parameters)
    return (+single).most_common(), pairs.most_common()
