/* A process that has left the group which bears its number, while others stay in it. */
#include "victim.h"

int main(void) {
    int fds[2];
    char x;
    pid_t child[3];
    must(pipe(fds));
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i] == 0)
            for (;;)
                pause();
        must(setpgid(child[i], i == 1 ? child[0] : child[i])); /* 1 joins 0; 2 leads its own */
    }
    pid_t mover = fork();
    if (mover == 0) {
        must(setpgid(0, 0));
        must(write(fds[1], "x", 1));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        expect(getpgid(0) == child[2], "it is in group %d, not %d", getpgid(0), child[2]);
        /* Its old group is still one that can be joined again. */
        must(setpgid(0, getpid()));
        _exit(0);
    }
    must(read(fds[0], &x, 1));
    pid_t stayer = fork();
    if (stayer == 0)
        for (;;)
            pause();
    must(setpgid(stayer, mover));
    must(setpgid(mover, child[2]));
    must(setpgid(child[0], child[2])); /* 0 goes, 1 stays in its group */
    ready();
    go();
    expect(getpgid(stayer) == mover, "who stayed is in group %d, not %d", getpgid(stayer), mover);
    expect(getpgid(child[0]) == child[2] && getpgid(child[1]) == child[0], "groups %d and %d", getpgid(child[0]), getpgid(child[1]));
    child_ends_well(mover);
    int status;
    must(kill(-mover, SIGTERM));
    must(waitpid(stayer, &status, 0));
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %x", status);
    expect(waitpid(-1, NULL, WNOHANG) == 0, "others heard it too");
    for (int i = 0; i < 3; i++)
        must(kill(child[i], SIGKILL));
    ok();
}
