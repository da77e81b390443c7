/* Two processes with one working directory and one umask: where one goes, the other is. Kept, or refused by name. */
#include "victim.h"

static char stack[65536] __attribute__((aligned(16)));

static int other(void *argument) {
    (void)argument;
    while (access(victim_path("go"), F_OK) != 0)
        nap(0.01);
    must(chdir("/usr"));
    umask(0123);
    _exit(0);
}

int main(void) {
    char cwd[64];
    pid_t child = clone(other, stack + sizeof stack, CLONE_FS | SIGCHLD, NULL);
    must(child);
    ready();
    go();
    child_ends_well(child);
    expect(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/usr"), "we are in %s", cwd);
    expect(umask(0) == 0123, "the umask differs");
    ok();
}
