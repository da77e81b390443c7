/* Three hundred descriptors of many kinds, some at high numbers. */
#include "victim.h"
#include <sys/eventfd.h>

int main(void) {
    struct rlimit limit = {1000, 1000};
    must(setrlimit(RLIMIT_NOFILE, &limit));
    static int fds[300];
    for (int i = 0; i < 300; i += 3) {
        char name[32];
        snprintf(name, sizeof name, "file%d", i);
        fds[i] = (int)must(open(victim_path(name), O_RDWR | O_CREAT, 0644));
        must(write(fds[i], &i, sizeof i));
        fds[i + 1] = (int)must(eventfd((unsigned)i + 1, EFD_NONBLOCK));
        fds[i + 2] = (int)must(dup2(fds[i], 999 - i));
    }
    ready();
    go();
    for (int i = 0; i < 300; i += 3) {
        int number = -1;
        uint64_t value = 0;
        must(pread(fds[i + 2], &number, sizeof number, 0));
        expect(number == i && lseek(fds[i], 0, SEEK_CUR) == sizeof i, "file %d holds %d", i, number);
        expect(read(fds[i + 1], &value, 8) == 8 && value == (uint64_t)i + 1, "event %d: %lu", i, (unsigned long)value);
    }
    ok();
}
