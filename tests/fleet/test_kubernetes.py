"""The manifests in docs/kubernetes: each pod knows its role, and pods find each other."""

import re
from pathlib import Path

import pytest

from fleet.roles.cloud import PaddleCloudRoleMaker
from runtime.ps.settings import Settings

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "kubernetes"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def manifests(name):
    """The objects of a file by kind and name."""
    result = list(yaml.safe_load_all((FOLDER / name).read_text()))
    return {(each["kind"], each["metadata"]["name"]): each for each in result}


JOB = manifests("parameter_servers.yaml")
SERVERS, TRAINERS = JOB["Job", "fluid-ps-servers"], JOB["Job", "fluid-ps-trainers"]


def container(job):
    (result,) = job["spec"]["template"]["spec"]["containers"]
    return result


def environ(job, number):
    """The environment of one pod of an Indexed Job, as the kubelet makes it."""
    known = {}
    for each in container(job)["env"]:
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == INDEX
            value = str(number)
        else:
            value = "secret" if source else each["value"]
        assert isinstance(value, str), each  # numbers need quotes, or the API refuses them
        known[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: known[name[1]], value)
    return known


def pods(job):
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    return [environ(job, number) for number in range(spec["completions"])]


@pytest.mark.parametrize("job", [SERVERS, TRAINERS], ids=["servers", "trainers"])
def test_each_pod_has_its_role(monkeypatch, job):
    for number, known in enumerate(pods(job)):
        with monkeypatch.context() as patch:
            for name, value in known.items():
                patch.setenv(name, value)
            role = PaddleCloudRoleMaker()
            role.generate_role()
            assert role.is_server() == (job is SERVERS)
            assert (role.server_index() if job is SERVERS else role.worker_index()) == number
            assert role.worker_num() == TRAINERS["spec"]["completions"]
            assert len(role.get_pserver_endpoints()) == SERVERS["spec"]["completions"]


def test_endpoints_are_names_of_pods():
    service = JOB["Service", "fluid-ps"]
    spec = SERVERS["spec"]["template"]["spec"]
    (port,) = [each["port"] for each in service["spec"]["ports"]]
    names = [
        f"{SERVERS['metadata']['name']}-{number}.{spec['subdomain']}:{port}"
        for number in range(SERVERS["spec"]["completions"])
    ]
    for known in [*pods(SERVERS), *pods(TRAINERS)]:
        assert known["PADDLE_PSERVERS_IP_PORT_LIST"].split(",") == names
    assert spec["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"  # headless: pods have names of their own
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": SERVERS["metadata"]["name"]}
    assert container(SERVERS)["ports"] == [{"containerPort": port}]


def test_pods_that_fail_continue():
    for job in (SERVERS, TRAINERS):
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
        for known in pods(job):
            settings = Settings.from_env({n: v for n, v in known.items() if "TOKEN" not in n})
            assert settings.policy == "wait"
    (mount,) = container(SERVERS)["volumeMounts"]
    assert mount["mountPath"] == pods(SERVERS)[0]["FLUID_PS_SNAPSHOT_DIR"]
    (volume,) = SERVERS["spec"]["template"]["spec"]["volumes"]
    assert volume["name"] == mount["name"]
    assert {known["FLUID_PS_TOKEN"] for known in [*pods(SERVERS), *pods(TRAINERS)]} == {"secret"}


def test_servers_accept_connections_from_their_job_only():
    spec = JOB["NetworkPolicy", "fluid-ps"]["spec"]
    assert spec["podSelector"]["matchLabels"] == {"job-name": SERVERS["metadata"]["name"]}
    ((peer,),) = [rule["from"] for rule in spec["ingress"]]
    (label,) = peer["podSelector"]["matchExpressions"]
    names = {job["metadata"]["name"] for job in (SERVERS, TRAINERS)}
    assert (label["key"], set(label["values"])) == ("job-name", names)
    assert spec["ingress"][0]["ports"] == [{"port": int(pods(SERVERS)[0]["PADDLE_PORT"])}]


def test_the_job_without_servers_starts_what_fluid_run_reads():
    trainer = manifests("trainjob.yaml")["TrainJob", "fluid-training"]["spec"]["trainer"]
    assert trainer["command"][:5] == ["torchrun", "--module", "fluid", "run", "/workspace/train.py"]
    assert all(isinstance(each["value"], str) for each in trainer["env"])
