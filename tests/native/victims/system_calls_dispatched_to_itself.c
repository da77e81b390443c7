/* A thread whose system calls come back to it as signals (syscall user dispatch), as emulators have it; another has none. */
#include "victim.h"
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char selector, always; /* 0: allow, 1: block; the second is the child's */
static volatile sig_atomic_t caught, number;

static void on_call(int signal_number, siginfo_t *info, void *context) {
    selector = always = 0;
    caught += signal_number == SIGSYS && info->si_code == 2 /* SYS_USER_DISPATCH */;
    number = info->si_syscall;
    (void)context;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    must(sigaction(SIGSYS, &action, NULL));
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) != 0) { /* Linux 5.11 */
        ready();
        go();
        ok();
    }
    pid_t child = fork(); /* dispatch is not inherited; this one is frozen while its own is on */
    if (child == 0) {
        must(prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &always));
        int go_file = 0;
        while (!go_file) { /* computes with calls blocked, most of the time */
            always = 1;
            for (volatile int i = 0; i < 3000000; i++)
                ;
            always = 0;
            go_file = access(victim_path("go"), F_OK) == 0;
        }
        caught = 0;
        always = 1;
        syscall(SYS_getpgid, 0);
        always = 0;
        _exit(caught == 1 && number == SYS_getpgid ? 0 : 9);
    }
    ready();
    go();
    selector = 1;
    syscall(SYS_getppid);
    expect(caught == 1 && number == SYS_getppid, "caught %d, number %d", caught, number);
    int status;
    must(waitpid(child, &status, 0));
    must(WIFSIGNALED(status) || WIFEXITED(status) ? 0 : -1);
    expect(status == 0, "the child: %x", status);
    ok();
}
