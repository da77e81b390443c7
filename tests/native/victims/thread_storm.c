/* A process that starts and joins threads without a pause. */
#include "victim.h"

static atomic_int ended, stop;

static void *brief(void *argument) { return argument; }

static void *storm(void *argument) {
    for (long n = 0; !stop; n++) {
        pthread_t thread;
        void *result;
        expect(pthread_create(&thread, NULL, brief, (void *)n) == 0, "thread %ld does not start", n);
        expect(pthread_join(thread, &result) == 0 && result == (void *)n, "thread %ld gave %p", n, result);
        ended++;
    }
    return argument;
}

int main(void) {
    pthread_t thread;
    must(-pthread_create(&thread, NULL, storm, NULL));
    while (ended < 20)
        nap(0.002);
    ready();
    go();
    int before = ended;
    for (int i = 0; ended < before + 50; i++, nap(0.01))
        expect(i < 2000, "the storm has stopped at %d", before);
    stop = 1;
    pthread_join(thread, NULL);
    ok();
}
