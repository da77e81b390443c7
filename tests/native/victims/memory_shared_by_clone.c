/* Two processes that share one address space, as some runtimes make them. */
#include "victim.h"

static volatile int word;
static char stack[65536] __attribute__((aligned(16)));

static int other(void *argument) {
    (void)argument;
    while (word != 1)
        syscall(SYS_sched_yield);
    word = 2;
    return 0;
}

int main(void) {
    pid_t child = clone(other, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    must(child);
    ready();
    go();
    word = 1;
    for (int i = 0; word != 2; i++, nap(0.002))
        expect(i < 1500, "the other does not see our memory");
    must(waitpid(child, NULL, 0));
    ok();
}
