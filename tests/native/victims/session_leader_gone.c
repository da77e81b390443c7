/* Two groups in a session whose leader was reaped: both members keep session and group. */
#include "victim.h"

int main(void) {
    int pipes[2];
    pid_t ids[3];
    must(pipe(pipes));
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t leader = fork();
    if (leader == 0) {
        must(setsid());
        for (int i = 0; i < 2; i++)
            if (fork() == 0) {
                if (i == 1)
                    must(setpgid(0, 0));
                pid_t self = getpid();
                must(write(pipes[1], &self, sizeof self));
                for (;;)
                    pause();
            }
        nap(0.05);
        _exit(0);
    }
    for (int i = 0; i < 2; i++)
        must(read(pipes[0], &ids[i], sizeof ids[i]));
    must(waitpid(leader, NULL, 0));
    ready();
    go();
    int own_group = 0;
    for (int i = 0; i < 2; i++) {
        struct kin kin = kin_of(ids[i]);
        expect(kin.session == leader, "%d is in session %d, not %d", ids[i], kin.session, leader);
        expect(kin.parent == getpid(), "%d has parent %d, not its subreaper %d", ids[i], kin.parent, getpid());
        expect(kin.group == leader || kin.group == ids[i], "%d is in group %d", ids[i], kin.group);
        own_group += kin.group == ids[i];
        must(kill(ids[i], SIGKILL));
        must(waitpid(ids[i], NULL, 0));
    }
    expect(own_group == 1, "%d lead a group of their own", own_group);
    ok();
}
