/* A working directory that a process shares with a program its child has executed. Kept, or refused by name. */
#include "victim.h"

static char stack[65536] __attribute__((aligned(16)));

static int other(void *path) {
    execl(path, path, "child", NULL);
    _exit(9);
}

int main(int count, char **argv) {
    (void)argv;
    if (count > 1) {
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        must(chdir("/usr"));
        _exit(0);
    }
    char path[4096], cwd[64];
    path[must(readlink("/proc/self/exe", path, sizeof path - 1))] = '\0';
    pid_t child = clone(other, stack + sizeof stack, CLONE_FS | CLONE_VM | CLONE_VFORK | SIGCHLD, path);
    must(child);
    ready();
    go();
    child_ends_well(child);
    expect(getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/usr"), "we are in %s", cwd);
    ok();
}
