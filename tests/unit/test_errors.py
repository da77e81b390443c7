from __future__ import annotations

import errno
import pickle

import pytest

from bunshin_gym import errors
from bunshin_gym.errors import BunshinError, UnsupportedResource, WorkspaceError


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_one_of_ours(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, BunshinError)
    assert kind.__doc__


def test_each_is_a_standard_error_too() -> None:
    assert issubclass(errors.ForkError, OSError)
    assert issubclass(errors.UnsupportedResource, errors.ForkError)
    assert issubclass(errors.SnapshotClosed, ValueError)
    assert issubclass(errors.InvalidToolCall, ValueError)
    assert issubclass(errors.EngineUnavailable, RuntimeError)


def test_the_text_is_the_message_with_and_without_errno() -> None:
    assert str(WorkspaceError("cannot read /a: no such file", errno=errno.ENOENT)) == "cannot read /a: no such file"
    assert WorkspaceError("x", errno=errno.ENOENT).errno == errno.ENOENT


def test_an_unsupported_resource_says_where_and_survives_pickling() -> None:
    error = UnsupportedResource("cannot fork: pid 14 (node) holds fd 9", pid=14, comm="node", fd=9, reason="io_uring")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.pid, copy.comm, copy.fd, copy.reason) == (str(error), 14, "node", 9, "io_uring")
