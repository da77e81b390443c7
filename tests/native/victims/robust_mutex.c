/* A robust mutex whose owner dies after the fork is found inconsistent, between threads and between processes. */
#include "victim.h"

static pthread_mutex_t *mutex;
static atomic_int held;

static void *dies(void *argument) {
    pthread_mutex_lock(&mutex[0]);
    held = 1;
    go();
    return argument; /* without unlocking */
}

int main(void) {
    pthread_mutexattr_t attributes;
    mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < 2; i++)
        pthread_mutex_init(&mutex[i], &attributes);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(&mutex[1]);
        for (;;)
            pause();
    }
    pthread_t id;
    must(-pthread_create(&id, NULL, dies, NULL));
    while (!held || pthread_mutex_trylock(&mutex[1]) == 0) {
        if (held)
            pthread_mutex_unlock(&mutex[1]);
        nap(0.002);
    }
    ready();
    go();
    int result = pthread_mutex_lock(&mutex[0]);
    expect(result == EOWNERDEAD, "after the thread's end: %d", result);
    expect(pthread_mutex_consistent(&mutex[0]) == 0 && pthread_mutex_unlock(&mutex[0]) == 0, "not to be mended");
    must(kill(child, SIGKILL));
    result = pthread_mutex_lock(&mutex[1]);
    expect(result == EOWNERDEAD, "after the process's end: %d", result);
    expect(pthread_mutex_consistent(&mutex[1]) == 0 && pthread_mutex_unlock(&mutex[1]) == 0, "not to be mended");
    must(waitpid(child, NULL, 0));
    ok();
}
