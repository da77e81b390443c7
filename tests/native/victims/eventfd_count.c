/* Event counters: a plain one, one as a semaphore, one shared with a child that waits for it. */
#include "victim.h"
#include <sys/eventfd.h>

int main(void) {
    int plain = (int)must(eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC)), semaphore = (int)must(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK)), shared = (int)must(eventfd(0, 0));
    uint64_t value = 0xfffffff0;
    must(write(plain, &value, 8));
    pid_t child = fork();
    if (child == 0) {
        uint64_t got;
        while (read(shared, &got, 8) != 8)
            expect(errno == EINTR, "waiting");
        expect(got == 5, "the child got %lu", (unsigned long)got);
        _exit(0);
    }
    until_asleep(child);
    ready();
    go();
    expect(read(plain, &value, 8) == 8 && value == 0xfffffff3, "plain: %lu", (unsigned long)value);
    expect(read(plain, &value, 8) == -1 && errno == EAGAIN, "it blocks, or has more");
    expect(fcntl(plain, F_GETFD) == FD_CLOEXEC, "close-on-exec");
    for (int i = 0; i < 2; i++)
        expect(read(semaphore, &value, 8) == 8 && value == 1, "semaphore: %lu", (unsigned long)value);
    expect(read(semaphore, &value, 8) == -1, "semaphore: once too often");
    value = 5;
    must(write(shared, &value, 8));
    child_ends_well(child);
    ok();
}
