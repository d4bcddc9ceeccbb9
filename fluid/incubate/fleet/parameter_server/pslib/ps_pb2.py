"""Messages that describe a job with PSLIB: tables, their accessors and updates, requests."""

from __future__ import annotations

from compiler.ir.model_format.schema import declare
from fluid.compat.proto.messages import EnumType, ProtoMessage

__all__ = [
    "AdamSGDParameter", "DenseSGDRuleParameter", "DenseTableParameter", "DownpourServerParameter",
    "DownpourTableAccessorParameter", "DownpourTrainerParameter", "DownpourWorkerParameter",
    "FsClientParameter", "MovingAverageRuleParameter", "NaiveSGDParameter", "PSParameter",
    "PS_CACHE_SHUFFLE", "PS_CLEAR_ALL_TABLE", "PS_CLEAR_ONE_TABLE", "PS_COPY_TABLE",
    "PS_COPY_TABLE_BY_FEASIGN", "PS_DENSE_TABLE", "PS_GET_CACHE_THRESHOLD", "PS_LOAD_ALL_TABLE",
    "PS_LOAD_ONE_TABLE", "PS_PRINT_TABLE_STAT", "PS_PULL_DENSE_TABLE", "PS_PULL_SPARSE_TABLE",
    "PS_PULL_SPARSE_TABLE_WITH_DEPENDENCY", "PS_PUSH_DENSE_PARAM", "PS_PUSH_DENSE_TABLE",
    "PS_PUSH_SPARSE_TABLE", "PS_PUSH_SPARSE_TABLE_WITH_DEPENDENCY", "PS_S2S_MSG",
    "PS_SAVE_ALL_TABLE", "PS_SAVE_ONE_CACHE_TABLE", "PS_SAVE_ONE_TABLE", "PS_SHRINK_TABLE",
    "PS_SPARSE_TABLE", "PS_STOP_SERVER", "ProgramConfig", "PsCmdID", "PsRequestMessage",
    "PsResponseMessage", "ServerParameter", "ServerServiceParameter",
    "SparseAdagradSGDRuleParameter", "SparseAdamSGDParameter", "SparseCommonSGDRuleParameter",
    "SparseNaiveSGDRuleParameter", "SparseSGDRuleParameter", "SparseTableParameter",
    "SummarySGDParameter", "TableAccessorParameter", "TableAccessorSaveParameter",
    "TableParameter", "TableType", "WorkerParameter",
]  # fmt: skip

_PACKAGE = "paddle"
declare("""
enum TableType PS_SPARSE_TABLE=0 PS_DENSE_TABLE=1
enum PsCmdID PS_PULL_DENSE_TABLE=0 PS_PUSH_DENSE_TABLE=1 PS_PULL_SPARSE_TABLE=2
enum PsCmdID PS_PUSH_SPARSE_TABLE=3 PS_SHRINK_TABLE=4 PS_SAVE_ONE_TABLE=5 PS_SAVE_ALL_TABLE=6
enum PsCmdID PS_LOAD_ONE_TABLE=7 PS_LOAD_ALL_TABLE=8 PS_CLEAR_ONE_TABLE=9 PS_CLEAR_ALL_TABLE=10
enum PsCmdID PS_PUSH_DENSE_PARAM=11 PS_STOP_SERVER=12 PS_SAVE_ONE_CACHE_TABLE=13
enum PsCmdID PS_GET_CACHE_THRESHOLD=14 PS_CACHE_SHUFFLE=15 PS_COPY_TABLE=16
enum PsCmdID PS_COPY_TABLE_BY_FEASIGN=17 PS_PULL_SPARSE_TABLE_WITH_DEPENDENCY=18
enum PsCmdID PS_PUSH_SPARSE_TABLE_WITH_DEPENDENCY=19 PS_PRINT_TABLE_STAT=20 PS_S2S_MSG=101
PSParameter
    1 optional string worker_class
    2 optional string server_class
    3 optional string instance_class
    4 optional string init_gflags
    101 optional WorkerParameter worker_param
    102 optional ServerParameter server_param
    301 repeated DownpourTrainerParameter trainer_param
    501 optional FsClientParameter fs_client_param
WorkerParameter
    1 optional DownpourWorkerParameter downpour_worker_param
ServerParameter
    1 optional DownpourServerParameter downpour_server_param
DownpourWorkerParameter
    1 repeated TableParameter downpour_table_param
DownpourTrainerParameter
    1 repeated DenseTableParameter dense_table
    2 repeated SparseTableParameter sparse_table
    3 optional int32 push_sparse_per_batch
    4 optional int32 push_dense_per_batch
    5 repeated string skip_op
    6 repeated ProgramConfig program_config
ProgramConfig
    1 required string program_id
    2 repeated int32 push_sparse_table_id
    3 repeated int32 push_dense_table_id
    4 repeated int32 pull_sparse_table_id
    5 repeated int32 pull_dense_table_id
DenseTableParameter
    1 optional int32 table_id
    2 repeated string dense_variable_name
    3 repeated string dense_gradient_variable_name
    4 optional int32 fea_dim
SparseTableParameter
    1 optional int32 table_id
    2 optional int32 feature_dim
    3 repeated string slot_key
    4 repeated string slot_value
    5 repeated string slot_gradient
DownpourServerParameter
    1 repeated TableParameter downpour_table_param
    2 optional ServerServiceParameter service_param
ServerServiceParameter
    1 optional string server_class = DownpourBrpcPsServer
    2 optional string client_class = DownpourBrpcPsClient
    3 optional string service_class = DownpourPsService
    4 optional uint32 start_server_port
    5 optional uint32 server_thread_num = 12
TableParameter
    1 optional uint64 table_id
    2 optional string table_class
    3 optional uint64 shard_num = 1000
    4 optional TableAccessorParameter accessor
    5 optional TableType type
    6 optional bool compress_in_save
    7 optional bool enable_sparse_table_cache = true
    8 optional double sparse_table_cache_rate = 0.00055
    9 optional uint32 sparse_table_cache_file_num = 16
TableAccessorParameter
    1 optional string accessor_class
    2 optional SparseSGDRuleParameter sparse_sgd_param
    3 optional DenseSGDRuleParameter dense_sgd_param
    4 optional uint32 fea_dim = 11
    5 optional uint32 embedx_dim = 8
    6 optional uint32 embedx_threshold = 10
    7 optional DownpourTableAccessorParameter downpour_accessor_param
    8 repeated TableAccessorSaveParameter table_accessor_save_param
    9 optional SparseCommonSGDRuleParameter sparse_commonsgd_param
    10 optional SparseCommonSGDRuleParameter embed_sgd_param
    11 optional SparseCommonSGDRuleParameter embedx_sgd_param
DownpourTableAccessorParameter
    1 optional float nonclk_coeff = 0.10000000149011612
    2 optional float click_coeff = 1.0
    3 optional float base_threshold = 1.5
    4 optional float delta_threshold = 0.25
    5 optional float delta_keep_days = 16.0
    6 optional float show_click_decay_rate = 0.9800000190734863
    7 optional float delete_threshold = 0.800000011920929
    8 optional float delete_after_unseen_days = 30.0
    9 optional int32 ssd_unseenday_threshold = 1
TableAccessorSaveParameter
    1 optional uint32 param
    2 optional string converter
    3 optional string deconverter
PsRequestMessage
    1 required uint32 cmd_id
    2 optional uint32 table_id
    3 repeated bytes params
    4 optional int32 client_id
    5 optional bytes data
SparseSGDRuleParameter
    1 optional double learning_rate = 0.05
    2 optional double initial_g2sum = 3.0
    3 optional double initial_range = 0.0001
    4 repeated float weight_bounds
SparseCommonSGDRuleParameter
    1 optional string name
    2 optional SparseNaiveSGDRuleParameter naive
    3 optional SparseAdagradSGDRuleParameter adagrad
    4 optional SparseAdamSGDParameter adam
SparseNaiveSGDRuleParameter
    1 optional double learning_rate = 0.05
    2 optional double initial_range = 0.0001
    3 repeated float weight_bounds
SparseAdagradSGDRuleParameter
    1 optional double learning_rate = 0.05
    2 optional double initial_g2sum = 3.0
    3 optional double initial_range = 0.0001
    4 repeated float weight_bounds
SparseAdamSGDParameter
    1 optional double learning_rate = 0.001
    2 optional double initial_range = 0.0001
    3 optional double beta1_decay_rate = 0.9
    4 optional double beta2_decay_rate = 0.999
    5 optional double ada_epsilon = 1e-08
    6 repeated float weight_bounds
DenseSGDRuleParameter
    1 optional string name
    2 optional AdamSGDParameter adam
    3 optional NaiveSGDParameter naive
    4 optional SummarySGDParameter summary
    5 optional MovingAverageRuleParameter moving_average
AdamSGDParameter
    1 optional double learning_rate = 5e-06
    2 optional double avg_decay_rate = 0.999993
    3 optional double ada_decay_rate = 0.9999
    4 optional double ada_epsilon = 1e-08
    5 optional double mom_decay_rate = 0.99
NaiveSGDParameter
    1 optional double learning_rate = 0.0002
    2 optional double avg_decay_rate
SummarySGDParameter
    1 optional double summary_decay_rate = 0.999999
MovingAverageRuleParameter
    1 optional double momentum
PsResponseMessage
    1 required int32 err_code
    2 required string err_msg
    3 optional bytes data
enum FsClientParameter.FsApiType HDFS=0 AFS=1
FsClientParameter
    1 optional FsClientParameter.FsApiType fs_type
    2 optional string uri
    3 optional string user
    4 optional string passwd
    5 optional int32 buffer_size
    51 optional string hadoop_bin
    101 optional string afs_conf
""", _PACKAGE)  # fmt: skip

TableType = EnumType(f"{_PACKAGE}.TableType")
PsCmdID = EnumType(f"{_PACKAGE}.PsCmdID")
PS_SPARSE_TABLE = TableType.PS_SPARSE_TABLE
PS_DENSE_TABLE = TableType.PS_DENSE_TABLE
PS_PULL_DENSE_TABLE = PsCmdID.PS_PULL_DENSE_TABLE
PS_PUSH_DENSE_TABLE = PsCmdID.PS_PUSH_DENSE_TABLE
PS_PULL_SPARSE_TABLE = PsCmdID.PS_PULL_SPARSE_TABLE
PS_PUSH_SPARSE_TABLE = PsCmdID.PS_PUSH_SPARSE_TABLE
PS_SHRINK_TABLE = PsCmdID.PS_SHRINK_TABLE
PS_SAVE_ONE_TABLE = PsCmdID.PS_SAVE_ONE_TABLE
PS_SAVE_ALL_TABLE = PsCmdID.PS_SAVE_ALL_TABLE
PS_LOAD_ONE_TABLE = PsCmdID.PS_LOAD_ONE_TABLE
PS_LOAD_ALL_TABLE = PsCmdID.PS_LOAD_ALL_TABLE
PS_CLEAR_ONE_TABLE = PsCmdID.PS_CLEAR_ONE_TABLE
PS_CLEAR_ALL_TABLE = PsCmdID.PS_CLEAR_ALL_TABLE
PS_PUSH_DENSE_PARAM = PsCmdID.PS_PUSH_DENSE_PARAM
PS_STOP_SERVER = PsCmdID.PS_STOP_SERVER
PS_SAVE_ONE_CACHE_TABLE = PsCmdID.PS_SAVE_ONE_CACHE_TABLE
PS_GET_CACHE_THRESHOLD = PsCmdID.PS_GET_CACHE_THRESHOLD
PS_CACHE_SHUFFLE = PsCmdID.PS_CACHE_SHUFFLE
PS_COPY_TABLE = PsCmdID.PS_COPY_TABLE
PS_COPY_TABLE_BY_FEASIGN = PsCmdID.PS_COPY_TABLE_BY_FEASIGN
PS_PULL_SPARSE_TABLE_WITH_DEPENDENCY = PsCmdID.PS_PULL_SPARSE_TABLE_WITH_DEPENDENCY
PS_PUSH_SPARSE_TABLE_WITH_DEPENDENCY = PsCmdID.PS_PUSH_SPARSE_TABLE_WITH_DEPENDENCY
PS_PRINT_TABLE_STAT = PsCmdID.PS_PRINT_TABLE_STAT
PS_S2S_MSG = PsCmdID.PS_S2S_MSG


class PSParameter(ProtoMessage, package=_PACKAGE):
    """A job: its workers, servers and trainers."""


class WorkerParameter(ProtoMessage, package=_PACKAGE):
    """What workers know."""


class ServerParameter(ProtoMessage, package=_PACKAGE):
    """What servers know."""


class DownpourWorkerParameter(ProtoMessage, package=_PACKAGE):
    """The tables that threads pull and push."""


class DownpourTrainerParameter(ProtoMessage, package=_PACKAGE):
    """The tables of a trainer."""


class ProgramConfig(ProtoMessage, package=_PACKAGE):
    """The tables that a program pulls and pushes."""


class DenseTableParameter(ProtoMessage, package=_PACKAGE):
    """A dense table and its variables."""


class SparseTableParameter(ProtoMessage, package=_PACKAGE):
    """A sparse table and its slots."""


class DownpourServerParameter(ProtoMessage, package=_PACKAGE):
    """The tables of a server, and its service."""


class ServerServiceParameter(ProtoMessage, package=_PACKAGE):
    """The classes and threads of a server."""


class TableParameter(ProtoMessage, package=_PACKAGE):
    """A table and its variables."""


class TableAccessorParameter(ProtoMessage, package=_PACKAGE):
    """How rows of a table are read and updated."""


class DownpourTableAccessorParameter(ProtoMessage, package=_PACKAGE):
    """When rows are shown, decayed and deleted."""


class TableAccessorSaveParameter(ProtoMessage, package=_PACKAGE):
    """How rows are written to files."""


class PsRequestMessage(ProtoMessage, package=_PACKAGE):
    """A request to a server."""


class SparseSGDRuleParameter(ProtoMessage, package=_PACKAGE):
    """An update of sparse rows."""


class SparseCommonSGDRuleParameter(ProtoMessage, package=_PACKAGE):
    """An update of sparse rows, one of several."""


class SparseNaiveSGDRuleParameter(ProtoMessage, package=_PACKAGE):
    """A plain update of sparse rows."""


class SparseAdagradSGDRuleParameter(ProtoMessage, package=_PACKAGE):
    """Adagrad for sparse rows."""


class SparseAdamSGDParameter(ProtoMessage, package=_PACKAGE):
    """Adam for sparse rows."""


class DenseSGDRuleParameter(ProtoMessage, package=_PACKAGE):
    """An update of dense tables, one of several."""


class AdamSGDParameter(ProtoMessage, package=_PACKAGE):
    """Adam for dense tables."""


class NaiveSGDParameter(ProtoMessage, package=_PACKAGE):
    """A plain update of dense tables."""


class SummarySGDParameter(ProtoMessage, package=_PACKAGE):
    """A decayed sum."""


class MovingAverageRuleParameter(ProtoMessage, package=_PACKAGE):
    """A moving average."""


class PsResponseMessage(ProtoMessage, package=_PACKAGE):
    """A server's answer."""


class FsClientParameter(ProtoMessage, package=_PACKAGE):
    """A file system and its user."""

    FsApiType = EnumType(f"{_PACKAGE}.FsClientParameter.FsApiType")
