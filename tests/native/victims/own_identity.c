/* What a program can read of itself: executable, arguments, environment, auxiliary vector. */
#include "victim.h"
#include <sys/auxv.h>

static void read_all(const char *path, char *into, size_t *length) {
    int fd = (int)must(open(path, O_RDONLY));
    *length = 0;
    for (ssize_t got; (got = must(read(fd, into + *length, 8192 - *length))) > 0;)
        *length += (size_t)got;
    close(fd);
}

int main(int argc, char **argv) {
    static char before[4][8192], after[8192];
    static const char *const paths[] = {"/proc/self/cmdline", "/proc/self/environ", "/proc/self/auxv"};
    size_t length[4], now_length;
    char link[4096] = "", again[4096] = "";
    if (argc == 1) {
        char *const arguments[] = {argv[0], "an argument", "", "3", NULL};
        must(setenv("OF_ITS_OWN", "a value", 1));
        must(execv(argv[0], arguments));
    }
    must(readlink("/proc/self/exe", link, sizeof link - 1));
    for (int i = 0; i < 3; i++)
        read_all(paths[i], before[i], &length[i]);
    unsigned long random = getauxval(AT_RANDOM), header = getauxval(AT_SYSINFO_EHDR);
    uint64_t seed;
    memcpy(&seed, (void *)random, 8);
    ready();
    go();
    must(readlink("/proc/self/exe", again, sizeof again - 1));
    expect(!strcmp(link, again), "the executable is %s, was %s", again, link);
    for (int i = 0; i < 3; i++) {
        read_all(paths[i], after, &now_length);
        expect(now_length == length[i] && !memcmp(before[i], after, now_length), "%s has changed", paths[i]);
    }
    expect(getauxval(AT_RANDOM) == random && getauxval(AT_SYSINFO_EHDR) == header, "auxv has moved");
    expect(!memcmp((void *)random, &seed, 8) && !memcmp((void *)header, "\177ELF", 4), "what auxv points to has gone");
    int fd = (int)must(open("/proc/self/exe", O_RDONLY));
    char magic[4];
    expect(read(fd, magic, 4) == 4 && !memcmp(magic, "\177ELF", 4), "the executable cannot be read");
    struct timespec time;
    expect(clock_gettime(CLOCK_REALTIME, &time) == 0 && time.tv_sec > 1600000000, "the clock says %ld", (long)time.tv_sec);
    ok();
}
