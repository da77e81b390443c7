/* A wait on a futex with a timeout, and one on a condition variable, end by it, in time. */
#include "blocked.h"
#include <linux/futex.h>

int main(void) {
    static uint32_t word;
    timed_start(1.6);
    struct timespec time = {1, 600000000};
    long result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &time, NULL, 0);
    expect(result == -1 && errno == ETIMEDOUT, "the futex gave %ld", result);
    on_time();
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    clock_gettime(CLOCK_REALTIME, &time);
    pthread_mutex_lock(&mutex);
    expect(pthread_cond_timedwait(&condition, &mutex, &time) == ETIMEDOUT, "the condition");
    ok();
}
