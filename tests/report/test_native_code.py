"""Native code in reports: kernels and costs of steps, reasons for NumPy, the roofline chart."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from compiler.codegen.native.host import detected
from compiler.debugging.explanation import Study, study_graph
from compiler.ir.text.parser import parse
from compiler.report.kernel_lines import kernels
from compiler.report.native_code import CpuLimits
from compiler.report.roofline_chart import Point, roofline_chart
from fluid.cli.profiling import native as native_profile
from tests.fluid.test_cli import GOLDEN, refused, run

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

GRAPH = """
graph main {
  feed x: f32[N, 64]
  param w: f32[64, 32]
  (Out=h: f32[N, 32]) = mul(X=x, Y=w)  // net.py:1
  (Out=y: f32[N, 32]) = relu(X=h)  // net.py:2
  (Out=z: f32[N, 32]) = uniform_random_batch_size_like(Input=x) {'shape': [-1, 32]}  // net.py:3
  return y, z
}
"""
LIMITS = CpuLimits(2, 1000e9, {1 << 18: 50e9, 1 << 27: 10e9})


@pytest.fixture(scope="module")
def seen() -> Study:
    return study_graph("net", parse(GRAPH, "net.ir"), {"N": 8}, target="native")


def test_a_step_has_its_kernels_cost_and_line(seen: Study) -> None:
    first, last = seen.native().steps
    assert (first.kinds, first.source, first.reason) == ("mul+relu", "net.py:1", "")
    assert first.flops >= 2 * 8 * 64 * 32
    assert first.moved >= 4 * (8 * 64 + 64 * 32 + 8 * 32)
    assert first.intensity == first.flops / first.moved
    assert all(f"@{name}(" in seen.module.kernels_ir[name] for name in first.kernels)
    assert (last.kernels, last.reason) == ((), "it draws from NumPy's generator")


def test_a_measured_step_is_compared_with_the_roofline(seen: Study) -> None:
    first = seen.native().steps[0]
    comments = tuple(f"{op.text}  {op.source}" for op in seen.compiled.plan.steps[0].ops)
    report = seen.native({comments: 4 * first.moved / 50e9}, LIMITS)
    assert report.share(report.steps[0]) == pytest.approx(0.25)
    assert "mul+relu" in report.chart()
    text = str(report)
    assert "25 %" in text
    assert "in NumPy: uniform_random_batch_size_like (net.py:3): it draws from" in text


def test_bandwidth_is_interpolated_between_the_measured_sizes() -> None:
    small, large = LIMITS.bandwidths
    ends = [LIMITS.bandwidth(n) for n in (0, 1, small, large, 1 << 40)]
    assert ends == pytest.approx([50e9, 50e9, 50e9, 10e9, 10e9])
    assert LIMITS.bandwidth(round((small * large) ** 0.5)) == pytest.approx((50e9 * 10e9) ** 0.5)


def test_chart_escapes_names() -> None:
    points = [Point('<script>"&\n', 0.5, 3.0, 1e-3), Point("b", 64.0, 90.0, 1e-6)]
    root = ElementTree.fromstring(roofline_chart("a < b", 100.0, {"1 MiB": 50.0}, points))
    circles = [each for each in root if each.tag.endswith("circle")]
    assert len(circles) == 2
    assert circles[0][0].text.startswith('<script>"&')  # pyright: ignore
    for circle in circles:
        assert 60 <= float(circle.get("cx", "")) <= 580
        assert 60 <= float(circle.get("cy", "")) <= 360


def test_the_page_has_ir_and_assembly_beside_the_step(seen: Study) -> None:
    report = seen.native(assembly=dict.fromkeys(seen.module.kernels_ir, "ret"))
    result = report.data()
    names, flops, moved, reason, seconds, share = result["steps"][0]
    assert result["kernels"][names[0]] == [seen.module.kernels_ir[names[0]], "ret"]
    assert (flops > 0, moved > 0, reason, seconds, share) == (True, True, "", None, None)
    assert result["chart"] == ""
    page = seen.html(native=report)
    assert "function nativeStep" in page
    assert "define void @" in page


def test_the_lines_of_a_native_step_are_its_commands(seen: Study) -> None:
    source, steps = seen.module.source, seen.compiled.plan.steps
    first, last = kernels(source, steps)[0], kernels(source, steps)[-1]
    text = source.splitlines()[first.first : first.stop]
    assert [each.strip()[:6] for each in text[:2]] == ["# h = ", "# y = "]
    assert "mul_relu" in text[-1]
    assert "np" in "".join(source.splitlines()[last.first : last.stop])


def test_inspect_measures_steps_and_draws_the_roofline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_profile, "HELD", (1 << 18, 1 << 20))
    monkeypatch.setattr(native_profile, "SECONDS", 0.01)
    monkeypatch.setattr(native_profile, "RUNS", 3)
    chart, page = tmp_path / "roofline.svg", tmp_path / "page.html"
    model = GOLDEN / "digits_mlp__separate"
    files = ("--chart", chart, "--html", page, "--dump", tmp_path)
    printed = run(capsys, "inspect", model, "--profile", *files)
    written = sorted(path.suffix for path in (tmp_path / "kernels").iterdir())
    assert written == [".ll"] * (len(written) // 2) + [".s"] * (len(written) // 2)
    assert "GFLOP/s" in printed
    assert "of roof" in printed
    assert ElementTree.fromstring(chart.read_text()).tag.endswith("svg")
    assert "vfmadd" in page.read_text() or "fmla" in page.read_text()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--profile", "--target", "numpy"], "--profile is for native code"),
        (["--chart", "x.svg"], "--chart requires --profile"),
    ],
)
def test_options_that_need_another_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], reason: str
) -> None:
    assert reason in refused(capsys, "inspect", GOLDEN / "digits_mlp__separate", *options)
