/* A thread that confined itself by a seccomp filter, and left the others as they were. Kept, or refused by name. */
#include "victim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

static atomic_int confined, over;

static void *thread(void *argument) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 99),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    confined = 1;
    while (!over)
        nap(0.005);
    expect(syscall(SYS_getpgrp) == -1 && errno == 99, "the filter is gone");
    return argument;
}

int main(void) {
    pthread_t id;
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!confined)
        nap(0.001);
    ready();
    go();
    expect(syscall(SYS_getpgrp) == getpgrp() || getpgrp() > 0, "the others are confined too");
    over = 1;
    must(-pthread_join(id, NULL));
    ok();
}
