"""`paddle.distributed`: the launchers of release 1.8, as modules to run with `python -m`."""
