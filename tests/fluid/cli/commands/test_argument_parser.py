"""Errors of command lines: two lines that name the command, the mistake and the help."""

import pytest

from fluid.cli import main as cli

MISTAKES = [
    ("infer m --inputs x.npy", "fluid infer: there is no option --inputs: did you mean '--input'?"),
    ("infer m --nothing=3", "fluid infer: there is no option --nothing"),
    ("infer m --input 1 2 3", "fluid infer: '2' is a word too many: quote values with spaces"),
    ("infer", "fluid infer: the following arguments are required: MODEL"),
    ("run", "fluid run: the following arguments are required: SCRIPT"),
    ("run --bogus a.py", "fluid run: there is no option --bogus"),
    ("ps status --jsn h:1", "fluid ps status: there is no option --jsn: did you mean '--json'?"),
    (
        "infer m --time-limit 0",
        "fluid infer: argument --time-limit: '0' is not a number of seconds",
    ),
    ("run --trace / a.py", "fluid run: argument --trace: / is a folder, expected a file to write"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_mistakes(line, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(line.split())
    assert stopped.value.code == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith(message)
    assert not shown[0].endswith("...")
    command = message.partition(":")[0]
    assert shown[1:] == [f"  hint: {command} --help lists the options and has examples"]


def test_ctrl_c_while_modules_are_imported(capsys, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser", interrupted)
    assert cli.main(["infer", "m"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "\nfluid infer: stopped; nothing was left half-written\n"
