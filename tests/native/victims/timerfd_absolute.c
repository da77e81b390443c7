/* A timer descriptor set to a point in time, on both clocks. */
#include "victim.h"
#include <sys/timerfd.h>

int main(void) {
    static const int clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    int fd[2];
    struct timespec end[2];
    for (int i = 0; i < 2; i++) {
        struct itimerspec setting = {0};
        fd[i] = (int)must(timerfd_create(clocks[i], 0));
        clock_gettime(clocks[i], &setting.it_value);
        setting.it_value.tv_sec += 2;
        end[i] = setting.it_value;
        must(timerfd_settime(fd[i], TFD_TIMER_ABSTIME, &setting, NULL));
    }
    nap(0.5);
    ready();
    for (int i = 0; i < 2; i++) {
        uint64_t ticks;
        struct timespec time;
        expect(read(fd[i], &ticks, 8) == 8 && ticks == 1, "read");
        clock_gettime(clocks[i], &time);
        double late = (double)(time.tv_sec - end[i].tv_sec) + (double)(time.tv_nsec - end[i].tv_nsec) / 1e9;
        go();
        expect(late > -0.01 && late < 0.8 + slack, "clock %d: %.2f s after its time (slack %.2f)", clocks[i], late, slack);
    }
    ok();
}
