"""The server: incoming messages, the steps it completes, its life cycle.

Read `inbox` and `shard` (synchronous steps), `asynchronous_shard` (gradients as they arrive),
`exchange` and `requests` (calls of trainers), `members` and `shutdown` (participants), `snapshot`,
then `server`.
"""
