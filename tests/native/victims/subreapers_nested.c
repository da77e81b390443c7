/* Subreapers below each other, each with orphans of sessions that are led by the living and by the dead; one is none any more. */
#include "victim.h"

enum { OUTER, MIDDLE, LEADER, DAEMON_OF_MIDDLE, IN_LEADERS_SESSION, LEFT_BY_THE_DEAD, DAEMON_OF_OUTER, OLD_ORPHAN, COUNT };
static struct {
    _Atomic pid_t pid[COUNT];
    atomic_bool seen;
} *shared;

/* A process whose parent is gone by the time this returns. Without a session of its own it stays in the caller's. */
static void orphan(int which, bool own_session) {
    pid_t between = fork();
    if (between == 0) {
        if (own_session)
            must(setsid());
        if (fork() == 0) {
            shared->pid[which] = getpid();
            for (;;)
                pause();
        }
        while (!shared->pid[which])
            nap(0.001);
        _exit(0);
    }
    must(waitpid(between, NULL, 0));
}

static void leader(void) {
    must(setsid());
    orphan(IN_LEADERS_SESSION, false);
    orphan(LEFT_BY_THE_DEAD, true);
    shared->pid[LEADER] = getpid();
    for (;;)
        pause();
}

static void middle(void) {
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    shared->pid[MIDDLE] = getpid();
    if (fork() == 0) {
        if (fork() == 0)
            leader(); /* two below its subreaper */
        for (;;)
            pause();
    }
    orphan(DAEMON_OF_MIDDLE, true);
    while (!shared->pid[LEADER])
        nap(0.001);
    must(prctl(PR_SET_CHILD_SUBREAPER, 0));
    orphan(DAEMON_OF_OUTER, true); /* goes past us now */
    while (!shared->seen)
        nap(0.005);
    int flag = 7;
    must(prctl(PR_GET_CHILD_SUBREAPER, &flag));
    expect(flag == 0, "the middle one is a subreaper (%d)", flag);
    orphan(OLD_ORPHAN, false);
    expect(kin_of(shared->pid[OLD_ORPHAN]).parent == shared->pid[OUTER], "a new orphan went to %d", kin_of(shared->pid[OLD_ORPHAN]).parent);
    expect(waitpid(shared->pid[DAEMON_OF_MIDDLE], NULL, WNOHANG) == 0, "the adopted one is not a child any more");
    must(kill(shared->pid[DAEMON_OF_MIDDLE], SIGKILL));
    must(waitpid(shared->pid[DAEMON_OF_MIDDLE], NULL, 0));
    _exit(0);
}

int main(void) {
    struct kin before[COUNT] = {0};
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    shared->pid[OUTER] = getpid();
    pid_t child = fork();
    if (child == 0)
        middle();
    for (int i = 0; i < OLD_ORPHAN; i++)
        while (!shared->pid[i])
            nap(0.001);
    while (kin_of(shared->pid[DAEMON_OF_OUTER]).parent != getpid())
        nap(0.001);
    for (int i = 0; i < OLD_ORPHAN; i++)
        before[i] = kin_of(shared->pid[i]);
    expect(before[IN_LEADERS_SESSION].parent == child && before[IN_LEADERS_SESSION].session == shared->pid[LEADER], "the scene is not set: %d",
           before[IN_LEADERS_SESSION].parent);
    expect(before[DAEMON_OF_OUTER].parent == getpid() && before[DAEMON_OF_MIDDLE].parent == child, "the scene is not set");
    ready();
    go();
    for (int i = 0; i < OLD_ORPHAN; i++) {
        struct kin after = kin_of(shared->pid[i]);
        if (i != DAEMON_OF_MIDDLE)
            expect(after.parent == before[i].parent && after.group == before[i].group && after.session == before[i].session,
                   "%d: parent %d, not %d; group %d, not %d; session %d, not %d", i, after.parent, before[i].parent, after.group, before[i].group,
                   after.session, before[i].session);
    }
    shared->seen = true;
    child_ends_well(child);
    int flag = 0;
    must(prctl(PR_GET_CHILD_SUBREAPER, &flag));
    expect(flag == 1, "we are no subreaper");
    for (int i = LEADER; i < COUNT; i++)
        kill(shared->pid[i], SIGKILL);
    ok();
}
