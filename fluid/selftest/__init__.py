"""`fluid selftest`: every family of native kernels on this machine, compared with the reference.

Read `cases` (what a case is), `families` and `more_families` (the tables), `trial` (one case on one
level of the CPU), then `command`, which runs them within the time and prints one line a family.
"""
