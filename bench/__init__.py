"""Benchmarks: memory of the arena, compile time in ms, time of a training step in ms."""
