"""The ctypes room: the library, its signatures, its errors. Nobody else imports ctypes."""

from __future__ import annotations

from bunshin_gym._native.handles import Context, NativeFailure, SnapshotHandle, WorkspaceHandle, features, load
from bunshin_gym._native.library import frozen_path
from bunshin_gym._native.records import encode_records

__all__ = [
    "Context",
    "NativeFailure",
    "SnapshotHandle",
    "WorkspaceHandle",
    "encode_records",
    "features",
    "frozen_path",
    "load",
]
