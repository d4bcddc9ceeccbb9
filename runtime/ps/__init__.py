"""Parameter servers: variables that live on servers and are updated there (seeds 000 to 002).

`settings` and `service` say what a process is given; `wire` has messages and gRPC, `serving` the
server's side, `training` the trainer's; `status` reads what `fluid ps status` shows.
"""
