"""The protocol between trainers and servers: messages, single calls, gRPC, token and TLS.

Read `frames` (messages), `layout` (offsets in a vector), `packets` (requests and responses),
`rows` (sparse gradients), `transport` (gRPC), `security`, then `peers` (calls with retries).
"""
