"""The signatures table says what the header says, and the library exports just that."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bunshin_gym._native import library

HEADER = Path(__file__).parents[2] / "native" / "include" / "bunshin.h"

# What a C type may be in the table: by the end of the ctypes name.
TYPES = {
    "uint32_t": "c_uint",
    "int32_t": "c_int",
    "uint64_t": "c_ulong",
    "size_t": "c_ulong",
    "double": "c_double",
}


def c_type(text: str) -> str:
    text = re.sub(r"\b(const|struct)\b", " ", text).strip()
    text = re.sub(r"\s+", " ", text).replace(" *", "*")
    if text in ("void", ""):
        return "void"
    if text in TYPES:
        return TYPES[text]
    if text in ("char*", "uint8_t*"):
        return "bytes"
    if text == "bunshin_result*":
        return "result"
    if text == "bunshin_context_options*":
        return "options"
    if re.fullmatch(r"bunshin_\w+\*", text):
        return "handle"
    if re.fullmatch(r"bunshin_result\*\*", text):
        return "to result"
    if re.fullmatch(r"(bunshin_\w+\*\*|char\*\*)", text):
        return "to handle"
    if text == "uint8_t**" or text == "uint8_t*const*":
        return "to bytes"
    if text in ("size_t*", "uint64_t*"):
        return "to c_ulong"
    if text == "int32_t*":
        return "to c_int"
    raise AssertionError(f"the header has a type this test does not know: {text!r}")


def ctypes_type(kind: object) -> str:
    if kind is None:
        return "void"
    name = getattr(kind, "__name__", str(kind))
    return {
        "c_char_p": "bytes",
        "c_void_p": "handle",
        "LP_ContextOptions": "options",
        "LP_Result": "result",
        "LP_LP_Result": "to result",
        "LP_c_void_p": "to handle",
        "LP_c_char_p": "to bytes",
        "LP_c_ulong": "to c_ulong",
        "LP_c_int": "to c_int",
    }.get(name, name)


def prototypes() -> dict[str, tuple[str, list[str]]]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    text = re.sub(r"struct bunshin_\w+ \{.*?\};", "", text, flags=re.S)
    found = {}
    for match in re.finditer(r"((?:const )?(?:struct )?\w+ \**)\s*(bunshin_\w+)\(([^)]*)\);", text):
        arguments = [part.strip() for part in match[3].split(",")]
        kinds = [] if arguments == ["void"] else [c_type(re.sub(r"\w+$", "", part)) for part in arguments]
        found[match[2]] = (c_type(match[1]), kinds)
    return found


def test_signatures_are_those_of_the_header() -> None:
    table = {
        name: (ctypes_type(result), [ctypes_type(kind) for kind in arguments])
        for name, (result, arguments) in library.SIGNATURES.items()
    }
    # A text that the caller frees comes as a pointer, one that it does not as bytes.
    header = prototypes()
    table["bunshin_text_destroy"] = ("void", ["bytes"])
    assert table == header


def test_the_library_exports_the_header_and_nothing_else() -> None:
    path = library._directory() / "libbunshin.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if " T " in line}
    assert exported == set(prototypes())


def test_the_abi_is_one_number_in_both() -> None:
    version = re.search(r"#define BUNSHIN_ABI (\d+)", HEADER.read_text())
    assert version and int(version[1]) == library.ABI == library.load().bunshin_abi()
