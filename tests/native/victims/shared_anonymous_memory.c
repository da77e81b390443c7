/* Anonymous memory shared by a parent and its child: shared on, and not with other forks. */
#include "victim.h"

int main(void) {
    volatile uint64_t *shared = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t i = 16; i < 131072; i += 3)
        shared[i] = pattern(i);
    pid_t child = fork();
    if (child == 0) {
        shared[0] = 1;
        for (uint64_t last = 1;; nap(0.001))
            if (shared[1] != last) {
                last = shared[1];
                shared[2] = ~last; /* an answer to each question */
                if (last == 99)
                    _exit(0);
            }
    }
    while (!shared[0])
        nap(0.002);
    ready();
    go();
    for (uint64_t i = 16; i < 131072; i++)
        expect(shared[i] == ((i - 16) % 3 ? 0 : pattern(i)), "word %lu", (unsigned long)i);
    for (int round = 0; round < 20; round++) {
        uint64_t question = own_number() | 1024;
        shared[1] = question;
        for (int i = 0; shared[2] != ~question; i++, nap(0.001))
            expect(i < 10000, "no answer in round %d", round);
        nap(0.005);
        expect(shared[1] == question, "somebody else writes here");
    }
    shared[1] = 99;
    child_ends_well(child);
    ok();
}
