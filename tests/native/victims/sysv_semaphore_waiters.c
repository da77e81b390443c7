/* Processes that wait for semaphores: to be raised, to be zero, for both with a time limit far away; each wakes as it should. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/sem.h>

static int set;

static pid_t waiter(int number, int change, double seconds, int flags) {
    pid_t child = fork();
    if (child == 0) {
        struct sembuf operations[2] = {{(unsigned short)number, (short)change, (short)flags}, {7, 1, 0}};
        struct timespec limit = {(time_t)seconds, 0};
        int result = seconds > 0 ? semtimedop(set, operations, 2, &limit) : semop(set, operations, 2);
        expect(result == 0, "waiter %d", number);
        _exit(0);
    }
    until_asleep(child);
    return child;
}

static void change(int number, int by) {
    struct sembuf operation = {(unsigned short)number, (short)by, IPC_NOWAIT};
    must(semop(set, &operation, 1));
}

int main(void) {
    set = (int)must(semget(IPC_PRIVATE, 8, 0600));
    must(semctl(set, 1, SETVAL, 3));
    must(semctl(set, 3, SETVAL, 1));
    pid_t children[5] = {waiter(0, -1, 0, 0), waiter(1, 0, 0, 0), waiter(2, -2, 500, 0), waiter(3, 0, 500, 0), waiter(4, -1, 0, SEM_UNDO)};
    ready();
    go();
    for (int tries = 0; semctl(set, 0, GETNCNT) + semctl(set, 1, GETZCNT) + semctl(set, 2, GETNCNT) + semctl(set, 3, GETZCNT) < 4; tries++, nap(0.01))
        expect(tries < 500, "not all wait");
    for (int i = 0; i < 5; i++)
        expect(waitpid(children[i], NULL, WNOHANG) == 0, "waiter %d is back already", i);
    change(0, 1);
    child_ends_well(children[0]);
    change(1, -3);
    child_ends_well(children[1]);
    change(2, 1);
    nap(0.05);
    expect(waitpid(children[2], NULL, WNOHANG) == 0, "half was enough");
    change(2, 1);
    child_ends_well(children[2]);
    change(3, -1);
    child_ends_well(children[3]);
    change(4, 1);
    child_ends_well(children[4]);
    expect(semctl(set, 4, GETVAL) == 1 && semctl(set, 7, GETVAL) == 5 && semctl(set, 2, GETVAL) == 0, "values");
    must(semctl(set, 0, IPC_RMID));
    ok();
}
