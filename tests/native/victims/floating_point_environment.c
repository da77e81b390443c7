/* Rounding mode, exception masks and the x87 stack, of a thread asleep and of one that computes. */
#include "victim.h"
#include <fenv.h>

static atomic_int set, stop;
static atomic_long sums;

static double sum(void) {
    volatile double total = 0;
    for (int i = 1; i < 20000; i++)
        total += 1.0 / i;
    return total;
}

static void *compute(void *argument) {
    must(fesetround(FE_DOWNWARD) ? -1 : 0);
    double first = sum();
    set = 1;
    while (!stop) {
        double again = sum();
        expect(again == first, "a sum became %.20g, was %.20g", again, first);
        sums++;
    }
    return argument;
}

int main(void) {
    pthread_t id;
    must(-pthread_create(&id, NULL, compute, NULL));
    while (!set)
        nap(0.002);
    must(fesetround(FE_UPWARD) ? -1 : 0);
    feenableexcept(FE_DIVBYZERO);
    volatile long double third = 1.0L / 3.0L;
    long double kept = third;
    double first = sum();
    ready();
    go();
    expect(fegetround() == FE_UPWARD, "rounding mode %x", fegetround());
    expect(fegetexcept() == FE_DIVBYZERO, "exceptions %x", fegetexcept());
    expect(third == kept && sum() == first, "another result");
    long before = sums;
    for (int i = 0; sums < before + 3; i++, nap(0.01))
        expect(i < 1000, "the computing thread stands");
    stop = 1;
    pthread_join(id, NULL);
    ok();
}
