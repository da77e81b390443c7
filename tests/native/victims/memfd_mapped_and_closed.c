/* Memfds that are mapped and closed: shared by two processes, for reading alone, private with pages of one's own. */
#include "victim.h"

static volatile char *map(const char *name, int protection, int flags, char first) {
    int fd = (int)must(memfd_create(name, 0));
    must(ftruncate(fd, 8 * 4096));
    must(pwrite(fd, &first, 1, 0));
    must(pwrite(fd, &first, 1, 5 * 4096));
    volatile char *memory = mmap(NULL, 6 * 4096, protection, flags, fd, 0);
    close(fd);
    return memory;
}

int main(void) {
    volatile char *both = map("both", PROT_READ | PROT_WRITE, MAP_SHARED, 'b'), *reader = map("reader", PROT_READ, MAP_SHARED, 'r');
    volatile char *own = map("own", PROT_READ | PROT_WRITE, MAP_PRIVATE, 'o');
    own[4096] = 'm';
    pid_t child = fork();
    if (child == 0) {
        go();
        for (int i = 0; both[1] != 'x'; i++, nap(0.002))
            expect(i < 5000, "what the parent wrote is not seen");
        own[4096] = 'c';
        both[2] = 'y';
        expect(own[0] == 'o' && own[5 * 4096] == 'o', "the child's private memory");
        _exit(0);
    }
    ready();
    go();
    expect(both[0] == 'b' && both[5 * 4096] == 'b' && reader[0] == 'r' && reader[5 * 4096] == 'r', "content");
    expect(own[0] == 'o' && own[4096] == 'm' && own[5 * 4096] == 'o' && own[2 * 4096] == 0, "private content");
    both[1] = 'x';
    child_ends_well(child);
    expect(both[2] == 'y' && own[4096] == 'm', "after the child");
    both = mremap((void *)both, 6 * 4096, 8 * 4096, MREMAP_MAYMOVE);
    expect(both != MAP_FAILED && both[7 * 4096] == 0 && both[1] == 'x', "mapped longer");
    ok();
}
