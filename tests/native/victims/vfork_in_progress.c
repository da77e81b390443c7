/* A parent suspended by vfork while its child has not called exec yet. */
#include "victim.h"

static volatile int borrowed;

int main(void) {
    pid_t herald = fork();
    if (herald == 0) {
        nap(0.2);
        ready();
        _exit(0);
    }
    pid_t child = vfork();
    if (child == 0) {
        borrowed = 5; /* in the parent's own memory */
        while (access(victim_path("go"), F_OK) != 0) {
            struct timespec time = {0, 10000000};
            syscall(SYS_nanosleep, &time, NULL);
        }
        _exit(3);
    }
    int status;
    expect(access(victim_path("go"), F_OK) == 0, "the parent runs too early");
    expect(borrowed == 5, "the memory is not shared");
    must(waitpid(child, &status, 0));
    expect(WEXITSTATUS(status) == 3, "status %x", status);
    must(waitpid(herald, NULL, 0));
    ok();
}
