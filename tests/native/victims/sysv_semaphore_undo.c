/* What the end of a process undoes: of every size and sign, of several processes, of threads, where permission is gone. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/sem.h>

#define COUNT 8

static int set, closed;

static void operate(int id, int number, int change, int flags) {
    struct sembuf operation = {(unsigned short)number, (short)change, (short)(IPC_NOWAIT | flags)};
    must(semop(id, &operation, 1));
}

/* What this process owes: semaphore `number` gets `change` with its end; the value is put to `value`. */
static void owe(int id, int number, int change, int value) {
    int part = change > 16000 ? 16000 : change < -16000 ? -16000 : change;
    for (int done = 0; done != change; done += part) {
        if ((part > 0 && done + part > change) || (part < 0 && done + part < change))
            part = change - done;
        int now_at = semctl(id, number, GETVAL), wanted = part > 0 ? part : 0; /* room for the operation itself */
        if (now_at != wanted)
            operate(id, number, wanted - now_at, 0);
        operate(id, number, -part, SEM_UNDO);
    }
    if (value != semctl(id, number, GETVAL))
        operate(id, number, value - semctl(id, number, GETVAL), 0);
}

static void *owing_thread(void *argument) {
    operate(set, 6, 3, 0);
    operate(set, 6, -2, SEM_UNDO);
    return argument;
}

static pid_t debtor(const int changes[COUNT], const int values[COUNT]) {
    int pipes[2];
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < COUNT; i++)
            if (changes[i])
                owe(set, i, changes[i], values[i]);
        if (changes[0]) {
            pthread_t thread;
            must(-pthread_create(&thread, NULL, owing_thread, NULL));
            pthread_join(thread, NULL);
            operate(closed, 0, -1, SEM_UNDO);
        }
        must(write(pipes[1], "x", 1));
        while (getppid() > 1)
            nap(0.01);
        _exit(0);
    }
    char byte;
    must(read(pipes[0], &byte, 1));
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void end(pid_t pid) {
    must(kill(pid, SIGKILL));
    must(waitpid(pid, NULL, 0));
}

static void expect_values(const int expected[COUNT], const char *when) {
    for (int i = 0; i < COUNT; i++)
        expect(semctl(set, i, GETVAL) == expected[i], "%s: semaphore %d is %d, not %d", when, i, semctl(set, i, GETVAL), expected[i]);
}

int main(void) {
    set = (int)must(semget(0x5e03, COUNT, IPC_CREAT | 0600));
    closed = (int)must(semget(IPC_PRIVATE, 2, 0600));
    must(semctl(closed, 0, SETVAL, 1));
    pid_t first = debtor((int[COUNT]){1, -1, 30000, -30000, 32767, 0, 0, 5}, (int[COUNT]){0, 1, 20000, 15000, 0, 0, 0, 7});
    struct semid_ds state;
    must(semctl(closed, 0, IPC_STAT, &state));
    state.sem_perm.mode = 0;
    must(semctl(closed, 0, IPC_SET, &state));
    pid_t second = debtor((int[COUNT]){0, 0, 0, 0, 0, -32768, 0, 2}, (int[COUNT]){0, 0, 0, 0, 0, 32767, 0, 3});
    operate(set, 0, 1, 0); /* the victim is the last here, and owes nothing */
    operate(set, 0, -1, 0);
    ready();
    go();
    expect_values((int[COUNT]){0, 1, 20000, 15000, 0, 32767, 1, 3}, "at first");
    expect(semctl(set, 0, GETPID) == getpid() && semctl(set, 2, GETPID) == first && semctl(set, 7, GETPID) == second, "who was last");
    expect(semctl(closed, 0, IPC_STAT, &(struct semid_ds){0}) == -1 && errno == EACCES, "the closed one is open");
    state.sem_perm.mode = 0600;
    must(semctl(closed, 0, IPC_SET, &state));
    expect(semctl(closed, 0, GETVAL) == 0, "the closed one is %d", semctl(closed, 0, GETVAL));
    end(second);
    expect_values((int[COUNT]){0, 1, 20000, 15000, 0, 0, 1, 5}, "after one has ended");
    must(semctl(set, 2, SETVAL, 10)); /* forgets what is owed here */
    end(first);
    expect_values((int[COUNT]){1, 0, 10, 0, 32767, 0, 3, 10}, "after both have ended");
    expect(semctl(closed, 0, GETVAL) == 1, "the closed one is %d in the end", semctl(closed, 0, GETVAL));
    must(semctl(set, 0, IPC_RMID));
    must(semctl(closed, 0, IPC_RMID));
    ok();
}
