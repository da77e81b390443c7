/* What /proc tells a process of its own memory. Nothing here maps any. */
#pragma once
#include "victim.h"

static inline const char *proc_text(const char *path) {
    static char text[1 << 18];
    int fd = (int)must(open(path, O_RDONLY | O_CLOEXEC));
    size_t size = 0;
    for (ssize_t got; size < sizeof text - 1 && (got = must(read(fd, text + size, sizeof text - 1 - size))) > 0;)
        size += (size_t)got;
    close(fd);
    text[size] = '\0';
    return text;
}

static inline long kilobytes_locked(void) {
    const char *line = strstr(proc_text("/proc/self/status"), "\nVmLck:");
    expect(line, "no VmLck");
    return atol(line + 7);
}

/* Whether VmFlags of the mapping that holds an address have this one. */
static inline bool has_flag(const void *address, const char *flag) {
    const char *at = proc_text("/proc/self/smaps");
    for (bool found = false; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : at) {
        unsigned long long start, end;
        if (sscanf(at, "%llx-%llx ", &start, &end) == 2)
            found = start <= (uintptr_t)address && (uintptr_t)address < end;
        else if (found && !strncmp(at, "VmFlags:", 8)) {
            char line[256];
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            return strstr(line, flag) != NULL;
        }
    }
    expect(false, "no mapping at %p", address);
    return false;
}

/* How many pages are there. */
static inline int resident(void *address, size_t length) {
    unsigned char pages[4096];
    int count = 0;
    must(mincore(address, length, pages));
    for (size_t i = 0; i < length / 4096; i++)
        count += pages[i] & 1;
    return count;
}

static inline void *fresh(size_t length) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED, "mmap of %zu bytes", length);
    return memory;
}
