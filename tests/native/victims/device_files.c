/* The devices that every program may use. */
#include "victim.h"

int main(void) {
    int null = (int)must(open("/dev/null", O_RDWR)), zero = (int)must(open("/dev/zero", O_RDWR));
    int random = (int)must(open("/dev/urandom", O_RDONLY)), full = (int)must(open("/dev/full", O_RDWR));
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    mapped[1] = 'z';
    ready();
    go();
    char text[16];
    expect(read(null, text, 16) == 0 && write(null, text, 16) == 16, "/dev/null");
    memset(text, 1, 16);
    expect(read(zero, text, 16) == 16 && text[0] == 0 && text[15] == 0, "/dev/zero");
    uint64_t numbers[2] = {0, 0};
    expect(read(random, numbers, 16) == 16 && numbers[0] != numbers[1], "/dev/urandom");
    expect(write(full, text, 1) == -1 && errno == ENOSPC, "/dev/full");
    expect(mapped[1] == 'z' && mapped[2] == 0 && mapped[5000] == 0, "memory of /dev/zero");
    ok();
}
