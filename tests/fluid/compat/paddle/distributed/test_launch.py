"""Helpers that scripts take from the launcher of release 1.8."""

import argparse

import pytest

from fluid.compat.paddle.distributed.cloud_utils import get_cloud_cluster, get_trainers_num
from fluid.compat.paddle.distributed.launch import (
    _print_arguments,
    get_cluster_from_args,
    get_gpus,
    launch,
)
from fluid.compat.paddle.distributed.launch_ps import start_procs
from fluid.compat.paddle.distributed.utils import Cluster, Pod, Trainer, add_arguments


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


def test_the_job_of_a_command_line() -> None:
    args = argparse.Namespace(
        cluster_node_ips="a,b", node_ip="b", started_port=None, use_paddlecloud=False
    )
    cluster, pod = get_cluster_from_args(args, ["0", "1"])
    assert cluster.trainers_endpoints() == ["a:6070", "a:6071", "b:6070", "b:6071"]
    assert (cluster.trainers_nranks(), cluster.pods_nranks()) == (4, 2)
    assert pod.trainers == [Trainer(["0"], "b:6070", 2), Trainer(["1"], "b:6071", 3)]
    args.cluster_node_ips = args.node_ip = "127.0.0.1"
    _, alone = get_cluster_from_args(args, ["0", "1"])
    assert len({trainer.endpoint for trainer in alone.trainers}) == 2
    args.node_ip = "c"
    with pytest.raises(ValueError, match="--node_ip is 'c', expected one of"):
        get_cluster_from_args(args, ["0"])


def test_the_job_of_paddlecloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PADDLE_TRAINERS": "a,b", "POD_IP": "b", "PADDLE_TRAINERS_NUM": "2", "PADDLE_PORT": "70",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    _, pod = get_cloud_cluster("127.0.0.1", "127.0.0.1", None, ["0"])
    assert pod.trainers == [Trainer(["0"], "b:70", 1)] and get_trainers_num() == 2
    monkeypatch.setenv("TRAINER_PORTS_NUM", "1")
    _, pod = get_cloud_cluster("127.0.0.1", "127.0.0.1", None, ["0", "1"])
    assert [trainer.endpoint for trainer in pod.trainers] == ["b:6170", "b:6171"]


def test_machines_of_a_cluster() -> None:
    pod = Pod(0, 7, "a", 1, gpus=[0, 2])
    cluster = Cluster(pods=[pod, Pod(1)])
    assert cluster.get_pod_by_id("7") is pod and cluster.get_pod_by_id(8) is None
    assert pod.get_visible_gpus() == "0,2"
    with pytest.raises(ValueError, match="machine 1 has no endpoint"):
        cluster.pods_endpoints()
    other = Cluster()
    other.update_pods(cluster)
    assert other == cluster and other.pods is not cluster.pods


def test_jobs_of_scripts_end_with_their_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    args = argparse.Namespace(script=argparse.Namespace(is_file=lambda: False))
    for run in (launch, start_procs):
        with pytest.raises(ValueError, match="is no file"):
            run(args)
