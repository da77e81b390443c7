/* A read that waits: a signal after the fork interrupts it if, and only if, the handler says so. */
#include "blocked.h"

static int pipes[2];
static volatile sig_atomic_t restarted, interrupted;
static void on_restart(int number) { restarted = number; }
static void on_interrupt(int number) { interrupted = number; }

static void end_it(void) {
    must(syscall(SYS_tgkill, getpid(), herald_of, SIGUSR1));
    while (!restarted)
        nap(0.002);
    until_asleep(herald_of);
    must(syscall(SYS_tgkill, getpid(), herald_of, SIGUSR2));
}

int main(void) {
    char text[16];
    struct sigaction action = {.sa_handler = on_restart, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    action = (struct sigaction){.sa_handler = on_interrupt};
    must(sigaction(SIGUSR2, &action, NULL));
    must(pipe(pipes));
    pthread_t id = herald_start(end_it);
    ssize_t got = read(pipes[0], text, 15);
    expect(got == -1 && errno == EINTR && restarted && interrupted, "read gave %zd", got);
    pthread_join(id, NULL);
    ok();
}
