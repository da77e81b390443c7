/* A parent in vfork whose child is in vfork too, all three at the moment of the freeze: they stop from the inside out. */
#include "victim.h"

static char shell[] = "/bin/true";
static char *arguments[] = {shell, NULL}, *nothing[] = {NULL};

/* Slow children, so that any freeze finds some in the middle; vfork returns twice, which needs frames that nobody reuses. */
static void linger(void) {
    struct timespec time = {0, 4000000};
    syscall(SYS_nanosleep, &time, NULL);
}

static __attribute__((noinline)) pid_t inner(void) {
    pid_t child = vfork();
    if (child == 0) {
        linger();
        execve(shell, arguments, nothing);
        _exit(127);
    }
    return child;
}

static __attribute__((noinline)) pid_t outer(void) {
    pid_t child = vfork();
    if (child == 0) {
        pid_t grandchild = inner();
        linger(); /* it does not wait for it: whom it waited for might be frozen already */
        _exit(grandchild > 0 ? 3 : 4);
    }
    return child;
}

int main(void) {
    pid_t herald = fork();
    if (herald == 0) {
        nap(0.1);
        ready();
        _exit(0);
    }
    unsigned long rounds = 0;
    while (access(victim_path("go"), F_OK) != 0 || rounds < 5) {
        int status;
        pid_t child = (pid_t)must(outer());
        must(waitpid(child, &status, 0));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 3, "round %lu: status %x", rounds, status);
        rounds++;
    }
    must(waitpid(herald, NULL, 0));
    ok();
}
