"""Starts a script once for each device, on one machine or several, over torch.distributed.elastic.

Read `arguments.py` (what users type), `agent.py` (what torch's agent is given), `worker.py` (what
runs in each process) and `variables.py` (the environment that scripts of release 1.8 read).
"""
