/* Semaphores by name: open in two processes and to be opened anew, lying there for nobody, unlinked but in use. */
#include "victim.h"
#include <semaphore.h>

static sem_t *named(const char *name, int flags, unsigned value) {
    sem_t *semaphore = sem_open(name, flags, 0600, value);
    expect(semaphore != SEM_FAILED, "sem_open %s", name);
    return semaphore;
}

static int value_of(sem_t *semaphore) {
    int value;
    must(sem_getvalue(semaphore, &value));
    return value;
}

int main(void) {
    sem_t *used = named("/victim-used", O_CREAT | O_EXCL, 0), *gone = named("/victim-gone", O_CREAT | O_EXCL, 0);
    must(sem_close(named("/victim-left", O_CREAT | O_EXCL, 7)));
    must(sem_unlink("/victim-gone"));
    pid_t child = fork();
    if (child == 0) {
        must(sem_wait(used)); /* sleeps through the forks */
        must(sem_post(gone));
        sem_t *again = named("/victim-used", 0, 0);
        must(sem_post(again));
        _exit(0);
    }
    until_asleep(child);
    ready();
    go();
    sem_t *other = named("/victim-used", 0, 0), *left = named("/victim-left", 0, 0);
    expect(value_of(left) == 7 && value_of(other) == 0, "values");
    expect(sem_open("/victim-gone", 0) == SEM_FAILED && errno == ENOENT, "the unlinked one is back");
    must(sem_post(other));
    child_ends_well(child);
    must(sem_wait(gone));
    must(sem_wait(used));
    must(sem_post(left));
    expect(value_of(named("/victim-left", 0, 0)) == 8, "by its name it is another");
    must(sem_unlink("/victim-used"));
    must(sem_unlink("/victim-left"));
    expect(sem_open("/victim-left", 0) == SEM_FAILED, "unlinked, it is still there");
    ok();
}
