/* Semaphore sets: values, who changed each last, keys, modes, whether a set was ever operated on. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/sem.h>

static struct semid_ds state_of(int id) {
    struct semid_ds state;
    must(semctl(id, 0, IPC_STAT, &state));
    return state;
}

static void operate(int id, int number, int change) {
    struct sembuf operation = {(unsigned short)number, (short)change, IPC_NOWAIT};
    must(semop(id, &operation, 1));
}

int main(void) {
    int gone = (int)must(semget(IPC_PRIVATE, 1, 0600)), gone_too = (int)must(semget(IPC_PRIVATE, 3, 0600));
    int untouched = (int)must(semget(0x5e01, 4, IPC_CREAT | 0640)), set = (int)must(semget(0x5e02, 300, IPC_CREAT | 0606));
    int only_set = (int)must(semget(IPC_PRIVATE, 2, 0600));
    must(semctl(gone, 0, IPC_RMID));
    must(semctl(gone_too, 0, IPC_RMID));
    for (int i = 0; i < 300; i += 3)
        must(semctl(set, i, SETVAL, i * 100 % 32768));
    must(semctl(set, 299, SETVAL, 32767));
    must(semctl(only_set, 1, SETVAL, 5));
    pid_t dead = fork();
    if (dead == 0) {
        operate(set, 7, 9);
        must(semctl(set, 8, SETVAL, 0));
        _exit(0);
    }
    child_ends_well(dead);
    pid_t child = fork();
    if (child == 0) {
        operate(set, 9, -1);
        operate(set, 10, 1);
        ready();
        go();
        _exit(0);
    }
    go();
    child_ends_well(child);
    expect(semget(0x5e01, 4, 0) == untouched && semget(0x5e02, 300, 0) == set, "ids");
    expect(semctl(gone, 0, GETVAL) == -1 && semctl(gone_too, 0, GETVAL) == -1, "a removed set is back");
    expect(state_of(untouched).sem_perm.mode == 0640 && state_of(untouched).sem_nsems == 4 && state_of(set).sem_nsems == 300, "modes or sizes");
    expect(state_of(set).sem_perm.mode == 0606 && state_of(set).sem_perm.__key == 0x5e02, "mode or key");
    expect(!state_of(untouched).sem_otime && !state_of(only_set).sem_otime, "a set that nobody operated on shows when it was");
    expect(state_of(set).sem_otime, "a set that was operated on does not show it");
    for (int i = 0; i < 4; i++)
        expect(semctl(untouched, i, GETVAL) == 0 && semctl(untouched, i, GETPID) == 0, "untouched %d", i);
    expect(semctl(only_set, 1, GETVAL) == 5 && semctl(only_set, 0, GETPID) == 0 && semctl(only_set, 1, GETPID) == getpid(), "only set");
    for (int i = 0; i < 300; i++) {
        int value = i == 299 ? 32767 : i == 7 ? 9 : i == 10 ? 1 : i % 3 ? 0 : i * 100 % 32768 - (i == 9);
        int pid = i == 7 || i == 8 ? dead : i == 9 || i == 10 ? child : i % 3 && i != 299 ? 0 : getpid();
        expect(semctl(set, i, GETVAL) == value, "semaphore %d is %d, not %d", i, semctl(set, i, GETVAL), value);
        expect(semctl(set, i, GETPID) == pid, "semaphore %d was changed by %d, not %d", i, semctl(set, i, GETPID), pid);
    }
    int fresh = (int)must(semget(IPC_PRIVATE, 1, 0600));
    expect(fresh != gone && fresh != gone_too, "an id is given again");
    int own = (int)(own_number() % 30000);
    must(semctl(set, 0, SETVAL, own));
    nap(0.05);
    expect(semctl(set, 0, GETVAL) == own, "another fork has it too");
    must(semctl(set, 0, IPC_RMID));
    ok();
}
