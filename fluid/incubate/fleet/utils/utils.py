"""Program files under the name of release 1.8."""

from fleet.program_files import (
    check_pruned_program_vars,
    graphviz,
    load_program,
    parse_program,
    program_type_trans,
    save_program,
)

__all__ = [
    "check_pruned_program_vars",
    "graphviz",
    "load_program",
    "parse_program",
    "program_type_trans",
    "save_program",
]
