"""The trainer: what modules call, and how it reconnects to restarted servers.

Read `gradient_packer` and `stream` (synchronous steps), `numbered_gradients` and `communicator`
(asynchronous gradients), `heartbeats`, then `trainer`.
"""
