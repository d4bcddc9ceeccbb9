"""The only import of gRPC: servers and channels with tuned settings.

Messages are raw bytes, no protobuf. A server binds to its endpoint only and shares its port with
no other process. A peer that stops answering is detected by pings within seconds, while a busy peer
is recognised by application heartbeats on a separate channel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any

from compiler.extras import install
from runtime.errors import WireError
from runtime.ps.wire.security import Security

SERVICE = "fluid.ParameterServer"
"""The service name in the path of every call."""

MESSAGE_LIMIT = 8 << 20
"""Maximum message size in bytes: four chunks."""

Handler = Callable[[Any, Any], Any]

_COMMON = {
    "grpc.max_send_message_length": MESSAGE_LIMIT,
    "grpc.max_receive_message_length": MESSAGE_LIMIT,
    "grpc.keepalive_time_ms": 3000,
    "grpc.keepalive_timeout_ms": 2000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.ping_timeout_ms": 2000,
    "grpc.http2.max_pings_without_data": 0,
}
_SERVER = {
    "grpc.so_reuseport": 0,
    "grpc.http2.max_ping_strikes": 0,
    "grpc.http2.min_recv_ping_interval_without_data_ms": 1000,
}
_CHANNEL = {
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 1000,
    "grpc.max_reconnect_backoff_ms": 1000,
}


@cache
def grpc() -> Any:
    """Import the package grpc. Raises WireError if it is not installed.

    A process created by `os.fork` uses no channel of its parent, so gRPC's own fork handlers are
    disabled: they abort the child if a thread of the parent is within a call.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        return import_module("grpc")
    except ImportError as error:
        text = "parameter servers need grpcio, which cannot be imported"
        raise WireError(text, hint=install("dist")) from error


def make_server(
    endpoint: str,
    unary: Mapping[str, Handler],
    streams: Mapping[str, Handler],
    threads: int,
    security: Security,
) -> Any:
    """Create a server bound to an endpoint, not started yet.

    `unary` handlers take a message and a context, `streams` an iterator of messages; an open stream
    occupies one of `threads`. Calls without the token end as UNAUTHENTICATED before a handler sees
    them. Raises WireError if the endpoint cannot be bound.
    """
    rpc = grpc()
    options = list((_COMMON | _SERVER).items())
    server = rpc.server(ThreadPoolExecutor(threads), options=options)
    checked = {name: _checked(rpc, handler, security) for name, handler in unary.items()}
    flowing = {name: _flowing(rpc, handler, security) for name, handler in streams.items()}
    handlers = {name: rpc.unary_unary_rpc_method_handler(each) for name, each in checked.items()}
    handlers |= {name: rpc.stream_stream_rpc_method_handler(e) for name, e in flowing.items()}
    server.add_generic_rpc_handlers((rpc.method_handlers_generic_handler(SERVICE, handlers),))
    _bind(rpc, server, endpoint, security)
    return server


def _checked(rpc: Any, handler: Handler, security: Security) -> Handler:
    """Wrap a handler so that it is called only if the caller has the token."""

    def call(request: Any, context: Any) -> Any:
        if not security.accepts(context.invocation_metadata()):
            context.abort(rpc.StatusCode.UNAUTHENTICATED, "this job requires its token")
        try:
            return handler(request, context)
        except WireError as error:
            context.abort(rpc.StatusCode.FAILED_PRECONDITION, str(error))

    return call


def _flowing(rpc: Any, handler: Handler, security: Security) -> Handler:
    """Wrap a stream handler like `_checked`; errors end the stream with their text."""

    def call(requests: Any, context: Any) -> Any:
        if not security.accepts(context.invocation_metadata()):
            context.abort(rpc.StatusCode.UNAUTHENTICATED, "this job requires its token")
        try:
            yield from handler(requests, context)
        except WireError as error:
            context.abort(rpc.StatusCode.FAILED_PRECONDITION, str(error))

    return call


def _bind(rpc: Any, server: Any, endpoint: str, security: Security) -> None:
    try:
        if security.certificate is None:
            port = server.add_insecure_port(endpoint)
        else:
            pair = [(security.key, security.certificate)]
            mutual = security.authority is not None
            secure = rpc.ssl_server_credentials(pair, security.authority, mutual)
            port = server.add_secure_port(endpoint, secure)
    except RuntimeError as error:
        raise _cannot_bind(endpoint) from error
    if not port:
        raise _cannot_bind(endpoint)


def _cannot_bind(endpoint: str) -> WireError:
    hint = "is an earlier server still running there? Is the host one of this machine's addresses?"
    return WireError(f"a parameter server cannot listen at {endpoint}", hint=hint)


def open_channel(endpoint: str, security: Security) -> Any:
    """Create a channel to a server, which connects on first use and reconnects after a failure."""
    rpc = grpc()
    options = list((_COMMON | _CHANNEL).items())
    if not security.has_tls:
        return rpc.insecure_channel(endpoint, options=options)
    secure = rpc.ssl_channel_credentials(security.authority, security.key, security.certificate)
    return rpc.secure_channel(endpoint, secure, options=options)


def unary_call(channel: Any, name: str) -> Callable[..., Any]:
    """Return a unary call: one message each way."""
    return channel.unary_unary(f"/{SERVICE}/{name}")


def stream_call(channel: Any, name: str) -> Callable[..., Any]:
    """Return a bidirectional streaming call."""
    return channel.stream_stream(f"/{SERVICE}/{name}")
