"""Two trainers and two servers in synchronous steps, vs. Paddle 1.8.5 on the same machine.

    .venv/bin/python -m bench.parameter_server --reference ~/paddle18/bin/python
    .venv/bin/python -m bench.parameter_server --net two_layers_wide --tls --raw --reference …
    .venv/bin/python -m bench.parameter_server --net fit_a_line --soak 30

Runs alternate, and the medians of all rounds are compared. `--tls` adds our steps with mutual TLS;
`--raw` our exchange by trainers that compute nothing, and plain gRPC streams of the same bytes.
Bytes are those on a trainer's TCP connections; the minimum is that of gradients and parameters
only. `--soak` runs each net for a number of minutes and prints the steps per second and the memory
of each process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.support.ps_jobs import Job, alternated, certificates, soak

STEPS = {"fit_a_line": 1000, "two_layers_wide": 200, "table": 30}
ELEMENTS = {"fit_a_line": 14, "two_layers_wide": 1_002_001}
"""Parameters of a dense net: each is sent and received once per step, in 4 bytes."""


def role_job(python: str, module: str, net: str, steps: int, **environ: str) -> Job:
    """A job of `ps_role.py`."""
    return Job(python, "ps_role.py", (module,), (net, str(steps)), environ)


def jobs(given: argparse.Namespace, net: str, folder: Path) -> dict[str, Job]:
    """The jobs measured for a net, by name."""
    steps = given.steps or STEPS[net]
    jobs_by_name = {"ours": role_job(sys.executable, "fluid", net, steps)}
    if given.reference:
        jobs_by_name["reference"] = role_job(given.reference, "paddle.fluid", net, steps)
    if given.tls:
        jobs_by_name["tls"] = role_job(sys.executable, "fluid", net, steps, **certificates(folder))
    if given.raw and net in ELEMENTS:
        elements_text = str(ELEMENTS[net] * 4 // 2)
        jobs_by_name["exchange"] = Job(sys.executable, "ps_exchange.py", (), (net, str(steps)))
        jobs_by_name["raw"] = Job(sys.executable, "ps_stream.py", (), (elements_text, str(steps)))
    return jobs_by_name


def compare(given: argparse.Namespace, net: str) -> None:
    """Measure a net and print its lines."""
    with tempfile.TemporaryDirectory() as folder:
        results = alternated(jobs(given, net, Path(folder)), given.rounds)
    for name, line in results.items():
        if not line:
            print(f"{net:16} {name:10} did not end")
            continue
        text = f"{net:16} {name:10} {line['rate']:8.1f} steps/s, {line['cpu'] * 1e3:7.2f} ms of "
        text += "processor time a step and trainer"
        print(text + wire_text(net, line), flush=True)
    for name, line in results.items():
        ratios = [
            f"{line['rate'] / other['rate']:.2f} × {peer}"
            for peer, other in results.items()
            if peer in ("reference", "raw") and peer != name and line and other
        ]
        if ratios:
            print(f"{net:16} {name:10} = {', '.join(ratios)}")


def wire_text(net: str, line: dict[str, float]) -> str:
    """Bytes on the wire, and their ratio to the minimum."""
    if not line.get("sent"):
        return ""
    both = line["sent"] + line["received"]
    text = f", {both / 1e6:.4f} MB on the wire"
    if net in ELEMENTS:
        text += f" ({both / (2 * 4 * ELEMENTS[net]):.4f} × the least)"
    return text


def run_long(net: str, minutes: float) -> None:
    """Print steps per second and the memory of each process, a line per minute."""
    print(f"{net}: minute, steps/s, MB of server 0, server 1, trainer 0, trainer 1")
    seconds = min(60.0, minutes * 15.0)
    job = role_job(sys.executable, "fluid", net, 0)
    rows = []
    for rate, megabytes in soak(job, round(minutes * 60 / seconds), seconds):
        rows.append([rate, *megabytes])
        sizes = " ".join(f"{size:8.1f}" for size in megabytes)
        print(f"{len(rows) * seconds / 60:6.2f} {rate:8.1f} {sizes}", flush=True)
    names = ["steps/s", "server 0", "server 1", "trainer 0", "trainer 1"]
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        drift = (values[-1] / values[0] - 1) * 100
        print(
            f"{name:10} {min(values):9.1f} to {max(values):9.1f}, from first to last {drift:+.1f} %"
        )


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", help="a Python 3.7 with paddlepaddle 1.8.5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps of a round, unless those of each net")
    parser.add_argument("--net", choices=list(STEPS), action="append")
    parser.add_argument("--tls", action="store_true", help="also with mutual TLS")
    parser.add_argument(
        "--raw", action="store_true", help="also the exchange alone, and gRPC alone"
    )
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="one long run instead")
    options = parser.parse_args()
    for net in options.net or STEPS:
        if options.soak:
            run_long(net, options.soak)
        else:
            compare(options, net)


if __name__ == "__main__":
    main()
