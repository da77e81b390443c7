/* A memfd that two processes map, one of them for reading only, sealed against growing. */
#include "victim.h"

int main(void) {
    int fd = (int)must(memfd_create("of two", MFD_ALLOW_SEALING | MFD_CLOEXEC)), pipes[2];
    char path[64];
    must(ftruncate(fd, 64 * 4096));
    must(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = (int)must(open(path, O_RDONLY));
    volatile uint64_t *memory = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (uint64_t i = 0; i < 64 * 512; i += 5)
        memory[i] = pattern(i);
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        munmap((void *)memory, 64 * 4096);
        close(fd);
        const volatile uint64_t *seen = mmap(NULL, 32 * 4096, PROT_READ, MAP_SHARED, reader, 16 * 4096);
        expect(seen != MAP_FAILED, "no mapping");
        must(write(pipes[1], "x", 1));
        go();
        for (int i = 0; !seen[1]; i++, nap(0.001))
            expect(i < 20000, "what the parent wrote is not seen");
        uint64_t echo = seen[1];
        expect(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED, "a descriptor for reading only can write");
        must(write(pipes[1], &echo, sizeof echo));
        _exit(0);
    }
    char x;
    must(read(pipes[0], &x, 1));
    memory[16 * 512 + 1] = 0;
    ready();
    go();
    uint64_t own = own_number() | 1, echo;
    for (uint64_t i = 0; i < 64 * 512; i++)
        if (i != 16 * 512 + 1)
            expect(memory[i] == (i % 5 ? 0 : pattern(i)), "word %lu", (unsigned long)i);
    memory[16 * 512 + 1] = own;
    must(read(pipes[0], &echo, sizeof echo));
    expect(echo == own, "the child saw %lx, not %lx", (unsigned long)echo, (unsigned long)own);
    expect(fcntl(fd, F_GET_SEALS) == (F_SEAL_GROW | F_SEAL_SHRINK), "seals %x", fcntl(fd, F_GET_SEALS));
    expect(ftruncate(fd, 4096) == -1 && errno == EPERM, "it can be cut");
    uint64_t word;
    expect(pread(reader, &word, 8, 5 * 8) == 8 && word == pattern(5), "read through the other descriptor");
    char name[64] = "";
    must(readlink(path, name, sizeof name - 1));
    expect(!strncmp(name, "/memfd:of two", 13), "its name is %s", name);
    child_ends_well(child);
    ok();
}
