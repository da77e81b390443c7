/* What a process maps after mlockall(MCL_FUTURE) is locked and there; what it had before is not, and its children's is not. */
#include "memory.h"

int main(void) {
    char *before = fresh(65536);
    memset(before, 'b', 4096);
    must(mlockall(MCL_FUTURE)); /* nothing is locked yet, and nothing shows it */
    expect(kilobytes_locked() == 0, "%ld kB locked", kilobytes_locked());
    pid_t child = (pid_t)must(fork());
    ready();
    go();
    expect(kilobytes_locked() == 0, "%ld kB locked", kilobytes_locked());
    char *after = fresh(65536);
    if (child == 0) {
        expect(kilobytes_locked() == 0 && !has_flag(after, " lo"), "a child's memory is locked: %ld kB", kilobytes_locked());
        _exit(0);
    }
    expect(kilobytes_locked() == 64, "%ld kB locked", kilobytes_locked());
    expect(has_flag(after, " lo") && !has_flag(after, " lf"), "locked in another way");
    expect(resident(after, 65536) == 16, "%d pages are there", resident(after, 65536));
    expect(!has_flag(before, " lo") && *before == 'b', "what was mapped before is locked");
    must((long)sbrk(65536)); /* the heap, too */
    expect(kilobytes_locked() == 128, "%ld kB locked with the heap", kilobytes_locked());
    must(munlockall());
    expect(!has_flag(fresh(8192), " lo"), "locked after munlockall()");
    child_ends_well(child);
    ok();
}
