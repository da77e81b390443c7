/* Eight threads that wait on a condition: all wake, none twice. */
#include "victim.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begin = PTHREAD_COND_INITIALIZER, end = PTHREAD_COND_INITIALIZER;
static int waiting, woken, round_number;

static void *thread(void *argument) {
    pthread_mutex_lock(&mutex);
    for (int round = 1; round <= 3; round++) {
        waiting++;
        pthread_cond_signal(&end);
        while (round_number < round)
            pthread_cond_wait(&begin, &mutex);
        woken++;
        pthread_cond_signal(&end);
        while (woken < 8 * round)
            pthread_cond_wait(&begin, &mutex);
        pthread_cond_broadcast(&begin);
    }
    pthread_mutex_unlock(&mutex);
    return argument;
}

int main(void) {
    pthread_t ids[8];
    for (long i = 0; i < 8; i++)
        must(-pthread_create(&ids[i], NULL, thread, (void *)i));
    pthread_mutex_lock(&mutex);
    while (waiting < 8)
        pthread_cond_wait(&end, &mutex);
    pthread_mutex_unlock(&mutex);
    ready();
    go();
    for (int round = 1; round <= 3; round++) {
        pthread_mutex_lock(&mutex);
        while (waiting < 8 * round)
            pthread_cond_wait(&end, &mutex);
        round_number = round;
        pthread_cond_broadcast(&begin);
        while (woken < 8 * round)
            pthread_cond_wait(&end, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    for (long i = 0; i < 8; i++) {
        void *result;
        expect(pthread_join(ids[i], &result) == 0 && result == (void *)i, "thread %ld gave %p", i, result);
    }
    expect(woken == 24, "%d wakings", woken);
    ok();
}
