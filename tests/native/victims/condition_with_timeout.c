/* pthread_cond_timedwait on the real-time clock ends in time. */
#include "blocked.h"

int main(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec time;
    timed_start(1.6);
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 1;
    time.tv_nsec += 600000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&condition, &mutex, &time);
    expect(result == ETIMEDOUT, "the wait gave %d", result);
    on_time();
    ok();
}
