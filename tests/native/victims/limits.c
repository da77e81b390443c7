/* Resource limits, and that they bite. */
#include "victim.h"

int main(void) {
    static const struct {
        int which;
        struct rlimit limit;
    } set[] = {
        {RLIMIT_NOFILE, {50, 60}},         {RLIMIT_CORE, {0, 0}},           {RLIMIT_CPU, {1000, 2000}},
        {RLIMIT_STACK, {1 << 20, 4 << 20}}, {RLIMIT_FSIZE, {1 << 30, 1 << 30}}, {RLIMIT_MEMLOCK, {65536, 65536}},
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        must(setrlimit((__rlimit_resource_t)set[i].which, &set[i].limit));
    ready();
    go();
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        struct rlimit have;
        must(getrlimit((__rlimit_resource_t)set[i].which, &have));
        expect(have.rlim_cur == set[i].limit.rlim_cur && have.rlim_max == set[i].limit.rlim_max, "limit %d is %lu, %lu", set[i].which,
               (unsigned long)have.rlim_cur, (unsigned long)have.rlim_max);
    }
    int fd, reserve = (int)must(open("/dev/null", O_RDONLY));
    while ((fd = open("/dev/null", O_RDONLY)) >= 0)
        expect(fd < 50, "descriptor %d is over the limit", fd);
    int number = errno;
    close(reserve); /* for saying so */
    expect(number == EMFILE, "not the limit but errno %d", number);
    ok();
}
