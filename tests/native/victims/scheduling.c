/* Nice values, scheduling class, processor affinity, io priority and timer slack, a thread apart from its process. */
#include "victim.h"

static atomic_int set, done;

static void *thread(void *argument) {
    struct sched_param zero = {0};
    pid_t self = gettid();
    must(setpriority(PRIO_PROCESS, (id_t)self, 11));
    must(sched_setscheduler(self, SCHED_IDLE, &zero));
    must(syscall(SYS_ioprio_set, 1, self, 3 << 13));
    must(prctl(PR_SET_TIMERSLACK, 123456));
    set = 1;
    go();
    expect(getpriority(PRIO_PROCESS, (id_t)self) == 11, "thread: nice %d", getpriority(PRIO_PROCESS, (id_t)self));
    expect(sched_getscheduler(self) == SCHED_IDLE, "thread: class %d", sched_getscheduler(self));
    expect(syscall(SYS_ioprio_get, 1, self) == 3 << 13, "thread: io priority %lx", syscall(SYS_ioprio_get, 1, self));
    expect(prctl(PR_GET_TIMERSLACK) == 123456, "thread: slack %d", prctl(PR_GET_TIMERSLACK));
    done = 1;
    return argument;
}

int main(void) {
    struct sched_param zero = {0};
    cpu_set_t one, all;
    pthread_t id;
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!set)
        nap(0.002);
    must(sched_getaffinity(0, sizeof all, &all));
    int last = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            last = i;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    must(sched_setaffinity(0, sizeof one, &one));
    must(sched_setscheduler(0, SCHED_BATCH, &zero));
    must(setpriority(PRIO_PROCESS, 0, 5));
    must(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6));
    ready();
    go();
    cpu_set_t have;
    must(sched_getaffinity(0, sizeof have, &have));
    expect(CPU_EQUAL(&have, &one), "bound to %d processors", CPU_COUNT(&have));
    expect(sched_getscheduler(0) == SCHED_BATCH, "class %d", sched_getscheduler(0));
    expect(getpriority(PRIO_PROCESS, 0) == 5, "nice %d", getpriority(PRIO_PROCESS, 0));
    expect(syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 6), "io priority %lx", syscall(SYS_ioprio_get, 1, 0));
    pthread_join(id, NULL);
    expect(done, "the thread is gone");
    ok();
}
