/* Handlers with their flags and masks; what is ignored; what resets itself. */
#include "victim.h"

static volatile sig_atomic_t plain, informed, once, blocked_inside;

static void on_plain(int number) { plain = number; }

static void on_informed(int number, siginfo_t *info, void *context) {
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    blocked_inside = sigismember(&mask, SIGHUP) && sigismember(&mask, SIGWINCH) && !sigismember(&mask, number);
    informed = info->si_pid == getpid() && context;
}

static void on_once(int number) { once += number; }

int main(void) {
    struct sigaction action = {.sa_handler = on_plain, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    action = (struct sigaction){.sa_sigaction = on_informed, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaddset(&action.sa_mask, SIGHUP);
    sigaddset(&action.sa_mask, SIGWINCH);
    must(sigaction(SIGUSR2, &action, NULL));
    action = (struct sigaction){.sa_handler = on_once, .sa_flags = (int)(SA_RESETHAND | SA_NOCLDSTOP)};
    must(sigaction(SIGTERM, &action, NULL));
    action = (struct sigaction){.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT};
    must(sigaction(SIGCHLD, &action, NULL));
    must(sigaction(SIGINT, &action, NULL));
    struct sigaction before[65], after;
    for (int i = 1; i < 65; i++)
        if (i != 32 && i != 33)
            must(sigaction(i, NULL, &before[i]));
    ready();
    go();
    for (int i = 1; i < 65; i++)
        if (i != 32 && i != 33) {
            must(sigaction(i, NULL, &after));
            expect(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags &&
                       !memcmp(&after.sa_mask, &before[i].sa_mask, 8),
                   "signal %d: handler %p flags %x, were %p %x", i, (void *)after.sa_handler, after.sa_flags, (void *)before[i].sa_handler,
                   before[i].sa_flags);
        }
    raise(SIGINT);
    raise(SIGUSR1);
    raise(SIGUSR2);
    raise(SIGTERM);
    expect(plain == SIGUSR1 && informed && blocked_inside && once == SIGTERM, "%d %d %d %d", plain, informed, blocked_inside, once);
    must(sigaction(SIGTERM, NULL, &after));
    expect(after.sa_handler == SIG_DFL, "the handler does not reset itself");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    expect(waitpid(child, NULL, 0) == -1 && errno == ECHILD, "a child whose end is ignored left a zombie");
    ok();
}
