"""Messages that describe a trainer over files: its threads, tables and sections."""

from __future__ import annotations

from compiler.ir.model_format.schema import declare
from fluid.compat.proto import data_feed_pb2 as data__feed__pb2
from fluid.compat.proto import framework_pb2 as framework__pb2
from fluid.compat.proto.messages import EnumType, ProtoMessage

__all__ = [
    "data__feed__pb2", "framework__pb2", "AdjustInsWeightConfig", "CopyTableConfig",
    "DownpourWorkerParameter", "FetchConfig", "HogwildWorkerParameter", "ProgramConfig",
    "PullDenseWorkerParameter", "SectionConfig", "SectionWorkerParameter", "TableDependencyMap",
    "TableParameter", "TrainerDesc",
]  # fmt: skip

_PACKAGE = "paddle.framework"
declare("""
TrainerDesc
    1 optional string class_name
    2 optional string device_worker_name
    3 optional int32 thread_num
    4 optional bool binding_cpu
    5 repeated string filelist
    6 optional bool debug
    7 optional FetchConfig fetch_config
    8 optional bool use_cvm
    9 optional bool dump_slot
    10 optional float scale_datanorm = -1.0
    11 optional int32 mpi_rank = -1
    12 optional string dump_fields_path
    13 repeated string dump_fields
    14 optional string dump_converter
    15 repeated string dump_param
    16 optional int32 mpi_size = -1
    17 optional int32 dump_file_num = 16
    18 repeated string check_nan_var_names
    19 optional CopyTableConfig copy_table_config
    20 optional AdjustInsWeightConfig adjust_ins_weight_config
    21 optional bool no_cvm
    22 optional bool thread_barrier
    23 repeated string loss_names
    101 optional HogwildWorkerParameter hogwild_param
    102 optional PullDenseWorkerParameter pull_dense_param
    103 optional DownpourWorkerParameter downpour_param
    104 optional SectionWorkerParameter section_param
    201 optional DataFeedDesc data_desc
HogwildWorkerParameter
    1 repeated string skip_ops
    2 repeated string stat_var_names
DownpourWorkerParameter
    1 repeated TableParameter sparse_table
    2 repeated TableParameter dense_table
    3 repeated string skip_ops
    4 repeated ProgramConfig program_config
    5 optional bool push_sparse = true
    6 optional bool push_dense = true
    7 repeated string stat_var_names
SectionWorkerParameter
    1 repeated SectionConfig section_config
    2 optional int32 queue_size = 1
    3 optional int64 sync_steps = 1
    4 optional int32 start_cpu_core_id = 1
    5 repeated string param_need_sync
enum SectionConfig.Place CPUPlace=0 CUDAPlace=1 CUDAPinnedPlace=2
SectionConfig
    1 optional ProgramDesc program_desc
    2 optional SectionConfig.Place place
    3 optional int32 concurrency = 1
    4 repeated string section_in_var_names
    5 repeated string section_out_var_names
enum FetchConfig.Method PRINT=0
FetchConfig
    1 repeated string fetch_var_names
    2 repeated string fetch_var_str_format
    3 optional int32 print_period = 100
    4 optional FetchConfig.Method method
AdjustInsWeightConfig
    1 optional bool need_adjust
    2 optional string nid_slot
    3 optional float nid_adjw_threshold
    4 optional float nid_adjw_ratio
    5 optional string ins_weight_slot
TableDependencyMap
    1 required int32 key
    2 repeated int32 values
CopyTableConfig
    1 optional bool need_copy
    2 optional int32 batch_num = 100
    3 repeated int32 src_sparse_tables
    4 repeated int32 dest_sparse_tables
    5 repeated int32 src_dense_tables
    6 repeated int32 dest_dense_tables
    7 repeated string src_var_list
    8 repeated string dest_var_list
    9 optional bool dense_pull_after_copy
    10 optional bool sparse_copy_by_feasign = true
    11 optional bool enable_dependency
    12 repeated TableDependencyMap table_denpendency_map
ProgramConfig
    1 required string program_id
    2 repeated int32 push_sparse_table_id
    3 repeated int32 push_dense_table_id
    4 repeated int32 pull_sparse_table_id
    5 repeated int32 pull_dense_table_id
PullDenseWorkerParameter
    1 optional int32 threshold = 1
    2 optional int32 device_num
    3 optional int32 sleep_time_ms = 2
    4 repeated TableParameter dense_table
TableParameter
    1 optional uint64 table_id
    2 repeated string dense_value_name
    3 repeated string dense_grad_name
    5 repeated int32 push_dense_wait_times
    6 repeated string sparse_key_name
    7 repeated string sparse_value_name
    8 repeated string sparse_grad_name
    9 repeated int32 push_sparse_wait_times
    10 optional int32 emb_dim
    11 optional int32 fea_dim
    12 optional string label_var_name
    13 optional bool is_local
    14 optional bool is_async
    15 optional string async_wait_op_name
""", _PACKAGE)  # fmt: skip


class TrainerDesc(ProtoMessage, package=_PACKAGE):
    """How threads train on the lines of files."""


class HogwildWorkerParameter(ProtoMessage, package=_PACKAGE):
    """What threads without servers skip."""


class DownpourWorkerParameter(ProtoMessage, package=_PACKAGE):
    """The tables that threads pull and push."""


class SectionWorkerParameter(ProtoMessage, package=_PACKAGE):
    """The sections of a pipeline."""


class SectionConfig(ProtoMessage, package=_PACKAGE):
    """A section of a pipeline: its program, place and variables."""

    Place = EnumType(f"{_PACKAGE}.SectionConfig.Place")


class FetchConfig(ProtoMessage, package=_PACKAGE):
    """Variables to print, and how often."""

    Method = EnumType(f"{_PACKAGE}.FetchConfig.Method")


class AdjustInsWeightConfig(ProtoMessage, package=_PACKAGE):
    """How examples of rare ids are weighted."""


class TableDependencyMap(ProtoMessage, package=_PACKAGE):
    """A table and those that it depends on."""


class CopyTableConfig(ProtoMessage, package=_PACKAGE):
    """Tables to copy while training."""


class ProgramConfig(ProtoMessage, package=_PACKAGE):
    """The tables that a program pulls and pushes."""


class PullDenseWorkerParameter(ProtoMessage, package=_PACKAGE):
    """How often dense tables are pulled."""


class TableParameter(ProtoMessage, package=_PACKAGE):
    """A table and its variables."""
