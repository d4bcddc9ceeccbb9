"""Which machine is chosen for a CPU."""

from __future__ import annotations

import pytest

from compiler.codegen.native import host
from compiler.codegen.native.host import detected, host_machine, numpy_features, supported
from compiler.codegen.native.machine import AVX2, AVX512, AVX512BF16, AVX512VNNI, NEON
from compiler.errors import CompileError

SKYLAKE = (
    "processor\t: 0\nflags\t\t: fpu sse2 fma avx f16c bmi1 avx2 bmi2 popcnt abm avx512f avx512dq "
    "avx512cd avx512bw avx512vl\nbugs\t\t: many\n"
)
COOPER_LAKE = SKYLAKE.replace("avx512vl", "avx512vl avx512_vnni avx512_bf16")
CASCADE_LAKE = SKYLAKE.replace("avx512vl", "avx512vl avx512_vnni")
HASWELL = "processor\t: 0\nflags\t\t: sse2 fma avx f16c bmi1 avx2 bmi2 popcnt abm\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd crc32\n"


@pytest.fixture
def become(monkeypatch, tmp_path):
    """Pretends to be another CPU, from its architecture and Linux's list of features."""

    def become(architecture, text):
        file = tmp_path / "cpuinfo"
        file.write_text(text)
        monkeypatch.setattr(host, "_CPUINFO", file)
        monkeypatch.setattr(host.platform, "machine", lambda: architecture)
        supported.cache_clear()

    yield become
    monkeypatch.undo()
    supported.cache_clear()


@pytest.mark.parametrize(
    ("architecture", "text", "expected"),
    [
        ("x86_64", COOPER_LAKE, AVX512BF16),
        ("x86_64", CASCADE_LAKE, AVX512VNNI),
        ("x86_64", SKYLAKE, AVX512),
        ("AMD64", HASWELL, AVX2),
        ("x86_64", HASWELL.replace(" fma", ""), None),
        ("aarch64", ARM, NEON),
        ("aarch64", SKYLAKE, None),
        ("riscv64", "isa: rv64gc", None),
        ("x86_64", "", None),
    ],
)
def test_the_most_capable_machine_is_chosen(become, architecture, text, expected):
    become(architecture, text)
    assert detected() == expected
    if expected is None:
        with pytest.raises(CompileError, match="no native code for this CPU"):
            host_machine({})
    else:
        assert host_machine({}) == expected


def test_another_machine_can_be_named(become):
    become("x86_64", SKYLAKE)
    assert host_machine({"FLUID_CPU": "avx2"}) == AVX2
    assert host_machine({"FLUID_CPU": ""}) == AVX512


def test_wrong_names_are_errors(become):
    become("x86_64", HASWELL)
    with pytest.raises(CompileError, match="'avx512', but this CPU runs code for: avx2"):
        host_machine({"FLUID_CPU": "avx512"})
    with pytest.raises(CompileError, match=r"names no CPU: 'avx22'\n.*did you mean 'avx2'"):
        host_machine({"FLUID_CPU": "avx22"})
    with pytest.raises(CompileError, match=r"names no CPU: 'mmx'\n.*runs code for: avx2"):
        host_machine({"FLUID_CPU": "mmx"})
    become("riscv64", "")
    with pytest.raises(CompileError, match="'avx2', but this CPU runs code for: none"):
        host_machine({"FLUID_CPU": "avx2"})


def test_numpy_names_the_features_on_other_systems(monkeypatch, tmp_path):
    """Where Linux's list is missing, NumPy's is used; here both agree."""
    if not supported():
        pytest.skip("no native code for this CPU")
    known = {name for each in (AVX2, AVX512BF16, NEON) for name in each.features}
    assert numpy_features() & known == host._features() & known
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "missing")
    assert host._features() == numpy_features()
