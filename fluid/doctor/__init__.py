"""`fluid doctor`: whether this machine and environment can run old scripts and models.

`checks` looks at one thing each and returns what it saw as `Diagnosis` objects, which `command`
prints; `caches` shows and empties caches.
"""
