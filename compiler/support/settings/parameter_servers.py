"""Our own variables of parameter servers and their trainers."""

from __future__ import annotations

from compiler.support.settings.setting import (
    FILE,
    FOLDER,
    POSITIVE,
    SECONDS,
    TEXT,
    Setting,
    choice,
    optional,
)

FLUID_PS_POLICY = Setting(
    "FLUID_PS_POLICY",
    choice("fail", "shrink", "wait"),
    "fail",
    "A lost trainer: `fail` ends the job, `shrink` continues without it, `wait` waits for its "
    "return.",
)
FLUID_PS_HEARTBEAT_SECONDS = Setting(
    "FLUID_PS_HEARTBEAT_SECONDS",
    SECONDS,
    10.0,
    "The interval of trainers' heartbeats.",
)
FLUID_PS_LOST_SECONDS = Setting(
    "FLUID_PS_LOST_SECONDS",
    SECONDS,
    30.0,
    "A trainer without a heartbeat is lost after this time.",
)
FLUID_PS_RETURN_SECONDS = Setting(
    "FLUID_PS_RETURN_SECONDS",
    SECONDS,
    5.0,
    "A trainer whose connection broke is lost after this time.",
)
FLUID_PS_RECONNECT_SECONDS = Setting(
    "FLUID_PS_RECONNECT_SECONDS",
    SECONDS,
    60.0,
    "How long trainers wait for a server that has not started, or that restarts; 5 at most without "
    "snapshots, unless the policy is `wait`.",
)
FLUID_PS_SNAPSHOT_DIR = Setting(
    "FLUID_PS_SNAPSHOT_DIR",
    FOLDER,
    "",
    "The folder of servers' snapshots; none are taken without it.",
)
FLUID_PS_SNAPSHOT_STEPS = Setting(
    "FLUID_PS_SNAPSHOT_STEPS",
    POSITIVE,
    100,
    "Steps between two snapshots.",
)
FLUID_PS_SAVE_DIR = Setting(
    "FLUID_PS_SAVE_DIR",
    FOLDER,
    "",
    "The folder that trainers may let servers save tables to; without it they save none.",
)
FLUID_PS_TOKEN = Setting(
    "FLUID_PS_TOKEN",
    TEXT,
    "",
    "A secret that every call must carry.",
)
FLUID_PS_CERT = Setting(
    "FLUID_PS_CERT",
    optional(FILE),
    None,
    "The certificate of TLS, PEM.",
)
FLUID_PS_KEY = Setting(
    "FLUID_PS_KEY",
    optional(FILE),
    None,
    "The key of the certificate, PEM.",
)
FLUID_PS_CA = Setting(
    "FLUID_PS_CA",
    optional(FILE),
    None,
    "The certificate that signed those of the others, PEM; servers that have it only accept "
    "trainers with such a certificate.",
)
FLUID_PS_LOG = Setting(
    "FLUID_PS_LOG",
    choice("text", "json"),
    "",
    "Log lines on stderr; without it, only the logger `fluid.ps`.",
)
FLUID_PS_TRACE = Setting(
    "FLUID_PS_TRACE",
    FOLDER,
    "",
    "The folder in which each process writes a Chrome trace when it exits.",
)
