"""A C library of typed containers, generated: a vector, a heap, a map and a sorted set for each of 18 types.

Every container is plain text of its own, as generators of typed containers leave it: 72 sources, 72 headers, a test
each. Two faults are in it: the growth of small buffers (a header everybody includes), and the heap's way down.
"""

from __future__ import annotations

from functools import cache

TYPES = {
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u16": "uint16_t",
    "u32": "uint32_t", "u64": "uint64_t", "f32": "float", "f64": "double", "size": "size_t", "ptrdiff": "ptrdiff_t",
    "short": "short", "int": "int", "long": "long", "ushort": "unsigned short", "uint": "unsigned",
    "ulong": "unsigned long",
}  # fmt: skip
KINDS = ("vector", "heap", "map", "set")

GROW = """\
#ifndef CASK_GROW_H
#define CASK_GROW_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The capacity after `old`: larger by half, so that freed blocks can be used again; at least CASK_SMALLEST. */
#define CASK_SMALLEST 8

static inline size_t cask_grow(size_t old)
{
    return old + old / 2;
}

/* Mixes the bits of a key, so that neighbours part. */
static inline uint64_t cask_mix(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    return key ^ key >> 33;
}
#endif
"""

_HEADER = """\
#ifndef CASK_@KIND@_@NAME@_H
#define CASK_@KIND@_@NAME@_H
#include "grow.h"
#include <stdbool.h>

typedef struct {
    @TYPE@ *items;
    @EXTRA@size_t count, capacity;
    unsigned grown; /* how often a larger buffer was needed */
} @P@;

void @P@_init(@P@ *it);
void @P@_free(@P@ *it);
bool @P@_add(@P@ *it, @TYPE@ item);
bool @P@_has(const @P@ *it, @TYPE@ item);
bool @P@_take(@P@ *it, @TYPE@ *ret);
bool @P@_remove(@P@ *it, @TYPE@ item);
#endif
"""

_SHARED = """\
#include "@P@.h"

void @P@_init(@P@ *it) { memset(it, 0, sizeof(*it)); }

void @P@_free(@P@ *it)
{
    free(it->items);
    @FREE@@P@_init(it);
}
"""

_RESERVE = """\

static bool reserve(@P@ *it)
{
    if (it->count < it->capacity)
        return true;
    size_t capacity = cask_grow(it->capacity);
    if (capacity <= it->capacity)
        return false;
    @TYPE@ *items = realloc(it->items, capacity * sizeof(*items));
    if (!items)
        return false;
    it->items = items;
    it->capacity = capacity;
    it->grown++;
    return true;
}
"""

_HAS = """\

bool @P@_has(const @P@ *it, @TYPE@ item)
{
    for (size_t i = 0; i < it->count; i++)
        if (it->items[i] == item)
            return true;
    return false;
}
"""

_VECTOR = """\

bool @P@_add(@P@ *it, @TYPE@ item)
{
    if (!reserve(it))
        return false;
    it->items[it->count++] = item;
    return true;
}

bool @P@_take(@P@ *it, @TYPE@ *ret)
{
    if (!it->count)
        return false;
    *ret = it->items[--it->count];
    return true;
}

bool @P@_remove(@P@ *it, @TYPE@ item)
{
    for (size_t i = 0; i < it->count; i++)
        if (it->items[i] == item) {
            memmove(it->items + i, it->items + i + 1, (--it->count - i) * sizeof(item));
            return true;
        }
    return false;
}
"""

_HEAP = """\

static void up(@P@ *it, size_t at)
{
    while (at > 0 && it->items[at] < it->items[(at - 1) / 2]) {
        @TYPE@ item = it->items[at];
        it->items[at] = it->items[(at - 1) / 2];
        it->items[(at - 1) / 2] = item;
        at = (at - 1) / 2;
    }
}

static void down(@P@ *it, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= it->count)
            return;
        if (child + 1 > it->count && it->items[child + 1] < it->items[child])
            child++;
        if (!(it->items[child] < it->items[at]))
            return;
        @TYPE@ item = it->items[at];
        it->items[at] = it->items[child];
        it->items[child] = item;
        at = child;
    }
}

bool @P@_add(@P@ *it, @TYPE@ item)
{
    if (!reserve(it))
        return false;
    it->items[it->count] = item;
    up(it, it->count++);
    return true;
}

/* The smallest. */
bool @P@_take(@P@ *it, @TYPE@ *ret)
{
    if (!it->count)
        return false;
    *ret = it->items[0];
    it->items[0] = it->items[--it->count];
    down(it, 0);
    return true;
}

bool @P@_remove(@P@ *it, @TYPE@ item)
{
    for (size_t i = 0; i < it->count; i++)
        if (it->items[i] == item) {
            it->items[i] = it->items[--it->count];
            if (i < it->count) {
                up(it, i);
                down(it, i);
            }
            return true;
        }
    return false;
}
"""

_MAP = """\

static uint64_t home(@TYPE@ item)
{
    uint64_t key = 0;
    memcpy(&key, &item, sizeof(item) < sizeof(key) ? sizeof(item) : sizeof(key));
    return cask_mix(key);
}

static size_t place(const @P@ *it, @TYPE@ item)
{
    size_t at = home(item) % it->capacity;
    while (it->used[at] && it->items[at] != item)
        at = (at + 1) % it->capacity;
    return at;
}

static bool spread(@P@ *it)
{
    @P@ larger = *it;
    larger.capacity = cask_grow(it->capacity);
    if (larger.capacity <= it->capacity)
        return false;
    larger.items = calloc(larger.capacity, sizeof(*larger.items));
    larger.used = calloc(larger.capacity, 1);
    if (!larger.items || !larger.used) {
        free(larger.items);
        free(larger.used);
        return false;
    }
    for (size_t i = 0; i < it->capacity; i++)
        if (it->used[i]) {
            size_t at = place(&larger, it->items[i]);
            larger.items[at] = it->items[i];
            larger.used[at] = 1;
        }
    free(it->items);
    free(it->used);
    larger.grown++;
    *it = larger;
    return true;
}

bool @P@_add(@P@ *it, @TYPE@ item)
{
    if (4 * (it->count + 1) > 3 * it->capacity && !spread(it))
        return false;
    size_t at = place(it, item);
    if (!it->used[at]) {
        it->used[at] = 1;
        it->items[at] = item;
        it->count++;
    }
    return true;
}

bool @P@_has(const @P@ *it, @TYPE@ item) { return it->capacity && it->used[place(it, item)]; }

bool @P@_remove(@P@ *it, @TYPE@ item)
{
    if (!@P@_has(it, item))
        return false;
    size_t hole = place(it, item);
    it->used[hole] = 0;
    it->count--;
    for (size_t at = (hole + 1) % it->capacity; it->used[at]; at = (at + 1) % it->capacity) {
        @TYPE@ moved = it->items[at];
        it->used[at] = 0;
        size_t again = place(it, moved);
        it->items[again] = moved;
        it->used[again] = 1;
    }
    return true;
}

bool @P@_take(@P@ *it, @TYPE@ *ret)
{
    for (size_t i = 0; i < it->capacity; i++)
        if (it->used[i]) {
            *ret = it->items[i];
            return @P@_remove(it, *ret);
        }
    return false;
}
"""

_SET = """\

static size_t place(const @P@ *it, @TYPE@ item)
{
    size_t low = 0, high = it->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (it->items[middle] < item)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool @P@_add(@P@ *it, @TYPE@ item)
{
    size_t at = place(it, item);
    if (at < it->count && it->items[at] == item)
        return true;
    if (!reserve(it))
        return false;
    memmove(it->items + at + 1, it->items + at, (it->count - at) * sizeof(item));
    it->items[at] = item;
    it->count++;
    return true;
}

bool @P@_has(const @P@ *it, @TYPE@ item)
{
    size_t at = place(it, item);
    return at < it->count && it->items[at] == item;
}

bool @P@_remove(@P@ *it, @TYPE@ item)
{
    size_t at = place(it, item);
    if (at >= it->count || it->items[at] != item)
        return false;
    memmove(it->items + at, it->items + at + 1, (--it->count - at) * sizeof(item));
    return true;
}

/* The largest. */
bool @P@_take(@P@ *it, @TYPE@ *ret)
{
    if (!it->count)
        return false;
    *ret = it->items[--it->count];
    return true;
}
"""

_BODIES = {"vector": _RESERVE + _HAS + _VECTOR, "heap": _RESERVE + _HAS + _HEAP, "map": _MAP, "set": _RESERVE + _SET}

# What every test does, beside a plain array that it knows to be right; then what is special about the kind.
_TEST = """\
#include "@P@.h"
#include "test.h"

enum { ROUNDS = 1200 };

static uint32_t seed = @SEED@;

static @TYPE@ draw(void) { return (@TYPE@)(next_random(&seed) % 120); }

int main(void)
{
    static @TYPE@ model[ROUNDS];
    for (int run = 0; run < 150; run++) {
        size_t count = 0;
        @P@ it;
        @P@_init(&it);
        for (int i = 0; i < ROUNDS; i++) {
            @TYPE@ item = draw();
            size_t at = 0;
            while (at < count && model[at] != item)
                at++;
            if (next_random(&seed) % 3) {
                CHECK(@P@_add(&it, item));
                if (at == count || @MANY@)
                    model[count++] = item;
            } else {
                CHECK(@P@_remove(&it, item) == (at < count));
                if (at < count)
                    model[at] = model[--count];
            }
            CHECK(it.count == count);
            CHECK(@P@_has(&it, draw()) || count < ROUNDS);
        }
        CHECK(it.grown <= 24);
@SPECIAL@
        @P@_free(&it);
    }
    return 0;
}
"""

_IN_ORDER = """\
        @TYPE@ last = 0, item;
        for (bool first = true; @P@_take(&it, &item); first = false) {
            CHECK(first || !(@AGAINST@));
            last = item;
        }
        CHECK(it.count == 0);"""
_ALL_GO = """\
        @TYPE@ item;
        while (@P@_take(&it, &item))
            CHECK(count-- > 0);
        CHECK(count == 0);"""

_TEST_H = """\
#ifndef CASK_TEST_H
#define CASK_TEST_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                              \\
    do {                                                                         \\
        if (!(what)) {                                                           \\
            printf("%s:%d: failed: %s\\n", __FILE__, __LINE__, #what);           \\
            exit(1);                                                             \\
        }                                                                        \\
    } while (0)

static inline uint32_t next_random(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u, *seed >> 8; }
#endif
"""

MAKEFILE = """\
CC ?= cc
CFLAGS = -O2 -g -Wall -Wextra -std=c11 -Iinclude -Itest -MMD -MP
NAMES = $(basename $(notdir $(wildcard src/*.c)))
TESTS = $(NAMES:%=build/test_%)

all: build/libcask.a $(TESTS)

build/libcask.a: $(NAMES:%=build/%.o)
	rm -f $@ && ar rcsD $@ $^

build/%.o: src/%.c | build
	$(CC) $(CFLAGS) -c -o $@ $<

build/test_%: test/test_%.c build/libcask.a | build
	$(CC) $(CFLAGS) -o $@ $< build/libcask.a

build:
	mkdir -p $@

test: all
	@failed=0; for t in $(TESTS); do $$t || failed=$$((failed + 1)); done; \\
	echo "$(words $(TESTS)) tests, $$failed failed"; test $$failed -eq 0

clean:
	rm -rf build

.PHONY: all test clean
-include $(wildcard build/*.d)
"""

README = """\
# cask

Typed containers in C, a source for each of them: `vector_i32`, `heap_f64`, `map_u64`, `set_size` and so on; 18 types,
four kinds. All grow by half when they are full, from CASK_SMALLEST on (`include/grow.h`).

* `TYPE_add` puts an item in; false where memory runs out. A set and a map hold each item once.
* `TYPE_take` takes an item out: of a vector the last one, of a heap the smallest, of a set the largest, of a map any.
* `TYPE_remove` takes that item out, one of them where there are several; false where there is none.
* `TYPE_has` tells whether it is in.

`make` builds, `make test` tests (72 test programs); `make -j2` builds faster.
"""


def _fill(text: str, kind: str, name: str) -> str:
    plain = {
        "P": f"{kind}_{name}",
        "TYPE": TYPES[name],
        "KIND": kind.upper(),
        "NAME": name.upper(),
        "EXTRA": "uint8_t *used;\n    " if kind == "map" else "",
        "FREE": "free(it->used);\n    " if kind == "map" else "",
        "SEED": str(1 + 7 * list(TYPES).index(name)),
        "MANY": "true" if kind in ("vector", "heap") else "false",
        "SPECIAL": _IN_ORDER if kind in ("heap", "set") else _ALL_GO,
        "AGAINST": "item < last" if kind == "heap" else "last < item",
    }
    for _ in range(2):
        for word, meaning in plain.items():
            text = text.replace(f"@{word}@", meaning)
    return text


@cache
def make() -> dict[str, bytes]:
    """The project's files by path below its folder."""
    files = {"Makefile": MAKEFILE, "README.md": README, "include/grow.h": GROW, "test/test.h": _TEST_H}
    for kind in KINDS:
        for name in TYPES:
            files[f"include/{kind}_{name}.h"] = _fill(_HEADER, kind, name)
            files[f"src/{kind}_{name}.c"] = _fill(_SHARED + _BODIES[kind], kind, name)
            files[f"test/test_{kind}_{name}.c"] = _fill(_TEST, kind, name)
    return {path: text.encode() for path, text in files.items()}
