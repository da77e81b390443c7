/* waitpid for a child that ends after the fork; waitid for one that stops. */
#include "blocked.h"

static pid_t child;

static void end_it(void) { must(kill(child, SIGTERM)); }

int main(void) {
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    pthread_t id = herald_start(end_it);
    int status;
    pid_t got = waitpid(child, &status, 0);
    expect(got == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "waitpid gave %d, status %x", got, status);
    pthread_join(id, NULL);
    ok();
}
