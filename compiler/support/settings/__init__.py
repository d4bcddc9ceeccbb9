"""Every environment variable that the four packages read: its name, values, default and meaning.

A variable is a `Setting`, in a constant of its own name: `FLUID_TARGET.read()`. Variables are read
when they are used, so scripts may set `os.environ` before. No other package of the project looks at
the environment; it is here, in `compiler.support`, since every package may import that.

- `setting`: the type of a declaration, the kinds of values, and the process's environment.
- `fluid`, `parameter_servers`: our own variables, FLUID_* and FLUID_PS_*.
- `paddle`: the names of Paddle 1.8, FLAGS_* and PADDLE_*.
- `systems`: variables of launchers and of other libraries.
- `declarations`: all of them, and variables that only look like one.

`python -m compiler.support.settings` prints docs/settings.md.
"""
