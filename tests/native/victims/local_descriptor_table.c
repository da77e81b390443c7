/* A segment of one's own (modify_ldt) and one of thread-local storage (set_thread_area), as old emulators use them. */
#include "victim.h"
#include <asm/ldt.h>

int main(void) {
    struct user_desc entry = {.entry_number = 3, .base_addr = 0x10000000, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1, .useable = 1};
    struct user_desc area = {.entry_number = 12, .base_addr = 0x20000000, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1, .useable = 1};
    unsigned char before[8192], after[8192];
    long tls = syscall(SYS_set_thread_area, &area), ldt = syscall(SYS_modify_ldt, 1, &entry, sizeof entry);
    long size = syscall(SYS_modify_ldt, 0, before, sizeof before);
    ready();
    go();
    if (ldt == 0) {
        expect(syscall(SYS_modify_ldt, 0, after, sizeof after) == size && size > 0, "its size is another");
        expect(!memcmp(before, after, (size_t)size), "it holds other entries");
    }
    struct user_desc now = {.entry_number = 12};
    if (tls == 0) {
        must(syscall(SYS_get_thread_area, &now));
        expect(now.base_addr == 0x20000000 && now.limit == 0xfffff, "the area lies at %x", now.base_addr);
    }
    ok();
}
