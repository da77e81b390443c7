/* A session of its own, a group of its own, and a member of another child's group stay what they are. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    pid_t child[3];
    for (int i = 0; i < 3; i++)
        if ((child[i] = fork()) == 0) {
            if (i == 0)
                must(setsid());
            if (i == 1)
                must(setpgid(0, 0));
            if (i == 2)
                while (setpgid(0, child[1]) != 0)
                    nap(0.002);
            must(write(pipes[1], "x", 1));
            for (;;)
                pause();
        }
    char x;
    for (int i = 0; i < 3; i++)
        must(read(pipes[0], &x, 1));
    pid_t session = getsid(0), group = getpgid(0);
    ready();
    go();
    expect(getsid(0) == session && getpgid(0) == group, "own session %d and group %d, were %d and %d", getsid(0), getpgid(0), session, group);
    expect(getsid(child[0]) == child[0] && getpgid(child[0]) == child[0], "the session leader: session %d group %d", getsid(child[0]), getpgid(child[0]));
    expect(getsid(child[1]) == session && getpgid(child[1]) == child[1], "the group leader: session %d group %d", getsid(child[1]), getpgid(child[1]));
    expect(getsid(child[2]) == session && getpgid(child[2]) == child[1], "the member: session %d group %d", getsid(child[2]), getpgid(child[2]));
    must(kill(-child[1], SIGTERM));
    for (int i = 1; i < 3; i++) {
        int status;
        must(waitpid(-child[1], &status, 0));
        expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "a group member ended with %x", status);
    }
    expect(kill(child[0], 0) == 0, "the other session got the group's signal");
    must(kill(child[0], SIGKILL));
    ok();
}
