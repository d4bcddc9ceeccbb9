"""Launcher: runs a script once per device on one or several machines, by torch elastic.

Read `arguments.py` (the command line), `agent.py` (the configuration of torch's agent), `worker.py`
(the entry point of each process) and `variables.py` (the environment that scripts of release 1.8
read).
"""
