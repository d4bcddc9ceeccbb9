"""`fluid profile MODEL`: the time of each step of a saved model beside what this CPU reaches."""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.report.user_lines import Sources
from compiler.support.text_files import write_text
from fluid.cli.inspect import compiled
from fluid.cli.model import CommandError
from fluid.cli.profiling.native import native_report
from fluid.cli.subject import subject
from fluid.running.targets import default_target

__all__ = ["profile_model"]


def profile_model(given: argparse.Namespace) -> int:
    """Compile a model to machine code, run it on random inputs, and print the time of each step.

    Raises CommandError for options of scripts, and where programs run in NumPy.
    """
    if given.cpu or given.force or given.target == "numpy":
        raise CommandError("--cpu, --force and --target numpy are for scripts")
    if default_target() != "native":
        raise CommandError("no machine code on this system: see the times of fluid infer --profile")
    model = subject(given.path, given.model_filename, given.params_filename)
    seen = compiled(model, dict(given.size) | ({"N": given.batch} if given.batch else {}), "native")
    report = native_report(seen, True, bool(given.html))
    sizes = ", ".join(f"{name} = {number}" for name, number in seen.sizes.items())
    print(f"{seen.title}{f'; {sizes}' if sizes else ''}\n\n{report}")
    if given.chart:
        write_text(given.chart, report.chart())
        print(f"\nchart    {given.chart}: the steps below the roofline of this CPU")
    if given.html:
        page = seen.html({}, Sources([Path.cwd()]), None, report)
        write_text(given.html, page)
        print(f"\nreport   {given.html}: kernels with LLVM IR and assembly")
    return 0
