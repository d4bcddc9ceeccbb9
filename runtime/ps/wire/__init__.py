"""What goes between trainers and servers: messages, single calls, gRPC, token and TLS.

Read `frames` (messages), `layout` (what lies where in a vector), `packets` (requests and answers),
`rows` (sparse gradients), `transport` (gRPC), `security`, then `peers` (calls that are repeated).
"""
