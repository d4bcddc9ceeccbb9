"""Fleets with parameter servers; there is `distribute_transpiler` only, no PSLIB."""
