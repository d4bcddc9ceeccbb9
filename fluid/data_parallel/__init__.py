"""Data-parallel runs: one program on several devices, gradients summed over all of them.

Read in this order: `strategies` (the settings users see), `rewrite` (collectives in a copy of the
program), `sharding` (the Reduce strategy), `split_feeds` and `merge_fetches` (rows to devices and
back), `devices` (worker processes and their state), `runner` (one step on all devices).
"""
