/* Four threads fight for a mutex all the time, and a shared one between processes; nothing is counted twice or lost. */
#include "victim.h"

static struct shared {
    pthread_mutex_t mutex;
    long count, check;
    volatile int stop;
} *shared;

static void *fight(void *argument) {
    long *own = argument;
    while (!shared->stop) {
        pthread_mutex_lock(&shared->mutex);
        shared->count++;
        expect(shared->count == ++shared->check, "two inside at once");
        pthread_mutex_unlock(&shared->mutex);
        ++*own;
    }
    return NULL;
}

int main(void) {
    static long own[3];
    pthread_t ids[3];
    pthread_mutexattr_t attributes;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &attributes);
    int pipes[2];
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        long mine = 0;
        fight(&mine);
        must(write(pipes[1], &mine, sizeof mine));
        _exit(0);
    }
    for (int i = 0; i < 3; i++)
        must(-pthread_create(&ids[i], NULL, fight, &own[i]));
    nap(0.05);
    ready();
    go();
    long before = shared->count;
    for (int i = 0; shared->count < before + 1000; i++, nap(0.005))
        expect(i < 2000, "the fight stands still at %ld", before);
    shared->stop = 1;
    long theirs;
    must(read(pipes[0], &theirs, sizeof theirs));
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    child_ends_well(child);
    expect(own[0] + own[1] + own[2] + theirs == shared->count, "counted %ld times, %ld in all", own[0] + own[1] + own[2] + theirs, shared->count);
    ok();
}
