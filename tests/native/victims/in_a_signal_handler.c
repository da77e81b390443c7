/* Frozen inside a handler, on its alternate stack, with a signal mask of that moment: it returns to where it came from. */
#include "victim.h"

static volatile sig_atomic_t inside, left;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    volatile char room[20000];
    memset((void *)room, 0x5a, sizeof room);
    inside = number;
    go();
    for (size_t i = 0; i < sizeof room; i++)
        expect(room[i] == 0x5a, "byte %zu of the handler's frame", i);
    stack_t stack;
    sigset_t mask;
    must(sigaltstack(NULL, &stack));
    expect(stack.ss_flags & SS_ONSTACK, "not on the alternate stack: %x", stack.ss_flags);
    must(sigprocmask(SIG_BLOCK, NULL, &mask));
    expect(sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGHUP), "the handler's mask is lost");
    expect(info->si_value.sival_int == 77, "value %d", info->si_value.sival_int);
    left = 1;
}

static void *herald(void *argument) {
    while (!inside)
        nap(0.002);
    nap(0.05);
    ready();
    return argument;
}

int main(void) {
    static char stack[1 << 17];
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGHUP);
    must(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL));
    must(sigaction(SIGUSR1, &action, NULL));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_t id;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    must(-pthread_create(&id, NULL, herald, NULL));
    must(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 77}));
    volatile double number = 1.25;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* the handler runs here */
    expect(left && number == 1.25, "back without having been there");
    must(sigprocmask(SIG_BLOCK, NULL, &set));
    expect(!sigismember(&set, SIGUSR1) && !sigismember(&set, SIGHUP), "the mask of before is lost");
    stack_t have;
    must(sigaltstack(NULL, &have));
    expect(have.ss_flags == 0 && have.ss_sp == stack, "the stack's flags are %x", have.ss_flags);
    ok();
}
