/* pause() ends by a signal after the fork, with its handler called once, and not before. */
#include "blocked.h"

static volatile sig_atomic_t count;
static void handler(int number) { count += number == SIGUSR1; }
static void end_it(void) { must(syscall(SYS_tgkill, getpid(), herald_of, SIGUSR1)); }

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    pthread_t id = herald_start(end_it);
    int result = pause();
    expect(result == -1 && errno == EINTR && count == 1, "pause gave %d after %d signals", result, count);
    pthread_join(id, NULL);
    ok();
}
