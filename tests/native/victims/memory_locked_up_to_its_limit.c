/* Whatever the process maps would be locked, and it may lock no more: not even we can ask it anything. */
#include "memory.h"

int main(void) {
    must(mlockall(MCL_FUTURE));
    char *memory = fresh(65536);
    struct rlimit limit = {65536, 65536};
    must(setrlimit(RLIMIT_MEMLOCK, &limit));
    ready();
    go();
    expect(kilobytes_locked() == 64 && has_flag(memory, " lo"), "%ld kB locked", kilobytes_locked());
    must(munmap(memory, 65536));
    memory = fresh(65536);
    expect(has_flag(memory, " lo"), "not locked any more");
    ok();
}
