/* A process that has renounced memory that is written and executed: it stays so, and so do its children. */
#include "victim.h"
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif

static void renounces(const char *who) {
    int mdwe = prctl(PR_GET_MDWE, 0, 0, 0, 0);
    expect(mdwe == 1, "%s: the flag is %d", who, mdwe);
    expect(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EACCES,
           "%s: it can be mapped", who);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(mprotect(page, 4096, PROT_READ | PROT_EXEC) == -1 && errno == EACCES, "%s: it can be made executable", who);
}

int main(void) {
    uint64_t *memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1 << 13; i++)
        memory[i] = pattern((uint64_t)i);
    if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0) { /* Linux 6.3 */
        ready();
        go();
        ok();
    }
    ready();
    go();
    renounces("we");
    for (int i = 0; i < 1 << 13; i++)
        expect(memory[i] == pattern((uint64_t)i), "memory differs at %d", i);
    pid_t child = fork();
    if (child == 0) {
        renounces("the child");
        _exit(0);
    }
    child_ends_well(child);
    ok();
}
