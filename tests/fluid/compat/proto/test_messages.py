"""Messages of trainers, servers and profiles: text and bytes are those that protobuf 3.20 wrote."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest

from compiler.ir.model_format.protobuf import ProtoError
from compiler.ir.model_format.schema import ENUMS, SCHEMA
from fluid.compat.proto import data_feed_pb2, framework_pb2, trainer_desc_pb2
from fluid.compat.proto.messages import ProtoMessage
from fluid.compat.proto.profiler import profiler_pb2
from fluid.incubate.fleet.parameter_server.pslib import ps_pb2

TEXT = r"""
server_param {
  downpour_server_param {
    downpour_table_param {
      shard_num: 9223372036854775808
      accessor {
        sparse_sgd_param {
          initial_range: 1e+20
        }
      }
      type: PS_DENSE_TABLE
      sparse_table_cache_rate: 0.00055
    }
    downpour_table_param {
      sparse_table_cache_rate: 1.2345678901234568e+16
    }
  }
}
"""


def tables() -> Any:
    """A job with two tables, one of them with an accessor."""
    job = ps_pb2.PSParameter()
    added = job.server_param.downpour_server_param.downpour_table_param
    first = added.add(sparse_table_cache_rate=0.00055, type=1, shard_num=1 << 63)
    first.accessor.sparse_sgd_param.initial_range = 1e20
    added.add(sparse_table_cache_rate=12345678901234567.0)
    return job


def test_text_of_nested_messages() -> None:
    assert str(tables()) == TEXT.lstrip()
    assert ps_pb2.PSParameter.FromString(tables().SerializeToString()) == tables()
    assert copy.deepcopy(tables()) == tables()


def test_bytes_are_escaped_in_text() -> None:
    request: Any = ps_pb2.PsRequestMessage(cmd_id=4, data=b"\x00\xff'a", params=[b"x"])
    assert str(request) == 'cmd_id: 4\nparams: "x"\ndata: "\\000\\377\\\'a"\n'
    assert request.SerializeToString() == b"\x08\x04\x1a\x01x*\x04\x00\xff'a"
    assert ps_pb2.PsRequestMessage.FromString(request.SerializeToString()).data == b"\x00\xff'a"
    attr = framework_pb2.OpDesc.Attr(name="é\t'\x01\x7f", type=1, f=1.0)
    attr.floats.extend([0.1, 1e20, 16777216.0, float("inf"), float("nan")])
    assert str(attr).splitlines() == [
        r"""name: "\303\251\t\'\001\177\"""".removesuffix('\\"') + '"', "type: FLOAT", "f: 1.0",
        "floats: 0.10000000149011612", "floats: 1.0000000200408773e+20", "floats: 16777216.0",
        "floats: inf", "floats: nan",
    ]  # fmt: skip
    assert str(framework_pb2.OpProto.Attr(type=11)) == "type: LONGS\n"
    assert str(framework_pb2.CompatibleInfo(type=2)) == "type: POSSIBLE\n"


@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), (1 << 32, ValueError), ("a", TypeError), (b"a", TypeError), (2.0, TypeError)],
)  # fmt: skip
def test_unsigned_integers_have_a_range(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ps_pb2.PsRequestMessage(cmd_id=value)
    largest = ps_pb2.PsRequestMessage(cmd_id=(1 << 32) - 1)
    assert ps_pb2.PsRequestMessage.FromString(largest.SerializeToString()) == largest
    with pytest.raises(ProtoError, match="cmd_id: expected an uint32"):
        ps_pb2.PsRequestMessage.FromString(b"\x08\xff\xff\xff\xff\x1f")
    time = profiler_pb2.Event(end_ns=(1 << 64) - 1, device_id=-1)
    assert profiler_pb2.Event.FromString(time.SerializeToString()) == time


def test_bytes_are_not_text() -> None:
    for value in ("é", 3):
        with pytest.raises(TypeError, match="expected one of: bytes"):
            ps_pb2.PsRequestMessage(data=value)


def test_defaults_and_enums() -> None:
    table: Any = ps_pb2.TableParameter()
    assert (table.shard_num, table.enable_sparse_table_cache, table.type) == (1000, True, 0)
    service: Any = ps_pb2.ServerServiceParameter()
    assert (service.server_class, service.server_thread_num) == ("DownpourBrpcPsServer", 12)
    sample: Any = ps_pb2.DownpourTableAccessorParameter()
    assert sample.show_click_decay_rate == 0.9800000190734863
    desc: Any = trainer_desc_pb2.TrainerDesc()
    assert (desc.scale_datanorm, desc.mpi_rank, desc.dump_file_num) == (-1.0, -1, 16)
    assert (desc.downpour_param.push_dense, desc.fetch_config.print_period) == (True, 100)
    feed: Any = data_feed_pb2.DataFeedDesc()
    assert (feed.batch_size, feed.pv_batch_size, feed.pipe_command) == (32, 32, "")
    assert (ps_pb2.PS_S2S_MSG, ps_pb2.PsCmdID.Name(101)) == (101, "PS_S2S_MSG")
    section: Any = trainer_desc_pb2.SectionConfig
    assert (section.CPUPlace, section().CUDAPlace) == (0, 1)
    assert trainer_desc_pb2.FetchConfig.Method.Name(0) == "PRINT"
    assert ps_pb2.PSParameter.DESCRIPTOR.full_name == "paddle.PSParameter"
    assert ps_pb2.TableParameter.DESCRIPTOR.name == "TableParameter"


def test_equal_names_of_two_packages_are_two_messages() -> None:
    ours: Any = trainer_desc_pb2.TableParameter(dense_value_name=["w"])
    assert not hasattr(ps_pb2.TableParameter(), "dense_value_name")
    assert str(ours) == 'dense_value_name: "w"\n'
    desc: Any = trainer_desc_pb2.TrainerDesc()
    desc.downpour_param.dense_table.add().CopyFrom(ours)
    assert desc.downpour_param.dense_table[0].dense_value_name == ["w"]
    with pytest.raises(TypeError, match="expected a TableParameter"):
        ps_pb2.TableParameter().CopyFrom(ours)


def test_every_table_is_of_a_message_and_every_field_has_a_kind() -> None:
    public = [framework_pb2, data_feed_pb2, trainer_desc_pb2, profiler_pb2, ps_pb2]
    loaded = set(ProtoMessage.__subclasses__())
    assert {vars(kind)["_kind"] for kind in loaded} >= SCHEMA.keys() - {"Scalar", "Complex"}
    for module in public:
        for name in module.__all__:
            assert hasattr(module, name), name
    for kind, fields in SCHEMA.items():
        assert all(a.number < b.number for a, b in pairwise(fields)), kind
        for field in fields:
            is_scalar = field.kind[0].islower() and not field.kind.startswith("paddle")
            assert is_scalar or field.kind in SCHEMA, field.where
            assert (field.kind == "enum") == (field.enum in ENUMS), field.where
