"""`fluid launch`: real processes, their variables and logs, and how a job ends."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from fleet.launch import agent, servers
from fleet.launch.arguments import add_arguments, job_of
from fleet.launch.logs import attempt_files
from fleet.launch.server_arguments import ServerLaunch
from fleet.launch.variables import first_host, member_of

ROOT = Path(__file__).parents[2]

SCRIPT = """\
import os, sys
import paddle.fluid as fluid
rank = os.environ["PADDLE_TRAINER_ID"]
ends = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
assert os.environ["PADDLE_CURRENT_ENDPOINT"] == ends[int(rank)] and len(set(ends)) == len(ends)
print("rank", rank, "of", os.environ["PADDLE_TRAINERS_NUM"], "pid", os.getpid(), sys.argv[1:], flush=True)
"""
FAILS_ONCE = """\
from pathlib import Path
mark = Path(sys.argv[1])
if rank == "1" and not mark.exists():
    mark.touch()
    raise ValueError("rank 1 fails in its first attempt")
"""
FAILS = """\
import time
if rank == "1":
    raise ValueError("rank 1 fails")
time.sleep(60)
"""
ABORTS = "os.abort()\n"
SLEEPS = "import time\ntime.sleep(60)\n"


def command(tmp_path: Path, body: str, *flags: str) -> list[str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + body)
    return [
        sys.executable, "-m", "fleet.launch", "--nproc_per_node", "2",
        "--log_dir", str(tmp_path / "logs"), *flags, str(script),
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def launch(tmp_path: Path, body: str, *flags: str) -> subprocess.CompletedProcess[str]:
    inputs = command(tmp_path, body, *flags)
    return subprocess.run(inputs, env=environment(), capture_output=True, text=True, timeout=120)


def log(tmp_path: Path, name: str) -> str:
    return (tmp_path / "logs" / name).read_text()


def test_a_restarted_job_succeeds_and_keeps_the_logs_of_both_attempts(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = command(tmp_path, FAILS_ONCE, "--max_restarts", "1")
    done = subprocess.run(
        [*script, str(mark)], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout and "rank 1 of 2" not in done.stdout
    assert "fails in its first attempt" in log(tmp_path, "workerlog.1")
    assert "rank 1 of 2" in log(tmp_path, "workerlog.1.1")


def test_the_first_failure_ends_the_job_and_is_shown_last(tmp_path: Path) -> None:
    done = launch(tmp_path, FAILS)
    assert done.returncode == 1
    assert "rank 1 (local rank 1, pid " in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: rank 1 fails")
    assert "fleet/launch" not in done.stderr.rpartition("Traceback")[2]


def test_the_log_of_a_process_that_a_signal_ends_says_where_it_was(tmp_path: Path) -> None:
    done = launch(tmp_path, ABORTS, "--nproc_per_node", "1")
    assert done.returncode == 128 + signal.SIGABRT
    text = log(tmp_path, "workerlog.0")
    assert "Fatal Python error: Aborted" in text and "train.py" in text


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_ends_leaves_no_process(tmp_path: Path, sent: signal.Signals) -> None:
    started = subprocess.Popen(
        command(tmp_path, SLEEPS), env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = wait_for_pids(tmp_path, 2)
    started.send_signal(sent)
    _, said = started.communicate(timeout=30)
    assert wait_until(lambda: not any(map(alive, pids)))
    if sent is signal.SIGINT:
        assert started.returncode == 130
        assert "stopped by SIGINT" in said


def test_launchers_pass_their_pid_on() -> None:
    pid = f"--parent={os.getpid()}"
    assert pid in agent._worker_arguments(agent.LaunchJob(Path("t.py")))
    assert pid in servers._worker_arguments(ServerLaunch(Path("t.py")))


def test_a_process_whose_launcher_has_ended_does_not_run_its_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('runs')")
    done = subprocess.run(
        [sys.executable, "-m", "fleet.launch.worker", "--parent=1", "--", str(script)],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")


READS = """
import paddle.fluid as fluid
def endless():
    while True:
        yield 1
print("reads", flush=True)
for each in fluid.io.multiprocess_reader([endless, endless])():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [["launch_ps"], ["launch", "--nproc_per_node", "2"]])
def test_launchers_killed_at_any_moment_leave_no_process(tmp_path: Path, kind: list[str]) -> None:
    script, random = tmp_path / "script.py", Random(1)
    script.write_text(READS)
    for number in range(5):
        mark = f"{tmp_path}-{number}"
        started = subprocess.Popen(
            [sys.executable, "-m", "fluid", *kind, "--log_dir", str(tmp_path), str(script)],
            env={**environment(), "MARK": mark}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert wait_until(lambda mark=mark: len(marked(mark)) > 1, seconds=60)
        time.sleep(random.uniform(0, 1))
        started.kill()
        started.wait()
        assert wait_until(lambda mark=mark: not marked(mark), seconds=8)


def marked(mark: str) -> list[int]:
    """The processes that have a value of MARK in their environment."""
    results: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"MARK={mark}\0".encode() in (place / "environ").read_bytes():
                results.append(int(place.name))
    return results


def wait_for_pids(tmp_path: Path, count: int) -> list[int]:
    results: list[int] = []

    def ready() -> bool:
        files = (tmp_path / "logs").glob("workerlog.*") if (tmp_path / "logs").exists() else ()
        results[:] = [int(f.read_text().split()[5]) for f in files if " pid " in f.read_text()]
        return len(results) == count

    assert wait_until(ready, seconds=60)
    return results


def wait_until(done: object, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# ---- flags ----


def parsed(*flags: str, environ: dict[str, str] | None = None) -> object:
    command = argparse.ArgumentParser()
    add_arguments(command)
    return job_of(command.parse_args([*flags, __file__, "--lr", "0.1"]), environ or {})


def test_flags_of_release_1_8_name_machines_and_gpus() -> None:
    job = parsed("--cluster_node_ips", "10.0.0.1,10.0.0.2", "--node_ip", "10.0.0.2",
                 "--selected_gpus", "2,3", "--started_port", "6170")  # fmt: skip
    assert (job.least_machines, job.most_machines, job.master) == (2, 2, "10.0.0.1:29400")
    assert job.cluster is not None and job.machine == 1
    assert job.cluster.trainers_endpoints() == [
        "10.0.0.1:6170", "10.0.0.1:6171", "10.0.0.2:6170", "10.0.0.2:6171",
    ]  # fmt: skip
    assert (job.processes, job.gpus, job.started_port) == (2, ("2", "3"), 6170)
    assert job.arguments == ("--lr", "0.1")


def test_one_machine_named_as_in_scripts_of_shell_meets_at_a_free_port() -> None:
    job = parsed("--cluster_node_ips=127.0.0.1", "--print_config=False", "--log_level=10")
    assert (job.least_machines, job.most_machines, job.master) == (1, 1, "")


def test_machines_of_paddlecloud_come_from_the_environment() -> None:
    cloud = {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2"}
    job = parsed(
        "--use_paddlecloud", environ={**cloud, "POD_IP": "10.0.0.2", "PADDLE_PORT": "7000"}
    )
    assert (job.least_machines, job.master, job.address) == (2, "10.0.0.1:29400", "10.0.0.2")
    assert job.started_port == 7000
    assert parsed("--use_paddlecloud").most_machines == 1
    with pytest.raises(ValueError, match="POD_IP is not set"):
        parsed("--use_paddlecloud", environ=cloud)


def test_endpoints_of_paddlecloud() -> None:
    ends = "10.0.0.1:1,10.0.0.1:2,10.0.0.1:3,10.0.0.2:4,10.0.0.2:5,10.0.0.2:6"
    cloud = {
        "PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2", "POD_IP": "10.0.0.2",
        "DISTRIBUTED_TRAINER_ENDPOINTS": ends, "CUDA_VISIBLE_DEVICES": "4,5",
    }  # fmt: skip
    flags = ["--use_paddlecloud", "--selected_gpus=4,5"]
    job = parsed(*flags, environ=cloud)
    assert job.cluster is not None
    own = job.cluster.pods[job.machine].trainers
    assert [(t.rank, t.endpoint, t.gpus) for t in own] == [
        (2, "10.0.0.2:4", ["0"]), (3, "10.0.0.2:5", ["1"]),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"has 6 endpoints, expected 4: 2 \(TRAINER_PORTS_NUM\)"):
        parsed(*flags, environ={**cloud, "TRAINER_PORTS_NUM": "2"})
    with pytest.raises(ValueError, match=r"10\.0\.0\.1 has 3 endpoints, expected 4"):
        parsed("--use_paddlecloud", "--nproc_per_node=4", environ=cloud)


def test_machines_meet_first_where_a_flag_is_about_their_meeting() -> None:
    machines = ["--cluster_node_ips=a,b", "--node_ip=a"]
    assert parsed(*machines).cluster is not None
    for flag in ("--master=a:1", "--max_restarts=1", "--rdzv_conf=join_timeout=5"):
        assert parsed(*machines, flag).cluster is None


def test_processes_of_one_machine_among_several_start_at_once(tmp_path: Path) -> None:
    machines = "--cluster_node_ips=127.0.0.1,127.0.0.2", "--node_ip=127.0.0.2"
    shown = """
keys = "PADDLE_TRAINER_ID PADDLE_CURRENT_ENDPOINT PADDLE_TRAINER_ENDPOINTS CPU_NUM".split()
print(*(os.environ[key] for key in keys), flush=True)
if rank == "3":
    raise ValueError("rank 3 fails")
time = __import__("time").sleep(60)
"""
    done = launch(tmp_path, shown, *machines)
    ends = "127.0.0.1:6070,127.0.0.1:6071,127.0.0.2:6070,127.0.0.2:6071"
    assert f"2 127.0.0.2:6070 {ends} 1" in log(tmp_path, "workerlog.2")
    assert f"3 127.0.0.2:6071 {ends} 1" in log(tmp_path, "workerlog.3")
    assert "[2] rank 2 of 4" in done.stdout and "rank 3 of 4" not in done.stdout
    assert done.returncode == 1 and "fluid launch: worker 3 (pid " in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: rank 3 fails")


def test_settings_of_the_rendezvous() -> None:
    job = parsed("--nnodes", "1:2", "--master", "h:1", "--rdzv_conf", "last_call_timeout=2,a=b")
    assert job.rendezvous == (("last_call_timeout", "2"), ("a", "b"))
    assert (job.least_machines, job.most_machines) == (1, 2)
    said = "meets 1 to 2 machines at h:1; each of them runs the same command"
    assert agent.meeting_of(job).text == said


def test_the_number_of_processes_comes_from_the_environment() -> None:
    assert parsed(environ={"CPU_NUM": "3"}).processes == 3
    assert parsed(environ={"FLAGS_selected_gpus": "0,1"}).processes == 2
    assert parsed().processes == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nnodes", "2"], "need --master"),
        (["--rdzv_conf", "a"], "--rdzv_conf is 'a', expected NAME=VALUE"),
        (["--nnodes", "3:1"], "--nnodes is '3:1'"),
        (["--cluster_node_ips", "a,b", "--node_ip", "c"], "--node_ip is 'c', expected one of a, b"),
        (["--nproc_per_node", "3", "--selected_gpus", "0"], "from 1 to the 1 GPUs"),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(*flags)


# ---- variables ----


def test_members_of_torchrun_and_slurm() -> None:
    assert member_of({}) is None
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_PORT": "29500"}
    member = member_of(torchrun)
    assert member is not None and (member.rank, member.world, member.local_rank) == (3, 4, 1)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[07-08]"}
    member = member_of(slurm | {"SLURM_JOB_ID": "20001"})
    assert member is not None and (member.master, member.port) == ("n07", 20001)
    assert member_of({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None


def test_a_malformed_variable_is_named() -> None:
    with pytest.raises(ValueError, match=r"MASTER_PORT is not set, expected a whole .*torchrun"):
        member_of({"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="RANK is 'x'"):
        member_of({"RANK": "x", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="SLURM_JOB_NODELIST"):
        first_host("[1]")


def test_attempts_write_other_files(tmp_path: Path) -> None:
    envs = {0: {"RANK": "4"}}
    assert attempt_files(tmp_path, 0, envs)[0][0].endswith("workerlog.4")
    assert attempt_files(tmp_path, 2, envs)[0][0].endswith("workerlog.4.2")
