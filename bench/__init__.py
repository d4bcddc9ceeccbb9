"""Benchmarks: memory of the arena, milliseconds of compiling, milliseconds of a training step."""
