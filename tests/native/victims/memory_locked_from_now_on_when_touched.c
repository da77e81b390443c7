/* mlockall(MCL_FUTURE | MCL_ONFAULT): what is mapped later is locked page by page, as it is touched. */
#include "memory.h"

int main(void) {
    must(mlockall(MCL_FUTURE | MCL_ONFAULT));
    char *before = fresh(65536);
    before[4096] = 'b';
    ready();
    go();
    expect(kilobytes_locked() == 64 && has_flag(before, " lf") && before[4096] == 'b', "%ld kB locked", kilobytes_locked());
    char *after = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* does not become one with the other */
    expect(after != MAP_FAILED, "mmap");
    expect(kilobytes_locked() == 128, "%ld kB locked", kilobytes_locked());
    expect(has_flag(after, " lo") && has_flag(after, " lf"), "locked in another way");
    expect(resident(after, 65536) == 0, "%d pages are there", resident(after, 65536));
    ok();
}
