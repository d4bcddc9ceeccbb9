"""`fluid.ParallelExecutor` on one device, and what it refuses before a device is started."""

from typing import Any

import numpy as np
import pytest

import fluid

pytestmark = pytest.mark.usefixtures("fresh_programs")
FEED = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}


@pytest.fixture
def loss(exe: Any) -> fluid.Variable:
    result = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 1))
    fluid.optimizer.SGD(0.1).minimize(result)
    exe.run(fluid.default_startup_program())
    return result


def test_it_trains_as_the_executor_does(loss: fluid.Variable, exe: Any) -> None:
    runner = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    assert runner.device_count == 1
    by_dict = runner.run([loss.name], feed=FEED)
    by_list = runner.run(fetch_list=[loss], feed=[FEED])
    plain = exe.run(feed=FEED, fetch_list=[loss])
    assert np.ravel(by_dict).shape == (1,)
    assert np.allclose(np.diff(np.ravel([by_dict, by_list, plain])), by_list[0] - by_dict[0])


def test_a_test_program_shares_the_parameters(exe: Any) -> None:
    hidden = fluid.layers.fc(fluid.data("x", [None, 3]), 1)
    loss = fluid.layers.mean(hidden)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    training = fluid.ParallelExecutor(False, loss_name=loss.name)
    testing = fluid.ParallelExecutor(False, main_program=test_program, share_vars_from=training)
    with pytest.raises(ValueError, match="has not run yet"):
        testing.run([loss.name], feed=FEED)
    (before,) = training.run([loss.name], feed=FEED)
    (after,) = testing.run([loss.name], feed=FEED)
    assert after < before
    assert testing.run([loss.name], feed=FEED) == [after]


def test_it_runs_in_the_scope_it_is_given(loss: fluid.Variable, exe: Any) -> None:
    scope = fluid.Scope()
    exe.run(fluid.default_startup_program(), scope=scope)
    before = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    fluid.ParallelExecutor(False, loss_name=loss.name, scope=scope).run([], feed=FEED)
    assert np.array_equal(fluid.global_scope().find_var("fc_0.w_0").get_tensor(), before)


def test_temporaries_are_dropped_after_a_run(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    with pytest.raises(TypeError, match="has not run yet"):
        runner.drop_local_exe_scopes()
    (value,) = runner.run([loss], feed=FEED, return_numpy=False)
    assert isinstance(value, fluid.LoDTensor)
    assert not runner._need_create_local_exe_scopes()
    runner.drop_local_exe_scopes()
    assert runner._need_create_local_exe_scopes()
    assert runner.run([loss], feed=FEED)[0] < np.array(value)


def test_the_old_name_of_feed(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    with pytest.warns(DeprecationWarning, match="pass feed"):
        assert len(runner.run([loss], feed_dict=FEED)) == 1


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        ([FEED, FEED], ValueError, "a list of 2, but the number of devices is 1"),
        ([FEED["x"]], TypeError, "Each element of feed list should be a dict"),
        (7, ValueError, "not int"),
        (None, ValueError, "'x'"),
    ],
)
def test_feeds_that_do_not_fit(
    loss: fluid.Variable, feed: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fluid.ParallelExecutor(False, loss_name=loss.name).run([loss], feed=feed)


def test_what_it_cannot_be_made_with(
    loss: fluid.Variable, exe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("fluid.running.places.gpu_count", lambda: 0)
    with pytest.raises(TypeError, match="must be a ParallelExecutor, not Executor"):
        fluid.ParallelExecutor(False, loss_name=loss.name, share_vars_from=exe)
    with pytest.raises(AssertionError, match="loss_name"):
        fluid.ParallelExecutor(False)
    with pytest.raises(ValueError, match="'los'"):
        fluid.ParallelExecutor(False, loss_name="los")
    with pytest.raises(AssertionError, match="CUDA"):
        fluid.ParallelExecutor(True, loss_name=loss.name)


def test_trainers_go_before_the_strategy(
    loss: fluid.Variable, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = fluid.BuildStrategy()
    runner = fluid.ParallelExecutor(
        False, loss_name=loss.name, build_strategy=strategy, num_trainers=2, trainer_id=1
    )
    assert (strategy.num_trainers, strategy.trainer_id) == (2, 1)
    assert "build_strategy.num_trainers was 1 and is now 2" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no rendezvous endpoint is set"):
        runner.run([loss], feed=FEED)
