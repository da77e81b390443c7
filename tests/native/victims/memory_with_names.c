/* Memory has the names it was given (PR_SET_VMA_ANON_NAME). A kernel that gives none has none to lose. */
#include "memory.h"

#define BIG (4u << 20)

static bool name(void *address, size_t length, const char *text) {
    return prctl(0x53564d41 /* PR_SET_VMA */, 0 /* PR_SET_VMA_ANON_NAME */, address, length, text) == 0;
}

/* What the map shows between two addresses, all of it, must be this: in either form, where `form` is NULL. */
static void check(const char *what, void *address, size_t length, const char *form, const char *text) {
    uintptr_t at = (uintptr_t)address, end = at + length;
    for (const char *line = proc_text("/proc/self/maps"); line && *line && at < end; line = strchr(line, '\n') + 1) {
        unsigned long long from, to;
        char one[300], other[300], shown[300] = "";
        sscanf(line, "%llx-%llx", &from, &to);
        if (to <= at)
            continue;
        expect(from <= at, "%s: nothing is mapped at %lx", what, (unsigned long)at);
        const char *path = memchr(line, '[', strcspn(line, "\n"));
        if (path)
            snprintf(shown, sizeof shown, "%.*s", (int)strcspn(path, "\n"), path);
        snprintf(one, sizeof one, "[%s:%s]", form ? form : "anon", text);
        snprintf(other, sizeof other, "[%s:%s]", form ? form : "anon_shmem", text);
        expect(text ? !strcmp(shown, one) || !strcmp(shown, other) : !*shown, "%s: %s in place of %s", what, shown, text ? one : "no name");
        expect(!form || !text || (from <= (uintptr_t)address && to >= end), "%s: in pieces", what);
        at = to;
    }
}

static char *shared(size_t length, int fd) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    expect(memory != MAP_FAILED, "mmap");
    return memory;
}

int main(void) {
    char *small = fresh(65536), *odd = fresh(32768), *silent = fresh(1 << 20), *big = fresh(BIG), *read_only = fresh(8192);
    int fd = (int)must(memfd_create("an-object", MFD_CLOEXEC));
    must(ftruncate(fd, 16384));
    char *common = shared(16384, -1), *object = shared(16384, fd);
    if (!name(small, 65536, "small"))
        small = NULL; /* names are not this kernel's */
    bool objects = small && name(common, 16384, "common");
    if (small) {
        must(name(odd + 8192, 8192, " odd (deleted)") - 1);
        must(name(silent, 1 << 20, "") - 1);
        must(name(big, BIG, "a name of seventy-nine bytes, the most that there may be; 0123456789 0123456789") - 1);
        must(name(read_only, 8192, "small") - 1);
        memset(small, 's', 20000);
        odd[8192] = 'o';
        strcpy(read_only, "read only");
        must(mprotect(read_only, 8192, PROT_READ));
        must(mlock(odd + 8192, 4096));
    }
    if (objects)
        must(name(object, 16384, "object") - 1);
    for (size_t i = 0; i < BIG / 8; i++)
        ((uint64_t *)(void *)big)[i] = pattern(i);
    strcpy(common, "common");
    strcpy(object, "object");
    pid_t child = (pid_t)must(fork());
    ready();
    go();
    char at_fd[16] = "", link[64] = "", path[32];
    for (size_t i = 0; i < BIG / 8; i++)
        expect(((uint64_t *)(void *)big)[i] == pattern(i), "word %zu", i);
    expect(!strcmp(common, "common") && !strcmp(object, "object"), "shared memory lost what was in it");
    must(pread(fd, at_fd, 6, 0));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    must(readlink(path, link, sizeof link - 1));
    expect(!strcmp(at_fd, "object") && !strcmp(link, "/memfd:an-object (deleted)"), "the object holds %s and is %s", at_fd, link);
    if (small) {
        check("small", small, 65536, "anon", "small");
        check("odd", odd + 8192, 4096, "anon", " odd (deleted)");
        check("odd", odd + 12288, 4096, "anon", " odd (deleted)");
        check("before odd", odd, 8192, NULL, NULL);
        check("after odd", odd + 16384, 16384, NULL, NULL);
        check("silent", silent, 1 << 20, "anon", "");
        check("read only", read_only, 8192, "anon", "small");
        if (objects)
            check("big", big, BIG, NULL, "a name of seventy-nine bytes, the most that there may be; 0123456789 0123456789");
        for (int i = 0; i < 65536; i++)
            expect(small[i] == (i < 20000 ? 's' : 0), "byte %d of what is small", i);
        expect(odd[8192] == 'o' && !odd[12288] && !strcmp(read_only, "read only"), "named memory lost what was in it");
        expect(!child || has_flag(odd + 8192, " lo"), "what was locked is not");
        expect(!has_flag(odd + 12288, " lo"), "more is locked");
        expect(name(small, 65536, NULL) && (!objects || name(big, BIG, NULL)), "a name cannot be taken away");
        check("small, taken away", small, 65536, NULL, NULL);
    }
    if (objects) {
        check("common", common, 16384, "anon_shmem", "common");
        check("object", object, 16384, "anon_shmem", "object");
    }
    if (child == 0)
        _exit(0);
    child_ends_well(child);
    strcpy(common, "together");
    must(pwrite(fd, "written", 7, 0));
    expect(!memcmp(object, "written", 7), "the mapping and the descriptor are not of one object");
    ok();
}
