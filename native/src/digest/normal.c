/*
 * Files that hold a function of what a digest leaves out. Each rule says what it drops and why nobody misses it:
 *
 * - Bytecode in __pycache__ (PEP 552) begins with the time and size of its source. Python compares them and nothing else, so
 *   what counts is whether they match the source that lies there now: files.c finds that out.
 * - git's index remembers times, device, inode, owner and size of each file, so as to read only those that changed. A mismatch makes git
 *   read the file, after which it says the same. Versions 2 and 3 without an extension that we do not know; others count as
 *   they are. `git diff-files` and `git diff-index`, which do not look, are calls of the strict kind.
 */
#include <arpa/inet.h>
#include <string.h>

#include "digest/entry.h"

static bool ends_with(const char *path, const char *end) {
    size_t length = strlen(path), size = strlen(end);
    return length >= size && !strcmp(path + length - size, end);
}

static bool is_compiled(const char *path) {
    const char *name = strrchr(path, '/');
    static const char place[] = "__pycache__";
    size_t size = sizeof place - 1;
    return name && (size_t)(name - path) >= size && !strncmp(name - size, place, size) &&
           ((size_t)(name - path) == size || name[-(ptrdiff_t)size - 1] == '/') && ends_with(path, ".pyc");
}

static bool is_index(const char *path) { return !strcmp(path, "index") || ends_with(path, "/index"); }

bool normal_is_candidate(const char *path) { return is_compiled(path) || is_index(path); }

bool normal_compiled(const char *path, const uint8_t *data, size_t size, struct body *ret) {
    uint32_t flags;
    if (!is_compiled(path) || size < 16)
        return false;
    memcpy(&flags, data + 4, 4);
    if (flags) /* it names the source's content instead */
        return false;
    memcpy(&ret->source_time, data + 8, 4);
    memcpy(&ret->source_size, data + 12, 4);
    return ret->compiled = true;
}

static uint32_t number(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

#define INDEX_HEADER 12
#define INDEX_CHECKSUM 20
#define INDEX_ENTRY 62 /* up to the name */

bool normal_index(const char *path, const uint8_t *data, size_t size, struct hash_state *state) {
    if (!is_index(path) || size < INDEX_HEADER + INDEX_CHECKSUM || memcmp(data, "DIRC", 4))
        return false;
    uint32_t version = number(data + 4), count = number(data + 8);
    if (version != 2 && version != 3)
        return false;
    size_t at = INDEX_HEADER, end = size - INDEX_CHECKSUM;
    hash_update(state, data, INDEX_HEADER);
    for (uint32_t i = 0; i < count; i++) {
        if (end - at < INDEX_ENTRY + 1)
            return false;
        /* ctime, mtime, device, inode; mode; owner, group, size (0 where git is in doubt); object, flags, name. */
        uint16_t flags;
        memcpy(&flags, data + at + 60, 2);
        size_t name = INDEX_ENTRY + (version == 3 && ntohs(flags) & 0x4000 ? 2 : 0);
        if (end - at <= name)
            return false;
        const uint8_t *stop = memchr(data + at + name, 0, end - at - name);
        if (!stop)
            return false;
        hash_update(state, data + at + 24, 4);
        hash_text(state, data + at + 40, (size_t)(stop - (data + at)) - 40);
        size_t whole = ((size_t)(stop - (data + at)) + 8) & ~(size_t)7;
        if (whole > end - at)
            return false;
        at += whole;
    }
    while (end - at >= 8) {
        static const char known[][5] = {"TREE", "REUC", "EOIE", "IEOT"};
        size_t length = number(data + at + 4);
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= !memcmp(data + at, known[k], 4);
        if (!found || length > end - at - 8)
            return false;
        /* The last two say where things lie in this very file, with a checksum over the others' names. */
        if (memcmp(data + at, "EOIE", 4))
            hash_text(state, data + at, 8 + length);
        at += 8 + length;
    }
    return at == end;
}
