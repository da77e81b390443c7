/* What each thread has of its own: name, niceness, I/O priority, processors, policy, timer slack, parent-death signal, time stamp counter. */
#include "victim.h"
#include <linux/ioprio.h>

struct settings {
    char name[16];
    int nice, io, policy, slack, death, tsc, speculation;
    cpu_set_t processors;
};

static struct settings look(void) {
    struct settings now;
    memset(&now, 0, sizeof now);
    must(prctl(PR_GET_NAME, now.name));
    now.nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    now.io = (int)must(syscall(SYS_ioprio_get, 1, gettid()));
    now.policy = (int)must(syscall(SYS_sched_getscheduler, 0));
    now.slack = prctl(PR_GET_TIMERSLACK);
    must(prctl(PR_GET_PDEATHSIG, &now.death));
    must(prctl(PR_GET_TSC, &now.tsc));
    now.speculation = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
    must(sched_getaffinity(0, sizeof now.processors, &now.processors));
    return now;
}

static atomic_int set;
static volatile int going;

static void *thread(void *argument) {
    long number = (long)argument;
    char name[16];
    cpu_set_t one;
    snprintf(name, sizeof name, "t%ld ) (\n\xff", number);
    must(prctl(PR_SET_NAME, name));
    must(setpriority(PRIO_PROCESS, (id_t)gettid(), 3 + (int)number));
    must(syscall(SYS_ioprio_set, 1, gettid(), IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, number)));
    must(prctl(PR_SET_TIMERSLACK, 70000 + number));
    must(prctl(PR_SET_PDEATHSIG, number ? SIGUSR1 + (int)number : 0));
    struct sched_param none = {0};
    must(syscall(SYS_sched_setscheduler, 0, number == 1 ? SCHED_BATCH | SCHED_RESET_ON_FORK : number == 2 ? SCHED_IDLE : SCHED_OTHER, &none));
    if (number == 3)
        must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    if (number == 2)
        (void)prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_FORCE_DISABLE, 0, 0);
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (number == 1)
        must(sched_setaffinity(0, sizeof one, &one));
    struct settings before = look();
    set++;
    while (!going) {
        struct timespec pause = {0, 5000000};
        syscall(SYS_nanosleep, &pause, NULL); /* no time stamp counter in it */
    }
    struct settings after = look();
    expect(!memcmp(&before, &after, sizeof before),
           "thread %ld: name %s, nice %d (%d), io %d (%d), policy %d (%d), slack %d (%d), death %d (%d), tsc %d (%d), speculation %d (%d)", number,
           after.name, after.nice, before.nice, after.io, before.io, after.policy, before.policy, after.slack, before.slack, after.death,
           before.death, after.tsc, before.tsc, after.speculation, before.speculation);
    return NULL;
}

int main(void) {
    pthread_t id[4];
    for (long i = 0; i < 4; i++)
        must(-pthread_create(&id[i], NULL, thread, (void *)i));
    while (set < 4)
        nap(0.002);
    ready();
    go();
    going = 1;
    for (int i = 0; i < 4; i++)
        must(-pthread_join(id[i], NULL));
    ok();
}
