/* A thousand threads: all are there, each with its stack and its number, and all can be told to end. */
#include "victim.h"

enum { COUNT = 1000 };
static atomic_int began, ended, over;

static void *thread(void *argument) {
    uint64_t own[64];
    for (int i = 0; i < 64; i++)
        own[i] = pattern((uint64_t)(intptr_t)argument * 64 + (uint64_t)i);
    pid_t tid = gettid();
    began++;
    while (!over)
        syscall(SYS_futex, &over, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
    for (int i = 0; i < 64; i++)
        expect(own[i] == pattern((uint64_t)(intptr_t)argument * 64 + (uint64_t)i), "the stack of %ld differs", (long)(intptr_t)argument);
    expect(gettid() == tid && syscall(SYS_gettid) == tid, "thread %d is %ld", tid, syscall(SYS_gettid));
    ended++;
    return argument;
}

int main(void) {
    static pthread_t id[COUNT];
    struct rlimit limit;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    int made = 0;
    must(getrlimit(RLIMIT_NPROC, &limit));
    while (made < COUNT && pthread_create(&id[made], &attributes, thread, (void *)(intptr_t)made) == 0)
        made++;
    expect(made >= 100, "only %d threads can be made here", made);
    while (began < made)
        nap(0.005);
    ready();
    go();
    over = 1;
    syscall(SYS_futex, &over, 1 /* FUTEX_WAKE */, 0x7fffffff, NULL, NULL, 0);
    for (int i = 0; i < made; i++)
        must(-pthread_join(id[i], NULL));
    expect(ended == made, "%d of %d ended", ended, made);
    ok();
}
