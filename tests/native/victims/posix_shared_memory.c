/* Shared memory by name: open in two processes, lying there for nobody, and deleted but mapped. */
#include "victim.h"

static volatile uint64_t *map(const char *name, int flags, bool forget) {
    int fd = (int)must(shm_open(name, flags, 0600));
    if (flags & O_CREAT)
        must(ftruncate(fd, 8 * 4096));
    volatile uint64_t *memory = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (forget)
        must(shm_unlink(name));
    return memory;
}

int main(void) {
    volatile uint64_t *named = map("/victim-named", O_RDWR | O_CREAT, false), *nameless = map("/victim-nameless", O_RDWR | O_CREAT, true);
    volatile uint64_t *left = map("/victim-left", O_RDWR | O_CREAT, false);
    left[1000] = 7;
    munmap((void *)left, 8 * 4096);
    named[3] = nameless[3] = 5;
    named[4] = nameless[4] = 0;
    pid_t child = fork();
    if (child == 0) {
        munmap((void *)named, 8 * 4096);
        named = map("/victim-named", O_RDWR, false);
        named[0] = 1;
        for (int i = 0; !named[4] || !nameless[4]; i++, nap(0.002))
            expect(went() ? i < 10000 : true, "the parent's words are not seen");
        nameless[5] = named[4] + nameless[4];
        _exit(0);
    }
    while (!named[0])
        nap(0.002);
    ready();
    go();
    expect(named[3] == 5 && nameless[3] == 5, "content");
    uint64_t own = own_number() | 1;
    nameless[4] = own;
    named[4] = own;
    child_ends_well(child);
    expect(nameless[5] == own + own, "the child saw something else");
    left = map("/victim-left", O_RDWR, true);
    expect(left[1000] == 7, "what lay there is lost");
    expect(map("/victim-named", O_RDWR, true)[4] == own, "by its name it is another");
    expect(shm_open("/victim-nameless", O_RDWR, 0) == -1 && errno == ENOENT, "the deleted one is back");
    ok();
}
