/* An alarm rings when it was set to, not that long after the fork. */
#include "victim.h"

static volatile sig_atomic_t rang;
static void ring(int number) { rang = number; }

int main(void) {
    struct sigaction action = {.sa_handler = ring};
    must(sigaction(SIGALRM, &action, NULL));
    double begun = now();
    alarm(3);
    nap(1.5);
    ready();
    while (!rang)
        nap(0.01);
    double took = now() - begun;
    go();
    expect(took >= 2.9 && took < 3.9 + slack, "the alarm of 3 s rang after %.2f s (slack %.2f)", took, slack);
    ok();
}
