/* A process group whose leader has ended and is reaped still holds its members together. */
#include "victim.h"

int main(void) {
    int pipes[2];
    pid_t member[2], group;
    must(pipe(pipes));
    group = fork();
    if (group == 0) {
        must(setpgid(0, 0));
        must(write(pipes[1], "x", 1));
        for (;;)
            pause();
    }
    char x;
    must(read(pipes[0], &x, 1));
    for (int i = 0; i < 2; i++) {
        if ((member[i] = fork()) == 0) {
            must(setpgid(0, group));
            must(write(pipes[1], "x", 1));
            for (;;)
                pause();
        }
        must(read(pipes[0], &x, 1));
    }
    must(kill(group, SIGKILL));
    must(waitpid(group, NULL, 0));
    ready();
    go();
    for (int i = 0; i < 2; i++)
        expect(getpgid(member[i]) == group, "member %d is in group %d, not %d", member[i], getpgid(member[i]), group);
    expect(kill(group, 0) == -1 && errno == ESRCH, "the leader is back");
    must(kill(-group, SIGUSR1));
    for (int i = 0; i < 2; i++) {
        int status;
        expect(waitpid(-group, &status, 0) > 0 && WTERMSIG(status) == SIGUSR1, "a member ended with %x", status);
    }
    ok();
}
