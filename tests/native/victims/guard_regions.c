/* Guard regions (MADV_GUARD_INSTALL): touching faults, what lies around stays, and they can be taken away. */
#include "victim.h"
#include <setjmp.h>

#define PAGE 4096ul
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static sigjmp_buf back;
static void on_fault(int number) { siglongjmp(back, number); }

static bool faults(volatile char *at) {
    if (sigsetjmp(back, 1))
        return true;
    (void)*at;
    return false;
}

int main(void) {
    signal(SIGSEGV, on_fault);
    char *memory = mmap(NULL, 300 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *untouched = mmap(NULL, 20 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 'm', 300 * PAGE);
    if (madvise(memory, PAGE, GUARD_INSTALL) != 0) {
        ready();
        go();
        ok(); /* a kernel without them */
    }
    must(madvise(memory + 100 * PAGE, 2 * PAGE, GUARD_INSTALL));
    for (int i = 200; i < 220; i += 2)
        must(madvise(memory + i * PAGE, PAGE, GUARD_INSTALL));
    must(madvise(untouched + 5 * PAGE, 3 * PAGE, GUARD_INSTALL));
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0600));
    must(ftruncate(fd, 8 * PAGE));
    must(pwrite(fd, "f", 1, 3 * PAGE));
    char *file = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    file[2 * PAGE] = 'p';
    bool in_files = madvise(file + PAGE, PAGE, GUARD_INSTALL) == 0;
    ready();
    go();
    for (unsigned long i = 0; i < 300; i++) {
        bool guarded = i == 0 || i == 100 || i == 101 || (i >= 200 && i < 220 && i % 2 == 0);
        expect(faults(memory + i * PAGE) == guarded, "page %lu", i);
        for (int at = 0; !guarded && at < 4096; at += 100)
            expect(memory[i * PAGE + (unsigned long)at] == 'm', "content of page %lu", i);
    }
    for (unsigned long i = 0; i < 20; i++)
        expect(faults(untouched + i * PAGE) == (i >= 5 && i < 8), "untouched page %lu", i);
    expect(file[2 * PAGE] == 'p' && file[3 * PAGE] == 'f' && (!in_files || faults(file + PAGE)), "in a file");
    must(madvise(memory + 100 * PAGE, PAGE, GUARD_REMOVE));
    expect(memory[100 * PAGE] == 0 && faults(memory + 101 * PAGE), "taken away");
    memory[100 * PAGE] = 'n';
    ok();
}
