"""Commands that look for wrong results: fuzzers, attacks, mutants, faults, sizes. See README.md."""
