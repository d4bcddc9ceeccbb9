"""Helpers that scripts take from the launcher of release 1.8."""

import argparse

import pytest

from fluid.compat.paddle.distributed.launch import _print_arguments, get_gpus
from fluid.compat.paddle.distributed.utils import add_arguments


def test_gpus_are_positions_among_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert get_gpus("0, 1") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert get_gpus("6,4") == [2, 0]
    with pytest.raises(ValueError, match="GPU 7 is not in CUDA_VISIBLE_DEVICES=4,5,6"):
        get_gpus("7")


def test_arguments_are_printed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments("rate", float, 0.5, "Learning rate.", parser)
    add_arguments("gpu", bool, True, "On a GPU.", parser)
    _print_arguments(parser.parse_args(["--gpu", "no"]))
    assert capsys.readouterr().out.splitlines()[1:-1] == ["gpu: False", "rate: 0.5"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--gpu", "perhaps"])
    assert "'perhaps', expected true or false" in capsys.readouterr().err
