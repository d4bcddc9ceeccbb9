"""The `ps_` fields of DistributeTranspilerConfig: checked, noted in programs, and used."""

import pytest

import fluid
from runtime.errors import WireError
from runtime.ps.settings import Settings
from tests.fluid.parameter_server import threads
from tests.fluid.parameter_server.processes import make_job
from tests.fluid.transpiler.distribute.server_job import SERVERS, transpiled
from tests.fluid.transpiler.test_distribute_transpiler import config, wide

FIELDS = {
    "ps_policy": "wait", "ps_heartbeat_seconds": 1.5, "ps_lost_seconds": 4, "ps_return_seconds": 2,
    "ps_reconnect_seconds": 20, "ps_deadline_seconds": 90, "ps_snapshot_dir": "somewhere", "ps_save_dir": "saved",
    "ps_snapshot_steps": 7, "ps_token": "secret",
}  # fmt: skip


def test_programs_have_the_settings_and_variables_have_priority():
    transpiler, main, startup, _ = transpiled(wide(), config=config(**FIELDS))
    programs = [main, startup, *transpiler.get_pserver_programs(SERVERS.split(",")[0])]
    for program in (*programs, main.clone()):
        result = Settings.from_env({}, program.job.settings)
        assert (result.policy, result.heartbeat, result.lost_after) == ("wait", 1.5, 4)
        assert (result.return_within, result.reconnect, result.deadline) == (2, 20, 90)
        assert (result.snapshot_dir, result.snapshot_steps) == ("somewhere", 7)
        assert result.save_dir == "saved"
        assert result.security.token == "secret"
    environ = {
        "FLUID_PS_POLICY": "shrink", "FLUID_PS_TOKEN": "other", "FLAGS_rpc_deadline": "5000"
    }  # fmt: skip
    result = Settings.from_env(environ, main.job.settings)
    assert (result.policy, result.security.token, result.deadline) == ("shrink", "other", 5)
    assert Settings.from_env({}, transpiled(wide())[1].job.settings) == Settings()


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("ps_policy", "panic", ValueError),
        ("ps_heartbeat_seconds", 0, ValueError),
        ("ps_lost_seconds", "4", TypeError),
        ("ps_return_seconds", float("inf"), ValueError),
        ("ps_reconnect_seconds", True, TypeError),
        ("ps_deadline_seconds", -1.0, ValueError),
        ("ps_snapshot_steps", 2.5, TypeError),
        ("ps_snapshot_dir", 5, TypeError),
        ("ps_token", b"secret", TypeError),
        ("ps_cert", "cert.pem", ValueError),
    ],
)
def test_an_error_names_the_field(field, value, error):
    with pytest.raises(error, match=f"config.{field} "):
        fluid.DistributeTranspiler(config(**{field: value}))
    with pytest.raises(error, match=f"config.{field} "):
        created = config()
        transpiler = fluid.DistributeTranspiler(created)
        setattr(created, field, value)
        transpiler.transpile(0, fluid.Program(), SERVERS, startup_program=fluid.Program())


def test_a_file_that_cannot_be_read_is_named():
    with pytest.raises(WireError, match=r"config\.ps_ca is nowhere\.pem, which cannot be read"):
        Settings.from_env({}, {"ps_ca": "nowhere.pem"})
    with pytest.raises(WireError, match=r"FLUID_PS_CA is else\.pem, which cannot be read"):
        Settings.from_env({"FLUID_PS_CA": "else.pem"}, {"ps_ca": "nowhere.pem"})


def test_a_job_uses_them(tmp_path):
    fields = {
        "ps_token": "secret",
        "ps_snapshot_dir": str(tmp_path / "kept"),
        "ps_snapshot_steps": 2,
    }
    job = make_job(tmp_path, "fit_a_line", "sgd", 2, 1, steps=6, config=fields)
    threads.trained(job)
    assert (tmp_path / "kept").is_dir() and not list((tmp_path / "kept").iterdir())
