"""The role of a process in a distributed job: worker or server, its rank, and all endpoints.

`base.py` has the interface and its collectives, `variables.py` reads environment variables, and
`cloud.py`, `user_defined.py` and `general.py` have the role makers of release 1.8.
"""
