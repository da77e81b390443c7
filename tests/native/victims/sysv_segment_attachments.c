/* One segment attached in many ways: twice, for reading only, cut, moved, in parts of several protections, past its end. */
#include "victim.h"
#include <setjmp.h>
#include <sys/shm.h>

#define PAGE 4096ul
#define PAGES 16ul

static sigjmp_buf back;
static void on_fault(int number) { siglongjmp(back, number); }

/* The signal that touching a byte raises, or 0. */
static int fault(volatile char *at, bool writes) {
    int number = sigsetjmp(back, 1);
    if (number)
        return number;
    if (writes)
        *at = *at;
    else
        (void)*at;
    return 0;
}

static char *attach(int id, int flags) {
    char *at = shmat(id, NULL, flags);
    expect(at != (void *)-1, "shmat");
    return at;
}

int main(void) {
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    int id = (int)must(shmget(IPC_PRIVATE, PAGES * PAGE - 100, IPC_CREAT | 0640));
    char *whole = attach(id, 0), *reader = attach(id, SHM_RDONLY), *cut = attach(id, 0), *moved = attach(id, 0), *parts = attach(id, 0);
    char *gone = attach(id, 0), *longer = attach(id, 0);
    for (unsigned long page = 0; page < PAGES; page++)
        whole[page * PAGE] = (char)('a' + page);
    must(munmap(cut, 3 * PAGE));
    must(munmap(cut + 10 * PAGE, 6 * PAGE));
    must(munmap(cut + 5 * PAGE, PAGE)); /* a hole in it, where something else comes to lie */
    char *other = mmap(cut + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *other = 'o';
    char *place = mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *half = mremap(moved + 4 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 20 * PAGE);
    expect(half == place + 20 * PAGE, "mremap");
    must(mprotect(parts + 2 * PAGE, PAGE, PROT_NONE));
    must(mprotect(parts + 4 * PAGE, 2 * PAGE, PROT_READ));
    must(shmdt(gone));
    longer = mremap(longer, PAGES * PAGE, (PAGES + 2) * PAGE, MREMAP_MAYMOVE);
    expect(longer != MAP_FAILED, "it cannot be made longer");
    struct shmid_ds before, state;
    must(shmctl(id, IPC_STAT, &before));
    ready();
    go();
    must(shmctl(id, IPC_STAT, &state));
    expect(state.shm_nattch == before.shm_nattch, "attached %lu times, %lu before", (unsigned long)state.shm_nattch, (unsigned long)before.shm_nattch);
    expect(state.shm_segsz == PAGES * PAGE - 100 && state.shm_perm.mode == 0640, "size or mode");
    expect(state.shm_lpid == getpid() && state.shm_cpid == getpid(), "pids %d %d", state.shm_cpid, state.shm_lpid);
    char own = (char)(own_number() | 1);
    for (unsigned long page = 0; page < PAGES; page++) {
        whole[page * PAGE + 1] = own;
        expect(reader[page * PAGE] == (char)('a' + page) && reader[page * PAGE + 1] == own, "read-only page %lu", page);
    }
    expect(fault(reader, true) == SIGSEGV, "it can be written");
    expect(mprotect(reader, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES, "it can be made writable");
    for (unsigned long page = 3; page < 10; page++)
        expect(page == 5 ? cut[5 * PAGE] == 'o' : cut[page * PAGE + 1] == own, "cut page %lu", page);
    expect(fault(cut + 2 * PAGE, false) == SIGSEGV && fault(cut + 10 * PAGE, false) == SIGSEGV, "what was cut off is back");
    for (unsigned long page = 0; page < 4; page++)
        expect(half[page * PAGE] == (char)('a' + 4 + page) && half[page * PAGE + 1] == own, "moved page %lu", page);
    expect(moved[3 * PAGE + 1] == own && moved[8 * PAGE + 1] == own, "what stayed of the moved one");
    expect(fault(parts + 2 * PAGE, false) == SIGSEGV && fault(parts + 4 * PAGE, true) == SIGSEGV && fault(parts + 6 * PAGE, true) == 0, "protections");
    must(mprotect(parts + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE));
    expect(parts[4 * PAGE + 1] == own, "a part of several");
    expect(longer[15 * PAGE + 1] == own && fault(longer + PAGES * PAGE, false) == SIGBUS, "past the end");
    /* An attachment in parts is taken away as one. */
    must(shmdt(parts));
    expect(fault(parts, false) == SIGSEGV && fault(parts + 2 * PAGE, false) == SIGSEGV && fault(parts + 15 * PAGE, false) == SIGSEGV, "a part stays");
    must(shmdt(cut));
    expect(fault(cut + 4 * PAGE, false) == SIGSEGV && fault(cut + 6 * PAGE, false) == SIGSEGV && *other == 'o', "what is left of the cut one");
    must(shmctl(id, IPC_RMID, NULL));
    ok();
}
