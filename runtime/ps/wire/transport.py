"""The only import of gRPC: servers and channels with tuned settings.

Messages are raw bytes, no protobuf. A server binds to its endpoint only and shares its port with
no other process. A peer that stops answering is detected by pings within seconds, while a busy peer
is recognised by application heartbeats on a separate channel.

The thread of gRPC that polls for calls looks at their metadata, and refuses there and then those
without the token and those above the limits (`admission.py`): such a call never has a thread of the
pool, whatever it sends or leaves unsent. That thread answers heartbeats as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from threading import Thread
from typing import Any, NoReturn

from compiler.support.escape import printable_lines
from compiler.support.extras import install
from compiler.support.settings.setting import export
from compiler.support.settings.systems import GRPC_ENABLE_FORK_SUPPORT
from runtime.errors import TryAgain, WireError
from runtime.ps.wire.admission import Admission
from runtime.ps.wire.callers import session_of
from runtime.ps.wire.packets import first_message
from runtime.ps.wire.security import Security

SERVICE = "fluid.ParameterServer"
"""The service name in the path of every call."""

MESSAGE_LIMIT = 8 << 20
"""Maximum message size in bytes: four chunks."""
FORK_LIMIT = 10.0
"""Seconds in which a server of a forked process has a port."""
MAX_DETAILS = 2000
"""Maximum number of characters of an error that a peer receives."""

Handler = Callable[[Any, Any], Any]

_COMMON = {
    "grpc.max_send_message_length": MESSAGE_LIMIT,
    "grpc.max_receive_message_length": MESSAGE_LIMIT,
    "grpc.keepalive_time_ms": 3000,
    "grpc.keepalive_timeout_ms": 2000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.ping_timeout_ms": 2000,
    "grpc.http2.max_pings_without_data": 0,
    "grpc.max_metadata_size": 8 << 10,
    "grpc.absolute_max_metadata_size": 16 << 10,
}
_SERVER = {
    "grpc.so_reuseport": 0,
    "grpc.http2.max_ping_strikes": 0,
    "grpc.http2.min_recv_ping_interval_without_data_ms": 1000,
    "grpc.max_concurrent_streams": 100,
    "grpc.max_connection_idle_ms": 300_000,
    "grpc.server_handshake_timeout_ms": 10_000,
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
    if not GRPC_ENABLE_FORK_SUPPORT.is_set():
        export({GRPC_ENABLE_FORK_SUPPORT.name: "0"})
    _importer()
    try:
        return import_module("grpc")
    except ImportError as error:
        text = "parameter servers need grpcio, which cannot be imported"
        raise WireError(text, hint=install("dist")) from error


def make_server(
    endpoint: str,
    unary: Mapping[str, Handler],
    streams: Mapping[str, Handler],
    security: Security,
    admission: Admission,
    prompt: Mapping[str, Callable[[Any], bytes]] | None = None,
) -> tuple[Any, int]:
    """Create a server bound to an endpoint, not started yet; returns it and its port.

    For port 0 the system chooses one.

    `unary` handlers take a message and a context, `streams` an iterator of messages; an open stream
    occupies a thread. `prompt` handlers take the context only and must not wait: the polling thread
    runs them. Calls without the token end as UNAUTHENTICATED, those above the limits of `admission`
    as ABORTED. Raises WireError if the endpoint cannot be bound.
    """
    rpc = grpc()
    most = admission.limits.connections
    options = [*(_COMMON | _SERVER).items(), ("grpc.max_allowed_incoming_connections", most)]
    server = rpc.server(ThreadPoolExecutor(admission.limits.calls), options=options)
    answers = _Answers(rpc, security, admission)
    handlers = {name: answers.unary(handler) for name, handler in unary.items()}
    handlers |= {name: answers.stream(handler) for name, handler in streams.items()}
    handlers |= {name: answers.prompt(handler) for name, handler in (prompt or {}).items()}
    named = {f"/{SERVICE}/{name}": find for name, find in handlers.items()}
    server.add_generic_rpc_handlers((_Generic(answers, named),))
    return server, _bind(rpc, server, endpoint, security)


class _Inline(ThreadPoolExecutor):
    """A pool without threads: the caller runs the function."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function and return its result as a future."""
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class _Immediate:
    """A function that gRPC calls in the polling thread, because of the name of the attribute."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self.experimental_thread_pool = _Inline()

    def __call__(self, requests: Any, context: Any) -> Any:
        """Call the function."""
        return self._function(requests, context)


Find = Callable[[str], Any]
"""Returns gRPC's handler for a call of a session."""


class _Generic:
    """Finds the handler of a call. gRPC calls `service` in the polling thread."""

    def __init__(self, answers: _Answers, named: Mapping[str, Find]) -> None:
        self._answers, self._named = answers, named

    def service(self, details: Any) -> Any:
        """The handler for a call, from its metadata alone; None for an unknown method."""
        metadata = details.invocation_metadata or ()
        if not self._answers.security.accepts(metadata):
            return self._answers.stranger
        find = self._named.get(details.method)
        return None if find is None else find(session_of(metadata))


class _Answers:
    """Makes gRPC's handlers: all take a stream, so that they run before there is a message."""

    def __init__(self, rpc: Any, security: Security, admission: Admission) -> None:
        self._rpc, self.security, self._admission = rpc, security, admission
        unauthenticated = rpc.StatusCode.UNAUTHENTICATED
        self.stranger = self._refusal(unauthenticated, "this job requires its token")
        self._busy = self._refusal(rpc.StatusCode.ABORTED, "too many calls at once")

    def _refusal(self, code: Any, text: str) -> Any:
        def refuse(requests: Any, context: Any) -> None:
            context.abort(code, text)

        return self._rpc.stream_unary_rpc_method_handler(_Immediate(refuse))

    def prompt(self, handler: Callable[[Any], bytes]) -> Find:
        """A handler that the polling thread runs."""

        def call(requests: Any, context: Any) -> bytes:
            try:
                return handler(context)
            except WireError as error:
                self._abort(context, error)

        rpc_handler = self._rpc.stream_unary_rpc_method_handler(_Immediate(call))
        return lambda session: rpc_handler

    def unary(self, handler: Handler) -> Find:
        """A handler of one message."""

        def call(key: str, requests: Iterator[bytes], context: Any) -> bytes:
            try:
                with self._admission.connected(key, context.peer()):
                    return handler(next(self._messages(requests, context)), context)
            except WireError as error:
                self._abort(context, error)
            finally:
                self._admission.leave(key)

        return self._counted(self._rpc.stream_unary_rpc_method_handler, call)

    def stream(self, handler: Handler) -> Find:
        """A handler of a stream of messages."""

        def call(key: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            try:
                with self._admission.connected(key, context.peer()):
                    yield from handler(self._messages(requests, context), context)
            except WireError as error:
                self._abort(context, error)
            finally:
                self._admission.leave(key)

        return self._counted(self._rpc.stream_stream_rpc_method_handler, call)

    def _counted(self, make: Any, call: Callable[[str, Any, Any], Any]) -> Find:
        """Refuse a call above the limits; `call` ends the count."""

        def find(session: str) -> Any:
            key = self._admission.enter(session)
            if key is None:
                return self._busy
            return make(partial(call, key))

        return find

    def _messages(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """The messages of a call; the wait for the first one is limited."""
        with self._admission.waiting(context):
            first = first_message(requests)
        yield first
        yield from requests

    def _abort(self, context: Any, error: WireError) -> NoReturn:
        """End a call with the text of an error."""
        codes = self._rpc.StatusCode
        code = codes.ABORTED if isinstance(error, TryAgain) else codes.FAILED_PRECONDITION
        context.abort(code, printable_lines(str(error))[:MAX_DETAILS])
        raise AssertionError("abort raises")


def _bind(rpc: Any, server: Any, endpoint: str, security: Security) -> int:
    def add() -> int:
        if security.certificate is None:
            return int(server.add_insecure_port(endpoint))
        pair = [(security.key, security.certificate)]
        mutual = security.authority is not None
        secure = rpc.ssl_server_credentials(pair, security.authority, mutual)
        return int(server.add_secure_port(endpoint, secure))

    try:
        port = add() if _importer() == os.getpid() else _added_after_fork(add, endpoint)
    except WireError:
        raise
    except RuntimeError as error:
        raise _cannot_bind(endpoint) from error
    if not port:
        raise _cannot_bind(endpoint)
    return port


@cache
def _importer() -> int:
    """The process that imported gRPC: this one, or one that it was forked from."""
    return os.getpid()


def _added_after_fork(add: Callable[[], int], endpoint: str) -> int:
    """Add a port to a server of a forked process, where gRPC has lost the threads of its parent.

    It waits for these for ever if the parent had connections when it forked. Raises WireError then.
    """
    port: Future[int] = Future()

    def run() -> None:
        try:
            port.set_result(add())
        except RuntimeError as error:
            port.set_exception(error)

    Thread(target=run, daemon=True).start()
    with suppress(TimeoutError):
        return port.result(FORK_LIMIT)
    raise WireError(
        f"a parameter server cannot listen at {endpoint}: process {_importer()}, from which this "
        "one was forked, was connected to parameter servers",
        hint="close its Executor before (exe.close()), or start this process with "
        'multiprocessing.get_context("spawn") or subprocess',
    )


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
