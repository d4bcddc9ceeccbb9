"""What `cpu.py` compares: its rows, the processes that run them, and models written for others.

Read `rows.py` (what is compared), `race.py` (how times are taken), `runners.py` (the processes),
`saved.py` (the same weights for everyone, in the formats of all), then the other tables:
`starts.py`, `growth.py`, `precision.py`, and `page.py`, which prints all.
"""
