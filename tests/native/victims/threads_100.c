/* A hundred threads, each with its number, its stack and its errno, asleep on semaphores or running. */
#include "victim.h"
#include <semaphore.h>

static sem_t gate[100];
static atomic_int waiting, turns, stop;
static atomic_long spun;

static void *thread(void *argument) {
    long self = (long)argument;
    volatile long room[500];
    pid_t id = gettid();
    for (int i = 0; i < 500; i++)
        room[i] = self * 1000 + i;
    errno = (int)self;
    waiting++;
    if (self % 25 == 0)
        while (!stop) {
            spun++;
            sched_yield();
        }
    while (sem_wait(&gate[self]) != 0)
        errno = (int)self;
    expect(errno == (int)self, "thread %ld: errno %d", self, errno);
    expect(gettid() == id, "thread %ld: id %d, was %d", self, gettid(), id);
    for (int i = 0; i < 500; i++)
        expect(room[i] == self * 1000 + i, "thread %ld: its stack holds %ld at %d", self, room[i], i);
    turns++;
    return (void *)(self + 1);
}

int main(void) {
    pthread_t ids[100];
    for (long i = 0; i < 100; i++) {
        sem_init(&gate[i], 0, 0);
        must(-pthread_create(&ids[i], NULL, thread, (void *)i));
    }
    while (waiting < 100)
        nap(0.002);
    ready();
    go();
    long before = spun;
    for (int i = 0; spun < before + 100; i++, nap(0.01))
        expect(i < 1000, "the running threads stand");
    stop = 1;
    for (long i = 99; i >= 0; i--) {
        void *result;
        sem_post(&gate[i]);
        expect(pthread_join(ids[i], &result) == 0 && result == (void *)(i + 1), "thread %ld gave %p", i, result);
    }
    expect(turns == 100, "%d turns", turns);
    ok();
}
