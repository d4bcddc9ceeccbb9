"""The side of a server: what comes in, the steps it completes, how it lives and ends.

Read `inbox` and `shard` (synchronous steps), `delayed` (gradients as they come), `exchange` and
`calls` (what trainers ask), `members` and `finish` (who takes part), `snapshot`, then `server`.
"""
