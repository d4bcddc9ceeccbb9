"""The trainer: what modules call, and how it reconnects to restarted servers.

Read `steps` and `pair` (synchronous steps), `pushes` and `communicator` (asynchronous gradients),
`watch` (heartbeats), then `trainer`.
"""
