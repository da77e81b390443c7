/* Two threads with alternate signal stacks of their own. */
#include "victim.h"

static atomic_int set, done;
static _Thread_local volatile uintptr_t seen;

static void handler(int number) {
    (void)number;
    int here;
    seen = (uintptr_t)&here;
}

static void on_own_stack(void) {
    stack_t stack = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536}, have;
    must(sigaltstack(&stack, NULL));
    set++;
    go();
    must(sigaltstack(NULL, &have));
    expect(have.ss_sp == stack.ss_sp && have.ss_size == stack.ss_size && have.ss_flags == 0, "stack %p, %zu, flags %x", have.ss_sp, have.ss_size, have.ss_flags);
    must(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    expect(seen > (uintptr_t)stack.ss_sp && seen < (uintptr_t)stack.ss_sp + stack.ss_size, "the handler ran at %lx, not on its stack", (unsigned long)seen);
    done++;
}

static void *thread(void *argument) {
    on_own_stack();
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    pthread_t ids[2];
    must(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 2; i++)
        must(-pthread_create(&ids[i], NULL, thread, NULL));
    while (set < 2)
        nap(0.002);
    ready();
    go();
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    stack_t have;
    must(sigaltstack(NULL, &have));
    expect(done == 2 && have.ss_flags == SS_DISABLE, "%d done; the main thread has a stack %x", done, have.ss_flags);
    ok();
}
