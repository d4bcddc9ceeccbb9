"""Parameter servers: variables that live on servers and are updated there (seeds 000 to 002).

Read `frames.py` (messages), `layout.py` (what lies where on a server), `wire.py` (gRPC), then the
server's and the trainer's side.
"""
