/* A semaphore waited for with a time limit: the wait ends when it was to end. */
#include "blocked.h"
#include <sys/ipc.h>
#include <sys/sem.h>

int main(void) {
    int set = (int)must(semget(IPC_PRIVATE, 1, 0600));
    struct sembuf operation = {0, -1, 0};
    struct timespec limit = {2, 0};
    timed_start(2);
    expect(semtimedop(set, &operation, 1, &limit) == -1 && errno == EAGAIN, "semtimedop");
    expect(limit.tv_sec == 2 && limit.tv_nsec == 0, "its time limit was changed");
    on_time();
    must(semctl(set, 0, IPC_RMID));
    ok();
}
