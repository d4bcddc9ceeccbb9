"""The side of a trainer: what modules call, and how it reaches servers that come back.

Read `steps` and `pair` (synchronous steps), `pushes` and `communicator` (gradients that nobody
waits for), `watch` (heartbeats), then `trainer`.
"""
