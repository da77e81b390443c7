"""Finding, loading and describing libbunshin.so. One table of signatures; tests compare it with the header."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

__all__ = ["ABI", "SIGNATURES", "ContextOptions", "Result", "binaries", "frozen_path", "init_path", "load"]

ABI = 1


class ContextOptions(ctypes.Structure):
    """struct bunshin_context_options."""

    _fields_ = [("size", c_size_t), ("init_path", c_char_p), ("state_path", c_char_p)]


class Result(ctypes.Structure):
    """struct bunshin_result. Its pointers belong to the library until bunshin_result_destroy()."""

    _fields_ = [
        ("size", c_size_t),
        ("exit_code", c_int32),
        ("reason", c_int32),
        ("truncated", c_int32),
        ("reserved", c_int32),
        ("call", c_uint64),
        ("duration", c_double),
        ("stdout_total", c_uint64),
        ("stderr_total", c_uint64),
        ("output", c_void_p),
        ("output_size", c_size_t),
        ("stdout_data", c_void_p),
        ("stdout_size", c_size_t),
        ("stderr_data", c_void_p),
        ("stderr_size", c_size_t),
        ("notice", c_char_p),
    ]


# Handles are void pointers here; handles.py gives each kind a class. ERROR marks the functions whose result is an
# error to be raised.
ERROR = c_void_p
HANDLE = c_void_p
BLOB = (c_char_p, c_size_t)

SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "bunshin_abi": (c_uint32, ()),
    "bunshin_error_code": (c_uint32, (ERROR,)),
    "bunshin_error_errno": (c_int32, (ERROR,)),
    "bunshin_error_pid": (c_int32, (ERROR,)),
    "bunshin_error_fd": (c_int32, (ERROR,)),
    "bunshin_error_message": (c_char_p, (ERROR,)),
    "bunshin_error_destroy": (None, (ERROR,)),
    "bunshin_context_create": (ERROR, (POINTER(ContextOptions), POINTER(HANDLE))),
    "bunshin_context_destroy": (None, (HANDLE,)),
    "bunshin_context_remove": (ERROR, (HANDLE, c_char_p)),
    "bunshin_context_merge": (ERROR, (HANDLE, *BLOB, c_int32)),
    "bunshin_context_flush": (ERROR, (HANDLE,)),
    "bunshin_workspace_create": (ERROR, (HANDLE, *BLOB, POINTER(HANDLE))),
    "bunshin_workspace_end": (None, (HANDLE,)),
    "bunshin_workspace_destroy": (None, (HANDLE,)),
    "bunshin_workspace_alive": (c_int32, (HANDLE,)),
    "bunshin_workspace_call": (ERROR, (HANDLE, *BLOB, c_double, POINTER(POINTER(Result)))),
    "bunshin_workspace_output": (ERROR, (HANDLE, c_uint64, POINTER(POINTER(Result)))),
    "bunshin_result_destroy": (None, (POINTER(Result),)),
    "bunshin_workspace_interrupt": (ERROR, (HANDLE, c_char_p)),
    "bunshin_workspace_open": (ERROR, (HANDLE, c_char_p, c_int32, c_uint32, POINTER(c_int32))),
    "bunshin_workspace_processes": (ERROR, (HANDLE, c_int32, POINTER(c_void_p))),
    "bunshin_workspace_digest": (ERROR, (HANDLE, *BLOB, POINTER(c_void_p))),
    "bunshin_workspace_holding": (ERROR, (HANDLE, POINTER(c_uint64), POINTER(c_uint64))),
    "bunshin_text_destroy": (None, (c_void_p,)),
    "bunshin_workspace_freeze": (ERROR, (HANDLE,)),
    "bunshin_workspace_background": (ERROR, (HANDLE, c_int32)),
    "bunshin_workspace_seal": (ERROR, (HANDLE, c_double, c_uint64, POINTER(HANDLE))),
    "bunshin_workspace_release": (ERROR, (HANDLE,)),
    "bunshin_workspace_replace": (None, (HANDLE, HANDLE)),
    "bunshin_snapshot_fork": (ERROR, (HANDLE, *BLOB, POINTER(HANDLE))),
    "bunshin_snapshot_resume": (ERROR, (HANDLE, *BLOB, POINTER(HANDLE))),
    "bunshin_snapshot_fork_many": (
        ERROR,
        (HANDLE, POINTER(c_char_p), POINTER(c_size_t), c_size_t, POINTER(HANDLE), POINTER(ERROR)),
    ),
    "bunshin_snapshot_export": (ERROR, (HANDLE, POINTER(c_int32), c_size_t, POINTER(c_size_t))),
    "bunshin_snapshot_import": (
        ERROR,
        (HANDLE, POINTER(c_int32), c_size_t, c_uint64, c_char_p, POINTER(HANDLE)),
    ),
    "bunshin_snapshot_size": (c_uint64, (HANDLE,)),
    "bunshin_snapshot_holding": (ERROR, (HANDLE, POINTER(c_void_p))),
    "bunshin_snapshot_spill": (ERROR, (HANDLE, c_char_p, c_uint64)),
    "bunshin_snapshot_recall": (ERROR, (HANDLE,)),
    "bunshin_snapshot_report": (c_char_p, (HANDLE,)),
    "bunshin_workspace_report": (c_char_p, (HANDLE,)),
    "bunshin_snapshot_destroy": (None, (HANDLE,)),
    "bunshin_features": (ERROR, (POINTER(c_void_p),)),
}


def _directory() -> Path:
    """Where the binaries are: BUNSHIN_NATIVE_DIR, inside the package (a wheel), or where `make native` puts them."""
    package = Path(__file__).parent
    chosen = os.environ.get("BUNSHIN_NATIVE_DIR")
    for place in (Path(chosen),) if chosen else (package, package.parent.parent / "native" / "build"):
        if (place / "libbunshin.so").exists() and (place / "bunshin-init").exists():
            return place
    raise OSError("libbunshin.so is not built: run `make native` in the source tree, or `pip install .`")


def init_path() -> str:
    """The bunshin-init executable that belongs to the library."""
    return str(_directory() / "bunshin-init")


def frozen_path() -> str:
    """The library that is preloaded into programs where clock or randomness are frozen."""
    return str(_directory() / "libbunshin-frozen.so")


def binaries() -> tuple[Path, ...]:
    """The files that are the native engine; none where it is not built."""
    try:
        return tuple(sorted(path for path in _directory().glob("*bunshin*") if path.suffix in (".so", "")))
    except OSError:
        return ()


def load() -> ctypes.CDLL:
    """Load the library and give every function its types. Raises OSError where it is missing or of another version."""
    path = _directory() / "libbunshin.so"
    library = ctypes.CDLL(str(path), use_errno=False)
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    if (abi := library.bunshin_abi()) != ABI:
        raise OSError(f"{path} speaks version {abi} of the interface, this package version {ABI}: build it anew")
    return library
