"""Parameter servers: variables stored on servers and updated there.

`settings` and `service` are the configuration of a process; `wire` has messages and gRPC, `serving`
the server, `training` the trainer; `status` reads what `fluid ps status` prints.
"""
