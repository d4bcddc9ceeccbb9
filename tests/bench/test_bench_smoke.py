"""Every benchmark runs on its smallest setting, and what needs no clock is right.

No test asserts a time.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fluid
from bench import ahead, compile_time, memory, native_calls, peak, serve, step, transpilers, waits
from bench.packing import allocators, files
from bench.support import lines, table
from bench.workers import serve as serving
from bench.workers.peers import started
from compiler.codegen.native.host import detected
from compiler.pack import Lifetime
from runtime.native.threads import available
from tests.support.nets import timed

SERVING = "from bench.workers.protocol import serve; serve(lambda *request: lambda: print('noise'))"


# Models


@pytest.mark.parametrize(
    ("name", "ops"), [("fit_a_line", 13), ("digits_mlp", 29), ("lenet_bn", 35), ("resnet_cifar8", 73)]
)  # fmt: skip
def test_models_have_the_ops_that_the_reference_records(name: str, ops: int) -> None:
    assert len(timed.model(fluid, name).main.global_block().ops) == ops


def test_synthetic_programs_have_the_requested_length() -> None:
    recorded = timed.record(fluid, timed.synthetic(840), timed.sgd)
    kinds = {op.type for op in recorded.main.global_block().ops}
    assert abs(len(recorded.main.global_block().ops) - 840) <= 42
    assert {"mul", "relu_grad", "scale", "sum", "sgd"} <= kinds


# Memory


def test_memory_of_models() -> None:
    rows = list(memory.measure(["digits_mlp", "sentiment_conv"], [4]))
    assert [row["mode"] for row in rows] == ["training", "inference"] * 2
    for row in rows:
        assert row["bound"] == row["arena"] <= row["buffers"]
        assert row["moved"] == 0.0
        assert row["as written"] >= row["+ order"] >= row["+ in place"]
    assert "met     arena ÷ bound at most 1.0000" in memory.report(rows)


def test_memory_of_a_large_model_is_planned_and_not_run() -> None:
    row = next(memory.measure(["lenet_bn"], [2], large=True))
    assert "moved" not in row and row["plan ms"] > 0.0


def test_transpilers_on_a_model() -> None:
    """More rows are in tests/fluid, with every model in `bench/transpilers.py` itself."""
    one = {"rows": 2, "steps": 2}
    (row,) = transpilers.measure(
        ["mobilenet_block"], lambda name, s: transpilers.folded(name, one["rows"], s), image=8
    )
    assert (row["norms"], row["folded"], row["left"]) == (4, 4, 0)
    assert "met     0 norms with a preceding layer remain" in transpilers.report_folded([row])
    row = transpilers.rewritten("fit_a_line", one["rows"], one["steps"], {})
    assert (row["moved"], row["deletions"]) == (0.0, 7)
    assert row["level 1"] <= row["level 0"] < row["MB by name"]
    assert "goal 0, bit for bit" in transpilers.report_rewritten([row])


def test_memory_of_recorded_lives(tmp_path: Path) -> None:
    text = "id,lower,upper,size\n0,0,2,64\n1,1,3,128\n2,2,4,64\n"
    (tmp_path / "three.csv").write_text(text, encoding="utf-8")
    (row,) = files.measure_files(tmp_path)
    assert (row["lives"], row["buffers"], row["arena"], row["bound"]) == (3, 256, 192, 192)
    assert "three" in files.report_files([row])


def test_hard_cases_report_what_fits(tmp_path: Path) -> None:
    text = "id,lower,upper,size\n0,0,2,1048576\n1,2,3,64\n"
    (tmp_path / "D.1048576.csv").write_text(text, encoding="utf-8")
    rows, lowest = (list(files.measure_cases(low, tmp_path)) for low in (False, True))
    shown = files.report_cases(rows, lowest)
    assert "1 of 1 fit 1,048,576" in shown and "not lower" in shown


def test_other_ways_of_allocating() -> None:
    shrinking = [Lifetime(0, 1, 256), Lifetime(1, 3, 64), Lifetime(1, 3, 64), Lifetime(3, 4, 320)]
    assert allocators.exact_size(shrinking) == 256 + 2 * 64 + 320
    assert allocators.best_fit(shrinking) == 320
    apart = [Lifetime(0, 1, 64), Lifetime(0, 3, 64), Lifetime(0, 1, 64), Lifetime(1, 2, 128)]
    assert allocators.best_fit(apart) == 256
    assert allocators.first_fit(apart) == 256
    # The token of 256 shrinks to nothing smaller: 320 makes it grow.
    assert allocators.token(shrinking) == 320 + 64
    assert allocators.greedy_by_size(shrinking) == 320


def test_packing_policies_match_recorded_results() -> None:
    lives = files.read_lives(files.DATA / "buffers" / "infer_densenet121.csv")
    results = [policy(lives) / 7_225_344 for policy in allocators.POLICIES.values()]
    assert [round(each, 3) for each in results] == [10.075, 1.343, 1.222, 1.222, 1.111]


# Compile time


def test_compile_time_of_a_model_and_of_synthetic_programs() -> None:
    model = compile_time.measure_model("fit_a_line", repeats=1)
    synthetic = list(compile_time.measure_synthetic([84, 168], repeats=1))
    assert {"to_graph", "schedule", "reuse_memory", "emit", "python"} <= set(model["stages"])
    assert "growth" in compile_time.report(model, synthetic)


# Steps


def test_steps_beside_torch() -> None:
    (row,) = step.measure(["fit_a_line"], step.Whom(), threads=1, rounds=1)
    bindings = list(step.measure_binding(["fit_a_line"], sizes=2))
    assert min(row["ours"], row["torch"], row["ours ÷ torch"], row["noise"]) > 0
    assert "the reference is skipped" in step.report([row], bindings)


def test_kernels_are_built_beside_triton_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    ahead.main(["--target", "hip:gfx942", "--models", "lenet_bn"])
    shown = capsys.readouterr().out
    assert "lenet_bn, vs. Triton by itself" in shown
    assert "met     0 memory-bound kernels spill" in shown


def test_another_batch_size_binds_and_compiles_nothing() -> None:
    (row,) = step.measure_binding(["lenet_bn"], sizes=2)
    assert (row["compiles"], row["bindings"]) == (0, 2)


def test_peers_answer_and_their_noise_is_kept_apart() -> None:
    environment = {"PYTHONPATH": str(step.ROOT)}
    with started([sys.executable, "-c", SERVING], environment) as peer:
        assert peer.ask("any", "plain", 3) > 0
        assert peer.ask("any", "plain", 3) > 0


def test_a_peer_that_dies_reports_why() -> None:
    dying = started([sys.executable, "-c", "raise SystemExit('no such model')"], {})
    with dying as peer, pytest.raises(RuntimeError, match="no such model"):
        peer.ask("any", "plain", 1)


# Serving


def test_requests_in_threads() -> None:
    (row,) = serve.measure(["sentiment_conv"], 1, [2], reference=None, rounds=1)
    assert min(row["shared"], row["clones"], row["ms"]) > 0
    assert "the reference is skipped" in serve.report([row])


@pytest.mark.parametrize("name", serve.MODELS)
def test_both_ways_to_ask_give_the_same(name: str, tmp_path: Path) -> None:
    folder = serve.save(name, 2, tmp_path / name)
    ways = serving.clones, serving.shared
    (first,), (second,) = (way(fluid, folder, 2)[-1]() for way in ways)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


# Peak memory


def test_the_most_memory_a_process_held() -> None:
    (row,) = peak.measure(["ours"], {"inference": (1, 32)}, None)
    assert row["peak MB"] > row["above import MB"] > 90  # the weights alone are 102 MB
    assert "Peak memory of ResNet-50" in peak.report([row])


# Output


def test_json_lines_begin_with_the_machine() -> None:
    said = lines.json_lines({"step": [{"model": "fit_a_line", "ours": 0.1}]})
    first, second = map(json.loads, said.splitlines())
    assert first["bench"] == "machine"
    assert {"machine", "cpus", "python", "numpy", "torch"} <= first.keys()
    assert second == {"bench": "step", "model": "fit_a_line", "ours": 0.1}


def test_a_table_shows_what_is_missing() -> None:
    shown = table.table("T", [{"a": "x", "b": None}, {"a": "yy", "b": 2.0}], {"a": "", "b": ".1f"})
    assert shown.splitlines() == ["T", "  a     b", "  x     –", "  yy  2.0"]


def test_a_wait_is_measured_in_a_process_of_its_own() -> None:
    (row,) = waits.measure(["new length"], None, rounds=1)
    assert row["ours ms"] > 0
    assert "the reference is skipped" in waits.report([row])
    compared = {**row, "1.8.5 ms": 2.0, "ours ÷ 1.8.5": 0.5}
    assert "met     new length: 0.50 × the time of 1.8.5" in waits.report([compared])


def test_native_calls_and_threads_beside_a_process() -> None:
    machine = detected()
    if machine is None:
        pytest.skip("no native code for this CPU")
    assert all(row["ns"] > 0 for row in native_calls.call_costs(machine))
    if available() > 1:
        rows = list(native_calls.beside(machine, 1, rounds=3))
        assert [row["quantile"] for row in rows] == ["0%", "10%", "50%", "90%", "mean"]
