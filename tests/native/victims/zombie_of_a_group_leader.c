/* A zombie that leads a session: its group lives on through its member. */
#include "victim.h"

int main(void) {
    int pipes[2];
    pid_t member;
    must(pipe(pipes));
    pid_t leader = fork();
    if (leader == 0) {
        must(setsid());
        pid_t own = fork();
        if (own == 0)
            for (;;)
                pause();
        must(write(pipes[1], &own, sizeof own));
        _exit(7);
    }
    must(read(pipes[0], &member, sizeof member));
    while (kin_of(leader).state != 'Z' || kin_of(member).parent != 1)
        nap(0.002);
    ready();
    go();
    struct kin kin = kin_of(member), gone = kin_of(leader);
    expect(kin.session == leader && kin.group == leader && kin.parent == 1, "member: session %d group %d parent %d", kin.session, kin.group, kin.parent);
    expect(gone.state == 'Z' && gone.session == leader && gone.group == leader, "leader: state %c session %d group %d", gone.state, gone.session, gone.group);
    int status;
    expect(waitpid(leader, &status, 0) == leader && WEXITSTATUS(status) == 7, "the leader's status is %x", status);
    must(kill(-leader, SIGKILL));
    ok();
}
