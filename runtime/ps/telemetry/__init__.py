"""Telemetry of servers and trainers: log lines and traces.

`logs` writes lines with role, number and step; `trace` records the spans of one process, and
`merge` joins the traces of all processes of a job.
"""
