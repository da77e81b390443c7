/* A thread in FUTEX_WAIT is woken by a wake after the fork. */
#include "blocked.h"
#include <linux/futex.h>

static uint32_t word;

static void end_it(void) {
    expect(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0) == 1, "nobody waits");
}

int main(void) {
    pthread_t id = herald_start(end_it);
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    expect(result == 0, "the wait gave %ld", result);
    pthread_join(id, NULL);
    ok();
}
