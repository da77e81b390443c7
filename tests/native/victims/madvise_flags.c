/* Advice on memory: not for children, wiped for children, not for dumps. The advice is kept and works. */
#include "victim.h"

int main(void) {
    static const int advice[] = {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP, MADV_NOHUGEPAGE};
    char *memory[4];
    for (int i = 0; i < 4; i++) {
        memory[i] = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(mprotect(memory[i] + 4096, 4096, PROT_READ | PROT_WRITE));
        memory[i][4096] = 'm';
        must(madvise(memory[i] + 4096, 4096, advice[i]));
    }
    ready();
    go();
    for (int i = 0; i < 4; i++)
        expect(memory[i][4096] == 'm', "content %d", i);
    pid_t child = fork();
    if (child == 0) {
        unsigned char resident;
        expect(mincore(memory[0] + 4096, 4096, &resident) == -1 && errno == ENOMEM, "a child has what is not for children");
        expect(memory[1][4096] == 0, "a child sees what is to be wiped");
        expect(memory[2][4096] == 'm' && memory[3][4096] == 'm', "a child sees less than it should");
        _exit(0);
    }
    child_ends_well(child);
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512], want[] = " dd ";
    bool inside = false, found = false;
    unsigned long from, to;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= (unsigned long)memory[2] + 4096 && (unsigned long)memory[2] + 4096 < to;
        if (inside && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, want) != NULL;
    }
    expect(found, "not for dumps: lost");
    ok();
}
