"""LocalStore: the same answers in the process that has it and for a client of another one."""

import threading

import pytest

from runtime.collective.local_store import LocalStore, StoreClient


def test_a_client_sees_what_the_store_has_and_its_errors_are_those_of_an_engine() -> None:
    store = LocalStore()
    with store.open() as connection:
        client = StoreClient(connection)
        client.set("a", "line\nline é")
        store.set("b", "2")
        for each in (store, client):
            assert each.get("a") == "line\nline é".encode()
            assert each.multi_get(["b", "a"]) == [b"2", "line\nline é".encode()]
            assert [each.check(["a", "b"]), each.check(["a", "c"])] == [True, False]
        assert [client.add("b", 3), store.add("b", 0), client.add("n", 1)] == [5, 5, 1]
        assert [client.delete_key("n"), store.delete_key("n")] == [True, False]
        with pytest.raises(RuntimeError, match="the store of the ranks has ended"):
            client.get("unknown")


def test_a_client_may_end_before_it_has_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    before = {*threading.enumerate()}
    with LocalStore().open() as connection:
        connection.sendall(b'["check", ["a"]]\n' * 1000)
    for thread in {*threading.enumerate()} - before:
        thread.join(10)
    assert errors == []
