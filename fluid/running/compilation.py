"""Compilation of a program for an Executor: one module per digest, shape signature
and fetch list.
"""

from __future__ import annotations

from dataclasses import replace

import compiler
from compiler.codegen.module import Module
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.text.program_printer import program_digest
from compiler.options import Options
from fluid.framework import Program
from fluid.running import feed_checks, flags
from fluid.running.early_kernels import TargetOrName, with_early_kernels
from fluid.running.module_cache import compiled_once
from fluid.running.targets import chosen_target
from runtime.errors import missing_feed
from runtime.loader import Params
from runtime.sizes import Pattern

__all__ = ["compile_constant", "compile_program", "digest"]


def digest(program: Program) -> str:
    """Return a key that is equal for programs whose modules are equal."""
    return program_digest(program) + "+numbers" * flags.checks_numbers()


def compile_constant(
    target: str, program: Program, feed: Pattern, fetch: list[str], params: Params
) -> Module:
    """Compile over constant parameter values, which passes may fold."""
    return compile_program(target, program, feed, fetch, params)


def compile_program(
    target: str, program: Program, feed: Pattern, fetch: list[str], params: Params | None = None
) -> Module:
    """Compile a program; raises FeedError if a variable that it reads is not fed."""
    missing = feed_checks.missing_feeds(program, set(feed))
    if missing:
        op = next(iter(missing.values()))
        raise missing_feed(
            [feed_checks.declared_feed(program, name) for name in missing],
            op=op_text(op),
            source=op.source,
            hint="feed it, or pass use_prune=True if what is fetched does not need it",
        )
    options = Options.from_env()
    if flags.checks_numbers():
        options = replace(options, check_numbers=True)
    target = chosen_target(target, options)

    def compile_for(target: TargetOrName) -> Module:
        return compiler.compile(
            program, feed=feed, fetch=fetch, target=target, params=params, options=options,
            watch_state=params is None,
        )  # fmt: skip

    def compile() -> Module:
        return with_early_kernels(target, compile_for)

    if params is not None:
        return compile()
    return compiled_once(target, options, program, feed, fetch, compile)
