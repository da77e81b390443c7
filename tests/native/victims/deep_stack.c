/* Five megabytes of stack in use, which unwind as they were wound and can then be wound again, deeper. */
#include "victim.h"

static long depth_reached;

static __attribute__((noinline)) uint64_t wind(long depth, long most, bool wait) {
    volatile uint64_t frame[128];
    for (int i = 0; i < 128; i++)
        frame[i] = pattern((uint64_t)(depth * 128 + i));
    uint64_t sum = 0;
    if (depth < most)
        sum = wind(depth + 1, most, wait);
    else if (wait) {
        ready();
        go();
    }
    for (int i = 0; i < 128; i++)
        expect(frame[i] == pattern((uint64_t)(depth * 128 + i)), "frame %ld, word %d", depth, i);
    depth_reached++;
    return sum + frame[depth % 128];
}

int main(void) {
    uint64_t first = wind(0, 5000, true);
    expect(depth_reached == 5001, "%ld frames", depth_reached);
    expect(wind(0, 5000, false) == first, "another sum");
    wind(0, 7000, false);
    ok();
}
