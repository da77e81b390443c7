/* Locked memory, and memory to be locked, of processes whose limit has become lower since, or nothing at all. */
#include "memory.h"

static void lower(rlim_t current) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_MEMLOCK, &limit));
    limit.rlim_cur = current;
    must(setrlimit(RLIMIT_MEMLOCK, &limit));
}

static void check(rlim_t limit, const char *memory, long locked) {
    struct rlimit now;
    must(getrlimit(RLIMIT_MEMLOCK, &now));
    expect(now.rlim_cur == limit, "a limit of %ld", (long)now.rlim_cur);
    expect(kilobytes_locked() == locked && has_flag(memory, " lo"), "%ld kB locked", kilobytes_locked());
    void *more = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(more == MAP_FAILED && errno == EAGAIN, "it could lock more");
    struct rlimit all = {now.rlim_max, now.rlim_max};
    must(setrlimit(RLIMIT_MEMLOCK, &all));
    more = fresh(4096);
    expect(has_flag(more, " lo"), "it does not lock what it maps");
    must(munmap(more, 4096));
}

int main(void) {
    must(prctl(PR_SET_PDEATHSIG, SIGKILL));
    pid_t child = (pid_t)must(fork());
    must(mlockall(MCL_FUTURE));
    char *memory = fresh(65536);
    rlim_t limit = child ? 65536 : 0;
    lower(limit);
    ready();
    go();
    check(limit, memory, 64);
    if (!child)
        _exit(0);
    child_ends_well(child);
    ok();
}
