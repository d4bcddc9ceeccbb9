"""Ids of trainers: each belongs to one process, which alone completes, aborts, pushes and saves."""

import numpy as np
import pytest

from runtime.errors import TryAgain, WireError
from runtime.ps.serving.asynchronous_shard import AsynchronousShard
from runtime.ps.serving.members import Members
from runtime.ps.serving.saves import save_folder
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.packets import pack, unpack
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import grpc, open_channel, stream_call, unary_call
from tests.runtime.ps.world import make_service, receive, send, world


@pytest.fixture
def members():
    return Members(2, lost_after=30.0, return_within=5.0)


def test_an_id_belongs_to_the_session_that_claims_it_first(members):
    members.link(0, "first")
    members.claim(0, "first")
    with pytest.raises(TryAgain, match="another process is connected as trainer 0"):
        members.claim(0, "second")
    members.expect_owner(0, Caller("first"))
    with pytest.raises(WireError, match="belongs to another process"):
        members.expect_owner(0, Caller("second"))
    with pytest.raises(TryAgain, match="claim the id first"):
        members.expect_owner(1, Caller("first"))
    with pytest.raises(WireError, match="there is no trainer 2"):
        members.claim(2, "first")


def test_a_restarted_trainer_takes_its_id_over_when_the_connection_is_gone(members):
    members.connect(0, "killed")
    members.disconnect(0, "killed")
    members.connect(0, "restarted")
    members.disconnect(0, "killed")  # the end of an old stream does not count
    assert members.members[0].links == members.members[0].streams == 1
    assert members.is_owner("restarted") and not members.is_owner("killed")


def test_a_trainer_has_two_exchanges_at_most(members):
    for _ in range(2):
        members.connect(0, "first")
    with pytest.raises(TryAgain, match="has 2 open exchanges"):
        members.connect(0, "first")
    members.disconnect(0, "first")
    members.connect(0, "first")


def test_a_trainer_without_heartbeats_loses_its_id(members):
    members.connect(0, "silent")
    members.members[0].beat -= 31
    members.connect(0, "restarted")
    with pytest.raises(WireError, match="belongs to another process"):
        members.expect_owner(0, Caller("silent"))


def refusal(channel, **header):
    """The status and the text with which a call is refused."""
    with pytest.raises(grpc().RpcError) as caught:
        unary_call(channel, "Call")(pack(header), timeout=5)
    return caught.value.code().name, caught.value.details()


def test_others_cannot_act_for_a_trainer(tmp_path):
    with world(1, save_dir=str(tmp_path)) as created:
        stranger = open_channel(created.endpoint, Security())
        grpc().channel_ready_future(stranger).result(5)
        for does in ("complete", "abort", "leave", "push", "save"):
            code, text = refusal(stranger, do=does, trainer=0, why="x")
            assert (code, "claim the id first" in text) == ("ABORTED", True)
        trainer = created.trainer(0)
        send(trainer, created.endpoint, 1.0)
        receive(trainer, created.endpoint)
        for does in ("complete", "abort", "leave", "push", "save"):
            code, text = refusal(stranger, do=does, trainer=0, why="x")
            assert (code, "another process" in text) == ("FAILED_PRECONDITION", True)
        send(trainer, created.endpoint, 1.0)
        np.testing.assert_array_equal(receive(trainer, created.endpoint), -2)
        stranger.close()
        trainer.complete()


def test_second_process_of_a_trainer_is_rejected():
    with world(1, reconnect=0.3, lost_after=30.0) as created:
        first, second = created.trainer(0), created.trainer(0)
        assert first.step == 0
        with pytest.raises(WireError, match="another process is connected as trainer 0"):
            assert second.step
        first.complete()


def test_a_trainer_claims_its_id_again_at_a_restarted_server():
    with world(1, reconnect=20.0) as created:
        trainer = created.trainer(0)
        assert trainer.step == 0
        created.end()
        created.start()
        trainer.complete()
        created.thread.join(5)
        assert not created.thread.is_alive() and not created.errors


def fetched(channel, **header):
    return unpack(next(stream_call(channel, "Fetch")(iter([pack(header)]), timeout=5)))[0]


def test_a_request_names_each_variable_once_and_waits_for_no_step():
    with world(1) as created, open_channel(created.endpoint, Security()) as channel:
        grpc().channel_ready_future(channel).result(5)
        assert fetched(channel, do="read", names=["w"], step=0)["arrays"] == [["float32", [1000]]]
        for names, step, text in (
            (["w", "w"], 0, "has 'w' twice"),
            (["w"], 9, "only trainers may wait"),
            (["w"] * 300_000, 0, "expected 1048576 at most"),
        ):
            with pytest.raises(grpc().RpcError, match=text):
                fetched(channel, do="read", names=names, step=step)


def test_a_trainer_has_one_sender_and_its_own_counters():
    variables = {"count.trainer_0": np.zeros(1), "w": np.zeros(1)}
    service = make_service("here", 2, variables)
    object.__setattr__(service, "counters", {"count.trainer_0": 0})
    object.__setattr__(service, "count", lambda name, array: variables[name].__iadd__(array))
    delayed, one = AsynchronousShard(service), np.ones(1)
    sent = [delayed.count(f"s{n // 2}", 1 + n % 2, 0, "count.trainer_0", one) for n in range(200)]
    assert all(sent) and variables["count.trainer_0"] == 200
    assert delayed.count("s99", 2, 0, "count.trainer_0", one) is False  # as repeated by a retry
    assert delayed.applied == {0: ("s99", 2)}
    for trainer, name in ((1, "count.trainer_0"), (0, "w")):
        with pytest.raises(WireError, match="counter"):
            delayed.count("s", 1, trainer, name, one)


@pytest.mark.parametrize(
    "folder",
    [
        "..",
        "a/../../b",
        "/",
        "/tmp/elsewhere",
        "link",
        "link/a",
        "a\0b",
        "x" * 2000,
        "a\nb",
        "\ud800",
    ],
)
def test_saves_stay_in_the_folder_of_the_settings(tmp_path, folder):
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(WireError, match=r"is not in the folder|is not a folder's path"):
        save_folder(str(root), folder, "w")
    assert save_folder(str(root), "a/b", "w") == root / "a/b"
    assert save_folder(str(root), str(root / "c"), "w") == root / "c"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", ".w", "x" * 201, "c:w"])
def test_saved_tables_have_plain_names(tmp_path, name):
    with pytest.raises(WireError, match="is not that of a file"):
        save_folder(str(tmp_path), "a", name)


def test_a_server_without_a_folder_for_saves_saves_nothing(tmp_path):
    with pytest.raises(WireError, match="FLUID_PS_SAVE_DIR"):
        save_folder("", str(tmp_path), "w")
