"""The server: incoming messages, the steps it completes, its life cycle.

Read `inbox` and `shard` (synchronous steps), `delayed` (gradients as they arrive), `exchange` and
`calls` (requests of trainers), `members` and `finish` (participants), `snapshot`, then `server`.
"""
