"""Compiled kernels on disk, and the processes that compile what is not there."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import compiler
import fluid
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import GpuArchitecture
from compiler.codegen.ahead.jobs import KernelJob, kernel_jobs
from compiler.codegen.ahead.kernel_cache import ABOUT, KernelCache
from compiler.codegen.ahead.machine_code import GpuCode, expect_parameters
from compiler.codegen.ahead.pool import compiled
from compiler.codegen.module import KernelSpec
from compiler.errors import CompileError

H100 = GpuArchitecture("cuda", "90")
CODE = GpuCode("relu", {"ptx": b"text", "cubin": b"\0code\xff"}, 24, 0, 0, (8, 8, 4, 8, 8))
SOURCE = """import triton
import triton.language as tl


@triton.jit
def {0}(v1, v2: tl.constexpr):
    tl.store(v1 + tl.arange(0, v2), {1})
"""


@pytest.fixture
def job():
    ((_, result),) = kernel_jobs(module(), H100)
    return replace(result, types=(("v1", "*fp32:16"), ("v2", "*fp32:16"), ("v3", "i32")))


def module():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        result = fluid.layers.relu(fluid.layers.data(name="x", shape=[8], dtype="float32"))
    return compiler.compile(main, feed=["x"], fetch=[result.name], target="triton")


def kernel_cache(folder, limit=10**9, triton="3.9.0"):
    return KernelCache(folder / "kernels", limit, triton)


def small_job(name="fill", value="1.0"):
    types, constants = (("v1", "*fp32:16"),), (("v2", 128),)
    return KernelJob(
        name, "cuda:90", SOURCE.format(name, value), types, constants, (("num_warps", 4),)
    )


def test_kernel_cache_returns_stored_code(tmp_path, job):
    known = kernel_cache(tmp_path)
    assert known.find(job) is None
    known.put(job, CODE)
    assert known.find(job) == CODE
    known.put(job, replace(CODE, registers=8))
    assert known.find(job) == CODE, "what is there stays"
    (place,) = known.root.iterdir()
    assert (place / "kernel.py").read_text() == job.source
    names = sorted(file.name for file in place.iterdir())
    assert names == ["about.json", "kernel.cubin", "kernel.ptx", "kernel.py"]


@pytest.mark.parametrize("change", [
    {"gpu": "cuda:80"}, {"source": "x"}, {"types": ()}, {"constants": ()}, {"options": ()},
])  # fmt: skip
def test_kernel_cache_key_covers_all_inputs(tmp_path, job, change):
    known = kernel_cache(tmp_path)
    known.put(job, CODE)
    assert known.find(replace(job, **change)) is None
    assert kernel_cache(tmp_path, triton="3.6.0").find(job) is None


@pytest.mark.parametrize("name", ["about.json", "kernel.cubin", "kernel.ptx"])
def test_kernel_cache_drops_damaged_entries(tmp_path, job, name):
    known = kernel_cache(tmp_path)
    size = len((_put(known, job) / name).read_bytes())
    for position in range(0, size, max(1, size // 40)):
        file = _put(known, job) / name
        held = bytearray(file.read_bytes())
        held[position] ^= 0x20
        file.write_bytes(held)
        assert known.find(job) in (None, CODE)
        if name != ABOUT:
            assert not file.parent.exists()
    for spoil in (
        lambda f: f.unlink(),
        lambda f: f.write_bytes(b""),
        lambda f: f.write_bytes(b"["),
    ):
        spoil(_put(known, job) / name)
        assert known.find(job) is None


def _put(known, job):
    known.put(job, CODE)
    assert known.find(job) == CODE
    (place,) = known.root.iterdir()
    return place


def test_kernel_cache_evicts_least_recently_used(tmp_path):
    known = kernel_cache(tmp_path)
    jobs = [small_job(value=str(i)) for i in range(4)]
    code = replace(CODE, parameters=(8, 8, 8), files={"ptx": b"", "cubin": bytes(50_000)})
    for age, each in enumerate(jobs):
        known.put(each, code)
        about = known.root / each.digest("3.9.0") / ABOUT
        os.utime(about, (time.time() - 1000 + age,) * 2)
    assert known.find(jobs[0]) == code
    kernel_cache(tmp_path, limit=110_000).trim()
    assert [known.find(each) is not None for each in jobs] == [True, False, False, True]
    kernel_cache(tmp_path, limit=0).trim()
    assert not any(known.find(each) for each in jobs)


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path, job):
    (tmp_path / "kernels").write_text("a file")
    kernel_cache(tmp_path).put(job, CODE)
    assert kernel_cache(tmp_path).find(job) is None


def test_code_with_other_parameters_is_rejected(job):
    expect_parameters(job, (8, 8, 4, 8), 0)
    for found in ((8, 8), (8, 4, 8), (8, 8, 4, 4)):
        with pytest.raises(CompileError, match="takes parameters of"):
            expect_parameters(job, found, 0)
    with pytest.raises(CompileError, match="scratch memory"):
        expect_parameters(job, (8, 8, 4), 16)


def test_each_job_is_answered_and_all_that_fail_are_named(tmp_path):
    pytest.importorskip("triton")
    jobs = [small_job("one", "1.0"), small_job("two", "tl.nothing"), small_job("three", "no_name")]
    answers = {job.entry: answer for job, answer in compiled(jobs, processes=2)}
    assert answers["one"]["registers"] > 0 and answers["one"]["parameters"][:1] == [8]
    assert "nothing" in answers["two"]["error"] and "no_name" in answers["three"]["error"]


def test_kernels_are_taken_from_disk(tmp_path):
    pytest.importorskip("triton")
    told = []
    first = build([module(), module()], [H100], tmp_path, 10**9, lambda *each: told.append(each))
    assert [len(each) for each in first] == [1, 1] and told == [(1, 1, "cuda:90 relu")]
    assert build([module()], [H100], tmp_path, 10**9, lambda *_: pytest.fail("built again")) == [
        first[0]
    ]


def test_kernels_that_do_not_compile_are_all_named(tmp_path):
    pytest.importorskip("triton")
    good = module()
    (spec,) = good.kernels
    text = good.source.replace("tl.load(", "tl.missing(")
    with pytest.raises(
        CompileError, match=r"relu does not compile for cuda:90: .*\n(.*\n)*.*"
    ) as e:
        build([replace(good, source=text)], [H100], tmp_path, 10**9)
    assert "missing" in str(e.value)
    lost = KernelSpec("lost", spec.types, spec.constants)
    with pytest.raises(CompileError, match="lists a kernel lost"):
        build([replace(good, kernels=(lost,))], [H100], tmp_path, 10**9)


def test_who_stops_listening_ends_the_processes(tmp_path):
    pytest.importorskip("triton")
    before = _children()
    answers = compiled([small_job(value=str(i)) for i in range(40)], processes=2)
    next(answers)
    assert len(_children() - before) == 2
    answers.close()
    assert _children() == before


def _children():
    """The processes of this one that run."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for file in tasks for pid in _read(file).split()}


def _read(file):
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
