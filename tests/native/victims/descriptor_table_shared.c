/* Two processes with one table of descriptors: what one opens, the other has. Kept, or refused by name. */
#include "victim.h"

static char stack[65536] __attribute__((aligned(16)));
static int *shared;

static int other(void *argument) {
    (void)argument;
    while (access(victim_path("go"), F_OK) != 0)
        nap(0.01);
    shared[0] = open("/dev/zero", O_RDONLY);
    _exit(0);
}

int main(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = clone(other, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
    must(child);
    ready();
    go();
    child_ends_well(child);
    char byte = 1;
    expect(read(shared[0], &byte, 1) == 1 && !byte, "what the other opened is not here (%d)", shared[0]);
    ok();
}
