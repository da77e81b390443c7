/* The signal a child asked for at its parent's end still comes. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGUSR2);
            sigprocmask(SIG_BLOCK, &set, NULL);
            must(prctl(PR_SET_PDEATHSIG, SIGUSR2));
            must(write(pipes[1], "x", 1));
            struct timespec limit = {20, 0};
            siginfo_t info;
            int got;
            while ((got = sigtimedwait(&set, &info, &limit)) < 0 && errno == EINTR)
                ;
            expect(got == SIGUSR2, "no signal at the parent's end");
            must(write(pipes[1], "y", 1));
            _exit(0);
        }
        for (;;)
            pause();
    }
    char x;
    must(read(pipes[0], &x, 1));
    ready();
    go();
    must(kill(parent, SIGKILL));
    must(waitpid(parent, NULL, 0));
    must(read(pipes[0], &x, 1));
    expect(x == 'y', "read %c", x);
    ok();
}
