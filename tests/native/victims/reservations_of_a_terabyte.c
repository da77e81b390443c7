/* Address space by the terabyte, with a page in use here and there: forbidden, private, shared, of /dev/zero both ways. */
#include "victim.h"

#define GB (1ull << 30)

static char *map(uint64_t size, int protection, int flags, const char *path) {
    int fd = path ? (int)must(open(path, O_RDWR)) : -1;
    char *memory = mmap(NULL, size, protection, flags | MAP_NORESERVE | (path ? 0 : MAP_ANONYMOUS), fd, 0);
    expect(memory != MAP_FAILED, "no room for %lx bytes", (unsigned long)size);
    if (path)
        close(fd);
    return memory;
}

int main(void) {
    const int both = PROT_READ | PROT_WRITE;
    char *forbidden = map(1400 * GB, PROT_NONE, MAP_PRIVATE, NULL), *own = map(100 * GB, both, MAP_PRIVATE, NULL);
    char *common = map(4 * GB, both, MAP_SHARED, NULL);
    char *zero = map(4 * 4096, both, MAP_PRIVATE, "/dev/zero"), *zero_common = map(4 * 4096, both, MAP_SHARED, "/dev/zero");
    must(mprotect(forbidden + 700 * GB, 1 << 20, both));
    forbidden[700 * GB + 5] = 9;
    for (uint64_t at = 0; at < 100; at++)
        own[at * GB] = (char)at;
    common[0] = 1;
    common[3 * GB] = 2;
    zero[4096] = 'z';
    zero_common[4096] = 'y';
    ready();
    go();
    for (uint64_t at = 0; at < 100; at++)
        expect(own[at * GB] == (char)at, "at %lu GB", (unsigned long)at);
    expect(forbidden[700 * GB + 5] == 9, "in the forbidden one");
    expect(common[0] == 1 && common[3 * GB] == 2 && common[2 * GB] == 0 && common[4 * GB - 1] == 0, "in the common one");
    expect(zero[4096] == 'z' && zero[0] == 0 && zero_common[4096] == 'y' && zero_common[0] == 0, "of /dev/zero");
    pid_t child = fork();
    if (child == 0) {
        common[GB] = zero_common[0] = 5;
        zero[0] = 6;
        _exit(0);
    }
    child_ends_well(child);
    expect(common[GB] == 5 && zero_common[0] == 5 && zero[0] == 0, "what is common");
    must(munmap(forbidden + 100 * GB, 200 * GB));
    expect(atol(status_of("VmRSS")) < 100 << 10, "%s resident", status_of("VmRSS"));
    ok();
}
