"""Files handed from one process to another by the bench, here with ours on both sides."""

from pathlib import Path

import numpy as np

from tools.verify import exchange


def test_what_is_written_is_read_in_every_way(tmp_path: Path) -> None:
    exchange.write(None, "digits_mlp", tmp_path / "ours")
    result = exchange.read(None, "digits_mlp", tmp_path / "ours")
    row = exchange.compared("digits_mlp", tmp_path / "ours", result)
    assert set(result) == {*exchange.INFERENCE, "params", *exchange.LOSSES}
    assert (row["failed"], row["outputs"], row["losses"]) == ({}, 0.0, 0.0)


def test_exchange_failures_name_their_way(tmp_path: Path) -> None:
    np.savez(tmp_path / "numbers.npz", output=np.zeros(2), losses=np.ones(3))
    results = {"separate": np.zeros(2), "state": np.array("LookupError: no such name")}
    row = exchange.compared("word2vec", tmp_path, results)
    assert (row["ways"], row["outputs"], row["losses"]) == (2, 0.0, None)
    told = exchange.report([{**row, "model": "word2vec", "written by": "ours", "read by": "1.8.5"}])
    assert "word2vec, ours → 1.8.5, state: LookupError: no such name" in told
    assert "MISSED  1 of 2 readings fail" in told
